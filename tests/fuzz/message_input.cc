#include "tests/fuzz/message_input.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "tests/testing/random_source.h"

namespace fuseline::fuzz {
namespace {

using ::fuseline::testing::RandomSource;
using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr size_t kMostParts = 4096;
constexpr int kMostElements = 256;  // of one field
constexpr size_t kMostStringBytes = 256;

// Syntax errors are no news here.
class SilentCollector : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {}
  void AddWarning(int line, int column, const std::string& message) override {}
};

// The message and all messages inside it, breadth first.
std::vector<Message*> Parts(Message* root) {
  std::vector<Message*> parts = {root};
  for (size_t i = 0; i < parts.size() && parts.size() < kMostParts; ++i) {
    Message* part = parts[i];
    const Reflection* reflection = part->GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(*part, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        parts.push_back(reflection->MutableMessage(part, field));
        continue;
      }
      for (int k = 0; k < reflection->FieldSize(*part, field); ++k)
        parts.push_back(reflection->MutableRepeatedMessage(part, field, k));
    }
  }
  return parts;
}

class MessageMutator {
 public:
  MessageMutator(Message* root, const std::vector<std::string>& words, ByteMutator mutate_bytes, uint64_t seed)
      : root_(root), words_(words), mutate_bytes_(mutate_bytes), random_(seed) {}

  void MutateOnce() {
    parts_ = Parts(root_);
    Message* part = parts_[Below(parts_.size())];
    const Descriptor* type = part->GetDescriptor();
    if (type->field_count() == 0) return;
    // Fields that are set are what the message is about; the others are tried less often.
    std::vector<const FieldDescriptor*> set;
    part->GetReflection()->ListFields(*part, &set);
    const FieldDescriptor* field = !set.empty() && random_.Chance(70)
                                       ? set[Below(set.size())]
                                       : type->field(static_cast<int>(Below(static_cast<size_t>(type->field_count()))));
    if (field->is_repeated()) {
      MutateRepeated(part, field);
    } else {
      MutateSingular(part, field);
    }
  }

 private:
  size_t Below(size_t n) { return static_cast<size_t>(random_.Below(static_cast<int64_t>(n))); }

  // Another part of the same type, or null.
  const Message* OtherPart(const Message& part) {
    std::vector<const Message*> others;
    for (const Message* other : parts_) {
      if (other != &part && other->GetDescriptor() == part.GetDescriptor()) others.push_back(other);
    }
    return others.empty() ? nullptr : others[Below(others.size())];
  }

  static bool Contains(const Message& whole, const Message& part) {
    const std::vector<Message*> parts = Parts(const_cast<Message*>(&whole));
    return std::find(parts.begin(), parts.end(), &part) != parts.end();
  }

  void CopyFromOther(Message* part) {
    parts_ = Parts(root_);  // making `part` may have ended another one of its oneof
    const Message* other = OtherPart(*part);
    if (other == nullptr || Contains(*other, *part) || Contains(*part, *other)) return;
    const std::unique_ptr<Message> copy(other->New());
    copy->CopyFrom(*other);
    part->CopyFrom(*copy);
  }

  void MutateSingular(Message* part, const FieldDescriptor* field) {
    const Reflection* reflection = part->GetReflection();
    if (reflection->HasField(*part, field) && random_.Chance(15)) {
      reflection->ClearField(part, field);
      return;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(part, field, static_cast<int32_t>(Integer(reflection->GetInt32(*part, field))));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(part, field, Integer(reflection->GetInt64(*part, field)));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection->SetUInt32(part, field, static_cast<uint32_t>(Integer(reflection->GetUInt32(*part, field))));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection->SetUInt64(
            part, field, static_cast<uint64_t>(Integer(static_cast<int64_t>(reflection->GetUInt64(*part, field)))));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(part, field, Number(reflection->GetDouble(*part, field)));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        reflection->SetFloat(part, field, static_cast<float>(random_.Pick({0, 1, -1, 2})));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(part, field, !reflection->GetBool(*part, field));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnumValue(part, field, Enumerator(field->enum_type()));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(part, field, Text(field, reflection->GetString(*part, field)));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        CopyFromOther(reflection->MutableMessage(part, field));
        break;
    }
  }

  void MutateRepeated(Message* part, const FieldDescriptor* field) {
    const Reflection* reflection = part->GetReflection();
    const int size = reflection->FieldSize(*part, field);
    const int64_t action = size == 0 ? 0 : random_.Below(100);
    if (action < 30) {
      if (size < kMostElements) Add(part, field);
    } else if (action < 50) {
      reflection->SwapElements(part, field, static_cast<int>(random_.Below(size)), size - 1);
      reflection->RemoveLast(part, field);
    } else if (action < 65) {
      reflection->SwapElements(part, field, static_cast<int>(random_.Below(size)),
                               static_cast<int>(random_.Below(size)));
    } else {
      MutateElement(part, field, static_cast<int>(random_.Below(size)));
    }
  }

  // A new last element, which then goes to any place; messages are copies of others of their type.
  void Add(Message* part, const FieldDescriptor* field) {
    const Reflection* reflection = part->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->AddInt32(part, field, static_cast<int32_t>(Integer(0)));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->AddInt64(part, field, Integer(0));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->AddDouble(part, field, Number(0));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->AddBool(part, field, random_.Chance(50));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->AddEnumValue(part, field, Enumerator(field->enum_type()));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->AddString(part, field, Text(field, ""));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        CopyFromOther(reflection->AddMessage(part, field));
        break;
      default:
        return;  // no such field in our messages
    }
    if (random_.Chance(50) && !field->is_map()) {
      const int size = reflection->FieldSize(*part, field);
      reflection->SwapElements(part, field, static_cast<int>(random_.Below(size)), size - 1);
    }
  }

  void MutateElement(Message* part, const FieldDescriptor* field, int k) {
    const Reflection* reflection = part->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetRepeatedInt32(part, field, k,
                                     static_cast<int32_t>(Integer(reflection->GetRepeatedInt32(*part, field, k))));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetRepeatedInt64(part, field, k, Integer(reflection->GetRepeatedInt64(*part, field, k)));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetRepeatedDouble(part, field, k, Number(reflection->GetRepeatedDouble(*part, field, k)));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetRepeatedBool(part, field, k, !reflection->GetRepeatedBool(*part, field, k));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetRepeatedEnumValue(part, field, k, Enumerator(field->enum_type()));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->SetRepeatedString(part, field, k, Text(field, reflection->GetRepeatedString(*part, field, k)));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        CopyFromOther(reflection->MutableRepeatedMessage(part, field, k));
        break;
      default:
        break;
    }
  }

  int64_t Integer(int64_t old) {
    switch (random_.Below(5)) {
      case 0:
        return static_cast<int64_t>(static_cast<uint64_t>(old) + static_cast<uint64_t>(random_.Between(-3, 3)));
      case 1:
        return random_.Between(0, 8);
      case 2:
        return random_.Pick<int64_t>({0, -1, 1, 2, 16, 31, 32, 33, 127, 255, 256, 1024, 4096, 65535, 65536});
      case 3:
        return random_.Pick<int64_t>({std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(),
                                      std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                                      int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 40, int64_t{1} << 46,
                                      int64_t{1} << 62});
      default:
        return static_cast<int64_t>(static_cast<uint64_t>(old) * static_cast<uint64_t>(random_.Pick({-1, 2, 256})));
    }
  }

  double Number(double old) {
    switch (random_.Below(3)) {
      case 0:
        return random_.Pick({0.0, -0.0, 1.0, -1.0, 0.5, 1e-6, 2.0, 3.5, 255.0, 256.0, 65504.0, 3.5e38, 1e308, 5e-324});
      case 1:
        return random_.Pick({std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()});
      default:
        return old * random_.Pick({-1.0, 0.5, 2.0, 1.0 + 1e-15}) + random_.Pick({0.0, 1.0});
    }
  }

  int Enumerator(const EnumDescriptor* type) {
    if (random_.Chance(4)) return static_cast<int>(Integer(0));
    return type->value(static_cast<int>(Below(static_cast<size_t>(type->value_count()))))->number();
  }

  std::string Text(const FieldDescriptor* field, const std::string& old) {
    const bool is_bytes = field->type() == FieldDescriptor::TYPE_BYTES;
    const int64_t choice = random_.Below(100);
    if (!is_bytes && choice < 40) {
      std::vector<std::string> found;
      for (const Message* part : parts_) CollectStrings(*part, found);
      if (!found.empty()) return found[Below(found.size())];
    }
    if (!is_bytes && choice < 80 && !words_.empty()) return words_[Below(words_.size())];
    std::string text = old.substr(0, kMostStringBytes);
    const size_t size = text.size();
    text.resize(kMostStringBytes);
    text.resize(mutate_bytes_(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
    if (is_bytes) return text;
    for (char& c : text) c = static_cast<char>(c & 0x7f);  // what is not UTF-8 does not travel
    return text;
  }

  static void CollectStrings(const Message& part, std::vector<std::string>& found) {
    const Reflection* reflection = part.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(part, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->type() != FieldDescriptor::TYPE_STRING) continue;
      if (!field->is_repeated()) {
        found.push_back(reflection->GetString(part, field));
        continue;
      }
      for (int k = 0; k < reflection->FieldSize(part, field); ++k)
        found.push_back(reflection->GetRepeatedString(part, field, k));
    }
  }

  Message* root_;
  const std::vector<std::string>& words_;
  ByteMutator mutate_bytes_;
  RandomSource random_;
  std::vector<Message*> parts_;
};

std::string Print(const Message& message, bool as_text) {
  return as_text ? PrintMessage(message) : message.SerializeAsString();
}

size_t Store(const std::string& bytes, uint8_t* out, size_t max_size) {
  if (bytes.size() > max_size) return 0;
  std::memcpy(out, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

bool ParseMessage(std::string_view bytes, Message* message) {
  if (!IsProtoText(bytes)) return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::TextFormat::Parser parser;
  SilentCollector collector;
  parser.RecordErrorsTo(&collector);
  parser.SetRecursionLimit(32);
  const std::unique_ptr<Message> parsed(message->New());
  if (!parser.ParseFromString(std::string(bytes), parsed.get())) return false;
  return message->ParseFromString(parsed->SerializeAsString());
}

std::string PrintMessage(const Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return std::string(kProtoTextHeader) + text;
}

size_t MutateMessage(const Message& prototype, const std::vector<std::string>& words, ByteMutator mutate_bytes,
                     uint8_t* data, size_t size, size_t max_size, uint64_t seed) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool as_text = IsProtoText(bytes) || size == 0;
  RandomSource random(seed);
  const std::unique_ptr<Message> message(prototype.New());
  if ((size > 0 && !ParseMessage(bytes, message.get())) || random.Chance(as_text ? 1 : 30))
    return mutate_bytes(data, size, max_size);
  MessageMutator mutator(message.get(), words, mutate_bytes, random.Next());
  const int64_t changes = random.Pick({1, 1, 1, 2, 3, 6});
  for (int64_t n = 0; n < changes; ++n) mutator.MutateOnce();
  const size_t new_size = Store(Print(*message, as_text), data, max_size);
  return new_size > 0 ? new_size : size;  // too large: left as it was
}

size_t CrossMessages(const Message& prototype, std::string_view first, std::string_view second, uint8_t* out,
                     size_t max_size, uint64_t seed) {
  const std::unique_ptr<Message> to(prototype.New());
  const std::unique_ptr<Message> from(prototype.New());
  if (!ParseMessage(first, to.get()) || !ParseMessage(second, from.get())) return 0;
  RandomSource random(seed);
  const std::vector<Message*> targets = Parts(to.get());
  const std::vector<Message*> sources = Parts(from.get());
  for (int tries = 0; tries < 8; ++tries) {
    Message* target = random.Pick(targets);
    const Message* source = random.Pick(sources);
    if (target->GetDescriptor() != source->GetDescriptor() || target == to.get()) continue;
    if (random.Chance(70)) {
      target->CopyFrom(*source);
    } else {
      target->MergeFrom(*source);
    }
    return Store(Print(*to, IsProtoText(first)), out, max_size);
  }
  return 0;
}

}  // namespace fuseline::fuzz
