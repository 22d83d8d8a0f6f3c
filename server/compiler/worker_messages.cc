#include "server/compiler/worker_messages.h"

#include <string.h>

#include <type_traits>

#include "common/status/error.h"
#include "common/status/lasting_error.h"

namespace fuseline::compiler {
namespace {

// More search paths than anyone has.
constexpr uint32_t kMaxStrings = 10'000;
constexpr int kMaxStatusCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_integral_v<T>);
    char bytes[sizeof(T)];
    memcpy(bytes, &value, sizeof(T));
    bytes_.append(bytes, sizeof(T));
  }
  void Flag(bool value) { Number<uint8_t>(value ? 1 : 0); }
  void String(std::string_view text) {
    Number<uint64_t>(text.size());
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what Writer wrote; once something does not fit, `ok` stays false and values are zeros.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T Number() {
    static_assert(std::is_integral_v<T>);
    T value = 0;
    if (bytes_.size() < sizeof(T)) ok_ = false;
    if (!ok_) return 0;
    memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  // In [least, most].
  template <typename T>
  T NumberWithin(T least, T most) {
    const T value = Number<T>();
    if (value < least || value > most) ok_ = false;
    return ok_ ? value : least;
  }
  bool Flag() { return NumberWithin<uint8_t>(0, 1) == 1; }
  std::string String() {
    const uint64_t size = Number<uint64_t>();
    if (size > bytes_.size()) ok_ = false;
    if (!ok_) return "";
    const std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  // All of it was read.
  bool AtEnd() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void WriteSource(const KernelSource& source, Writer& writer) {
  writer.String(source.entry);
  writer.String(source.text);
  writer.Number(static_cast<uint8_t>(source.target.kind));
  writer.Number<int32_t>(source.target.sm);
  writer.Flag(source.target.arch_specific);
  writer.Flag(source.fast_math);
}

KernelSource ReadSource(Reader& reader) {
  KernelSource source;
  source.entry = reader.String();
  source.text = reader.String();
  source.target.kind = static_cast<Target::Kind>(
      reader.NumberWithin(static_cast<uint8_t>(Target::Kind::kCpu), static_cast<uint8_t>(Target::Kind::kCuda)));
  source.target.sm = reader.Number<int32_t>();
  source.target.arch_specific = reader.Flag();
  source.fast_math = reader.Flag();
  return source;
}

void WriteStatus(const absl::Status& status, Writer& writer) {
  writer.Number<int32_t>(static_cast<int32_t>(status.code()));
  if (status.ok()) return;
  writer.String(std::string_view(status.message().data(), status.message().size()));
  writer.Number<int32_t>(static_cast<int32_t>(GetErrorReason(status)));
  writer.String(GetErrorSubject(status));
}

absl::Status ReadStatus(Reader& reader) {
  const auto code = static_cast<absl::StatusCode>(reader.NumberWithin<int32_t>(0, kMaxStatusCode));
  if (!reader.ok() || code == absl::StatusCode::kOk) return absl::OkStatus();
  const std::string message = reader.String();
  const int32_t reason = reader.NumberWithin<int32_t>(0, 1000);
  const std::string subject = reader.String();
  return MakeError(code, static_cast<ErrorReason>(reason), subject, message);
}

}  // namespace

std::string EncodeSetup(const WorkerSetup& setup) {
  Writer writer;
  writer.Number(static_cast<uint8_t>(setup.compiler.kind));
  writer.Number(static_cast<uint32_t>(setup.compiler.nvrtc_search_paths.size()));
  for (const std::string& path : setup.compiler.nvrtc_search_paths) writer.String(path);
  writer.String(setup.compiler.host_compiler);
  writer.Number(setup.memory_limit_bytes);
  writer.String(setup.scratch_folder);
  writer.String(setup.identity);
  return writer.Take();
}

bool DecodeSetup(std::string_view bytes, WorkerSetup& setup) {
  Reader reader(bytes);
  setup = {};
  setup.compiler.kind = static_cast<CompilerSpec::Kind>(reader.NumberWithin(
      static_cast<uint8_t>(CompilerSpec::Kind::kNvrtc), static_cast<uint8_t>(CompilerSpec::Kind::kHost)));
  const uint32_t paths = reader.NumberWithin<uint32_t>(0, kMaxStrings);
  for (uint32_t i = 0; i < paths && reader.ok(); ++i) setup.compiler.nvrtc_search_paths.push_back(reader.String());
  setup.compiler.host_compiler = reader.String();
  setup.memory_limit_bytes = reader.Number<int64_t>();
  setup.scratch_folder = reader.String();
  setup.identity = reader.String();
  return reader.AtEnd();
}

std::string EncodeRequest(const WorkerRequest& request) {
  Writer writer;
  writer.Number(static_cast<uint8_t>(request.kind));
  if (request.kind != WorkerRequest::Kind::kDescribe) WriteSource(request.source, writer);
  return writer.Take();
}

bool DecodeRequest(std::string_view bytes, WorkerRequest& request) {
  Reader reader(bytes);
  request = {};
  request.kind = static_cast<WorkerRequest::Kind>(reader.NumberWithin(
      static_cast<uint8_t>(WorkerRequest::Kind::kDescribe), static_cast<uint8_t>(WorkerRequest::Kind::kPtx)));
  if (request.kind != WorkerRequest::Kind::kDescribe) request.source = ReadSource(reader);
  return reader.AtEnd();
}

std::string EncodeReply(const WorkerReply& reply, const KernelSource& source) {
  Writer writer;
  WriteStatus(reply.status, writer);
  // The memory that a compiler finds is not the same every time.
  writer.Flag(!reply.status.ok() && IsLasting(reply.status) && !reply.out_of_memory);
  writer.Flag(reply.out_of_memory);
  writer.Flag(reply.identity_changed);
  writer.Number(reply.resident_bytes);
  writer.String(reply.text);
  const KernelImage& image = reply.image;
  writer.Number(static_cast<uint8_t>(image.format));
  writer.String(image.bytes);
  const bool same_entry = image.entry == source.entry;
  writer.Flag(same_entry);
  if (!same_entry) writer.String(image.entry);
  const bool same_text = image.source == source.text;
  writer.Flag(same_text);
  if (!same_text) writer.String(image.source);
  writer.Number(image.resources.registers);
  writer.Number(image.resources.static_shared_bytes);
  writer.Number(image.resources.spill_store_bytes);
  writer.Number(image.resources.spill_load_bytes);
  writer.Number(image.resources.stack_bytes);
  return writer.Take();
}

bool DecodeReply(std::string_view bytes, const KernelSource& source, WorkerReply& reply) {
  Reader reader(bytes);
  reply = {};
  reply.status = ReadStatus(reader);
  if (reader.Flag()) reply.status = MarkLasting(std::move(reply.status));
  reply.out_of_memory = reader.Flag();
  reply.identity_changed = reader.Flag();
  reply.resident_bytes = reader.Number<int64_t>();
  reply.text = reader.String();
  KernelImage& image = reply.image;
  image.format =
      static_cast<ImageFormat>(reader.NumberWithin<uint8_t>(0, static_cast<uint8_t>(ImageFormat::kSharedObject)));
  image.bytes = reader.String();
  image.entry = reader.Flag() ? source.entry : reader.String();
  image.source = reader.Flag() ? source.text : reader.String();
  image.resources.registers = reader.Number<int32_t>();
  image.resources.static_shared_bytes = reader.Number<int64_t>();
  image.resources.spill_store_bytes = reader.Number<int64_t>();
  image.resources.spill_load_bytes = reader.Number<int64_t>();
  image.resources.stack_bytes = reader.Number<int64_t>();
  return reader.AtEnd();
}

}  // namespace fuseline::compiler
