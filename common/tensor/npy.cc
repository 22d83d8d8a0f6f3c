// Tested by tests/unit/reference/npy_test.cc
#include "common/tensor/npy.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 64;
constexpr int64_t kMaxElements = int64_t{1} << 48;

absl::Status BadFile(const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, "", absl::StrCat("npy: ", message));
}

struct Descr {
  DType dtype = DType::kInvalid;  // kInvalid: only its size is known
  int size_bytes = 0;
  bool big_endian = false;
};

absl::StatusOr<Descr> ParseDescr(const std::string& text) {
  if (text.size() < 3 || std::string_view("<>|=").find(text[0]) == std::string_view::npos) {
    return BadFile(absl::StrCat("dtype '", text, "' is not supported"));
  }
  Descr descr;
  descr.big_endian = text[0] == '>';
  const std::string kind = text.substr(1);
  struct Row {
    const char* kind;
    DType dtype;
    int size_bytes;
  };
  static constexpr Row kRows[] = {{"f8", DType::kF64, 8},  {"f4", DType::kF32, 4},     {"f2", DType::kF16, 2},
                                  {"V2", DType::kBF16, 2}, {"i8", DType::kI64, 8},     {"i4", DType::kI32, 4},
                                  {"i2", DType::kI16, 2},  {"i1", DType::kI8, 1},      {"u1", DType::kU8, 1},
                                  {"b1", DType::kBool, 1}, {"V1", DType::kInvalid, 1}, {"u2", DType::kInvalid, 2}};
  for (const Row& row : kRows) {
    if (kind == row.kind) {
      descr.dtype = row.dtype;
      descr.size_bytes = row.size_bytes;
      return descr;
    }
  }
  return BadFile(absl::StrCat("dtype '", text, "' is not supported"));
}

const char* DescrText(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "<f8";
    case DType::kF32:
      return "<f4";
    case DType::kF16:
      return "<f2";
    case DType::kBF16:
      return "<V2";
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return "<V1";
    case DType::kI64:
      return "<i8";
    case DType::kI32:
      return "<i4";
    case DType::kI16:
      return "<i2";
    case DType::kI8:
      return "|i1";
    case DType::kU8:
      return "|u1";
    case DType::kBool:
      return "|b1";
    case DType::kInvalid:
      break;
  }
  return "|V1";
}

// The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. Keys may come in any order.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  absl::Status Read(std::string* descr, bool* fortran, Shape* shape) {
    bool have_descr = false, have_order = false, have_shape = false;
    if (!Take('{')) return Malformed();
    while (!Take('}')) {
      std::string key;
      if (!String(&key) || !Take(':')) return Malformed();
      if (key == "descr" && !have_descr) {
        have_descr = String(descr);
        if (!have_descr) return BadFile("structured dtypes are not supported");
      } else if (key == "fortran_order" && !have_order) {
        have_order = Boolean(fortran);
        if (!have_order) return Malformed();
      } else if (key == "shape" && !have_shape) {
        have_shape = Tuple(shape);
        if (!have_shape) return Malformed();
      } else {
        return Malformed();
      }
      if (!Take(',') && !Peek('}')) return Malformed();
    }
    if (!have_descr || !have_order || !have_shape) return Malformed();
    SkipSpace();
    return position_ == text_.size() ? absl::OkStatus() : Malformed();
  }

 private:
  static absl::Status Malformed() { return BadFile("the header is malformed"); }
  void SkipSpace() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t'))
      ++position_;
  }
  bool Peek(char c) {
    SkipSpace();
    return position_ < text_.size() && text_[position_] == c;
  }
  bool Take(char c) {
    if (!Peek(c)) return false;
    ++position_;
    return true;
  }
  bool Word(std::string_view word) {
    SkipSpace();
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }
  bool String(std::string* value) {
    const char quote = Peek('"') ? '"' : '\'';
    if (!Take(quote)) return false;
    const size_t end = text_.find(quote, position_);
    if (end == std::string_view::npos) return false;
    *value = std::string(text_.substr(position_, end - position_));
    position_ = end + 1;
    return true;
  }
  bool Boolean(bool* value) {
    *value = Word("True");
    return *value || Word("False");
  }
  bool Tuple(Shape* shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpace();
      int64_t size = 0;
      const size_t start = position_;
      while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
        if (size > kMaxElements) return false;
        size = size * 10 + (text_[position_++] - '0');
      }
      if (position_ == start || shape->size() == kMaxRank) return false;
      shape->push_back(size);
      Take(',') || Peek(')');
    }
    return true;
  }

  std::string_view text_;
  size_t position_ = 0;
};

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

void SwapBytes(char* data, int64_t count, int size) {
  for (int64_t i = 0; i < count; ++i) std::reverse(data + i * size, data + (i + 1) * size);
}

// Column-major `from` into row-major `to`.
void FromFortranOrder(const char* from, char* to, const Shape& shape, size_t size) {
  const int64_t count = ElementCount(shape);
  Shape position(shape.size(), 0);
  Shape strides(shape.size(), 1);
  for (size_t d = 1; d < shape.size(); ++d) strides[d] = strides[d - 1] * shape[d - 1];
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * size, from + static_cast<size_t>(offset) * size, size);
    for (size_t d = shape.size(); d-- > 0;) {
      offset += strides[d];
      if (++position[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      position[d] = 0;
    }
  }
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, std::optional<DType> as) {
  if (bytes.size() < 10 || bytes.substr(0, kMagic.size()) != kMagic) return BadFile("the magic bytes are missing");
  const int version = bytes[6];
  if (version < 1 || version > 3) return BadFile(absl::StrCat("version ", version, " is not supported"));
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + length_bytes) return BadFile("the file ends in the header");
  const size_t header_bytes = LittleEndian(bytes.substr(8, length_bytes));
  if (header_bytes > bytes.size() - 8 - length_bytes) return BadFile("the file ends in the header");
  const std::string_view header = bytes.substr(8 + length_bytes, header_bytes);
  const std::string_view data = bytes.substr(8 + length_bytes + header_bytes);

  std::string descr_text;
  bool fortran = false;
  Shape shape;
  FUSELINE_RETURN_IF_ERROR(HeaderReader(header).Read(&descr_text, &fortran, &shape));
  FUSELINE_ASSIGN_OR_RETURN(const Descr descr, ParseDescr(descr_text));
  DType dtype = descr.dtype;
  if (as.has_value()) {
    if (DTypeSizeBytes(*as) != descr.size_bytes) {
      return BadFile(
          absl::StrCat("elements of dtype '", descr_text, "' can't be taken for ", std::string(DTypeName(*as))));
    }
    dtype = *as;
  }
  if (dtype == DType::kInvalid) return BadFile(absl::StrCat("dtype '", descr_text, "' could be several: say which"));
  int64_t count = 1;
  for (int64_t size : shape) {  // a size of 0 leaves the others unbounded, so they are bounded first
    if (size > 1 && count > kMaxElements / size) return BadFile("the shape is too large");
    if (size > 1) count *= size;
  }
  count = ElementCount(shape);
  const int64_t want = count * descr.size_bytes;
  if (static_cast<int64_t>(data.size()) != want) {
    return BadFile(absl::StrCat("the header asks for ", want, " bytes of data, the file has ", data.size()));
  }
  Tensor tensor = Tensor::Allocate(dtype, shape);
  if (count == 0) return tensor;
  char* out = static_cast<char*>(tensor.data());
  if (fortran && shape.size() > 1) {
    FromFortranOrder(data.data(), out, shape, static_cast<size_t>(descr.size_bytes));
  } else {
    std::memcpy(out, data.data(), data.size());
  }
  if (descr.big_endian && descr.size_bytes > 1) SwapBytes(out, count, descr.size_bytes);
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < count; ++i) out[i] = out[i] != 0 ? 1 : 0;
  }
  return tensor;
}

std::string FormatNpy(const Tensor& tensor) {
  std::string shape;
  for (int64_t size : tensor.shape()) absl::StrAppend(&shape, size, ", ");
  if (tensor.shape().size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape().size() == 1) shape.resize(shape.size() - 1);  // (3,)
  std::string header =
      absl::StrCat("{'descr': '", DescrText(tensor.dtype()), "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header.push_back('\n');
  std::string bytes(kMagic);
  bytes.push_back('\x01');
  bytes.push_back('\x00');
  bytes.push_back(static_cast<char>(header.size() & 0xff));
  bytes.push_back(static_cast<char>(header.size() >> 8));
  bytes += header;
  bytes += tensor.bytes();
  return bytes;
}

absl::StatusOr<Tensor> ReadNpyFile(const std::string& path, std::optional<DType> as) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, path,
                     absl::StrCat("'", path, "' can't be opened"));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad())
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, path,
                     absl::StrCat("'", path, "' can't be read"));
  auto tensor = ParseNpy(std::move(text).str(), as);
  if (!tensor.ok()) return Wrap(tensor.status(), path);
  return tensor;
}

absl::Status WriteNpyFile(const std::string& path, const Tensor& tensor) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string bytes = FormatNpy(tensor);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, path,
                     absl::StrCat("'", path, "' can't be written"));
  return absl::OkStatus();
}

}  // namespace fuseline
