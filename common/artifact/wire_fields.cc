#include "common/artifact/wire_fields.h"

namespace fuseline {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kMaxTag = 0xffffffff;

template <typename T>
bool AppendNumbers(const WireField& field, std::vector<T>& values) {
  if (field.type == WireField::Type::kVarint) {
    values.push_back(static_cast<T>(field.value));
    return true;
  }
  if (field.type != WireField::Type::kBytes) return false;
  std::string_view packed = field.bytes;
  while (!packed.empty()) {
    uint64_t value = 0;
    if (!TakeVarint(packed, value)) return false;
    values.push_back(static_cast<T>(value));
  }
  return true;
}

// Little-endian, of up to 8 bytes.
uint64_t TakeFixed(std::string_view& bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  bytes.remove_prefix(count);
  return value;
}

}  // namespace

bool TakeVarint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int i = 0; i < kMaxVarintBytes && static_cast<size_t>(i) < bytes.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
    value |= uint64_t{byte & 0x7fu} << (7 * i);  // the tenth byte's upper bits fall off, as in protobuf
    if ((byte & 0x80) == 0) {
      bytes.remove_prefix(static_cast<size_t>(i) + 1);
      return true;
    }
  }
  return false;
}

bool WireFields::Malformed() {
  ok_ = false;
  rest_ = {};
  return false;
}

bool WireFields::Next(WireField& field) {
  if (rest_.empty()) return false;
  uint64_t tag = 0;
  if (!TakeVarint(rest_, tag) || tag > kMaxTag || tag >> 3 == 0) return Malformed();
  field.number = static_cast<uint32_t>(tag >> 3);
  field.type = static_cast<WireField::Type>(tag & 7);
  field.value = 0;
  field.bytes = {};
  switch (field.type) {
    case WireField::Type::kVarint:
      return TakeVarint(rest_, field.value) || Malformed();
    case WireField::Type::kFixed64:
      if (rest_.size() < 8) return Malformed();
      field.value = TakeFixed(rest_, 8);
      return true;
    case WireField::Type::kFixed32:
      if (rest_.size() < 4) return Malformed();
      field.value = TakeFixed(rest_, 4);
      return true;
    case WireField::Type::kBytes: {
      uint64_t size = 0;
      if (!TakeVarint(rest_, size) || size > rest_.size()) return Malformed();
      field.bytes = rest_.substr(0, static_cast<size_t>(size));
      rest_.remove_prefix(static_cast<size_t>(size));
      return true;
    }
  }
  return Malformed();
}

bool AppendVarints(const WireField& field, std::vector<int64_t>& values) { return AppendNumbers(field, values); }
bool AppendVarints(const WireField& field, std::vector<int32_t>& values) { return AppendNumbers(field, values); }

}  // namespace fuseline
