#include "common/ir/element_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/ir/number_text.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

static_assert(std::endian::native == std::endian::little, "constants are stored little-endian");

// A float narrower than f32: sign, exponent and mantissa in that order.
struct NarrowFormat {
  int mantissa_bits;
  int bias;
  uint32_t max_bits;       // the largest finite value
  uint32_t infinity_bits;  // max_bits where the format has no infinity
  uint32_t nan_bits;       // the usual quiet one
  uint32_t sign_bit;
  bool saturates;  // a finite number that is too large
};

NarrowFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {10, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000, false};
    case DType::kBF16:
      return {7, 127, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, false};
    case DType::kF8E5M2:
      return {2, 15, 0x7b, 0x7c, 0x7e, 0x80, true};
    default:
      return {3, 7, 0x7e, 0x7e, 0x7f, 0x80, true};
  }
}

// The exponent of the last mantissa bit at |value|.
int QuantumExponent(const NarrowFormat& format, double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int least = 1 - format.bias;
  return (exponent - 1 > least ? exponent - 1 : least) - format.mantissa_bits;
}

uint32_t EncodeNarrow(const NarrowFormat& format, double value) {
  const uint32_t sign = std::signbit(value) ? format.sign_bit : 0;
  if (std::isnan(value)) return sign | format.nan_bits;
  if (std::isinf(value)) return sign | format.infinity_bits;
  const double magnitude = std::fabs(value);
  if (magnitude == 0.0) return sign;
  const int quantum = QuantumExponent(format, magnitude);
  const int least_quantum = 1 - format.bias - format.mantissa_bits;
  // A number that large is beyond every narrow format; returning early keeps the shift below in range.
  if (quantum - least_quantum > 256) return sign | (format.saturates ? format.max_bits : format.infinity_bits);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -quantum)));
  // The leading bit of a normal number adds the 1 which its exponent field needs; a carry out of the mantissa does the
  // same.
  const uint32_t bits = (static_cast<uint32_t>(quantum - least_quantum) << format.mantissa_bits) + steps;
  if (bits > format.max_bits) return sign | (format.saturates ? format.max_bits : format.infinity_bits);
  return sign | bits;
}

bool IsNarrowNan(const NarrowFormat& format, uint32_t bits) {
  return (bits & (format.sign_bit - 1)) > format.infinity_bits && (bits & ~(2 * format.sign_bit - 1)) == 0;
}

double DecodeNarrow(const NarrowFormat& format, uint32_t bits) {
  const uint32_t magnitude = bits & (format.sign_bit - 1);
  const double sign = (bits & format.sign_bit) != 0 ? -1.0 : 1.0;
  if (magnitude > format.infinity_bits) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > format.max_bits) return sign * std::numeric_limits<double>::infinity();
  const uint32_t field = magnitude >> format.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int least_quantum = 1 - format.bias - format.mantissa_bits;
  if (field == 0) return sign * std::ldexp(mantissa, least_quantum);
  return sign * std::ldexp(mantissa + (1u << format.mantissa_bits), least_quantum + static_cast<int>(field) - 1);
}

// A decimal number as its significant digits and the exponent of the first: 0.0120 is {"12", -2}.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
};

Decimal ReadDecimal(std::string_view text) {
  Decimal result;
  const size_t e = text.find_first_of("eE");
  int64_t written = 0;
  if (e != std::string_view::npos) {
    std::string_view tail = text.substr(e + 1);
    if (!tail.empty() && tail[0] == '+') tail.remove_prefix(1);
    std::from_chars(tail.data(), tail.data() + tail.size(), written);
  }
  int64_t position = 0;  // of the next digit, counted down from the point
  bool after_point = false;
  int64_t integer_digits = 0;
  int64_t first = 0;
  for (char c : text.substr(0, e)) {
    if (c == '.') after_point = true;
    if (c < '0' || c > '9') continue;
    if (!after_point) ++integer_digits;
    if (result.digits.empty() && c == '0') {
      ++position;
      continue;
    }
    if (result.digits.empty()) first = position;
    result.digits += c;
    ++position;
  }
  while (!result.digits.empty() && result.digits.back() == '0') result.digits.pop_back();
  result.exponent = written + integer_digits - 1 - first;
  return result;
}

// The order of the number that `text` spells and `value`, as magnitudes: -1, 0 or 1. Exact.
int CompareMagnitude(std::string_view text, double value) {
  char buffer[1200];  // 767 digits are enough for every double
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value), std::chars_format::scientific, 1080);
  const Decimal a = ReadDecimal(text);
  const Decimal b = ReadDecimal(std::string_view(buffer, end));
  if (a.exponent != b.exponent) return a.exponent < b.exponent ? -1 : 1;
  const int order = a.digits.compare(b.digits);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

// Decimal to narrow float in one rounding. Going through a double can round twice, which matters only where the double
// lies exactly between two narrow values; there the text decides.
uint32_t EncodeNarrowText(const NarrowFormat& format, std::string_view text, double value) {
  if (std::isfinite(value) && value != 0.0) {
    const double scaled = std::ldexp(std::fabs(value), -QuantumExponent(format, value));
    if (scaled - std::floor(scaled) == 0.5) {
      const int order = CompareMagnitude(text, value);
      const double away = std::copysign(std::numeric_limits<double>::infinity(), value);
      if (order > 0) value = std::nextafter(value, away);
      if (order < 0) value = std::nextafter(value, 0.0);
    }
  }
  return EncodeNarrow(format, value);
}

template <typename T>
void AppendRaw(T value, int size_bytes, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), static_cast<size_t>(size_bytes));
}

uint64_t LoadRaw(const char* data, int size_bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(size_bytes));
  return bits;
}

absl::Status DoesNotFit(std::string_view text, DType dtype) {
  return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                         StrCat("element ", text, " does not fit ", DTypeName(dtype)));
}

bool IsNanOf(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kF64:
      return std::isnan(std::bit_cast<double>(bits));
    case DType::kF32:
      return bits <= 0xffffffffu && std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    default:
      return bits <= 0xffffu && IsNarrowNan(FormatOf(dtype), static_cast<uint32_t>(bits));
  }
}

absl::Status AppendFloat(std::string_view text, DType dtype, std::string* bytes) {
  const int size = DTypeSizeBytes(dtype);
  uint64_t nan_bits = 0;
  if (ParseNanBits(text, &nan_bits)) {
    if (!IsNanOf(dtype, nan_bits)) return DoesNotFit(text, dtype);
    AppendRaw(nan_bits, size, bytes);
    return absl::OkStatus();
  }
  if (text == "true" || text == "false") return DoesNotFit(text, dtype);
  const bool special = text == "nan" || text == "inf" || text == "-inf";
  double value = 0.0;
  if (special) {
    FUSELINE_ASSIGN_OR_RETURN(const Literal literal, ParseNumber(text));
    value = literal.f;
  } else if (dtype == DType::kF32) {
    float narrow = 0.0f;
    if (!ParseFloat(text, &narrow)) narrow = std::numeric_limits<float>::infinity() * (text[0] == '-' ? -1.0f : 1.0f);
    AppendRaw(narrow, size, bytes);
    return absl::OkStatus();
  } else if (!ParseDouble(text, &value)) {
    return DoesNotFit(text, dtype);
  }
  if (dtype == DType::kF64) {
    AppendRaw(value, size, bytes);
  } else if (dtype == DType::kF32) {
    AppendRaw(std::isnan(value) ? std::bit_cast<float>(0x7fc00000u) : static_cast<float>(value), size, bytes);
  } else {
    const NarrowFormat format = FormatOf(dtype);
    AppendRaw(special ? EncodeNarrow(format, value) : EncodeNarrowText(format, text, value), size, bytes);
  }
  return absl::OkStatus();
}

// Appends what to_chars wrote, marked as a float.
void AppendFloatDigits(const char* begin, const char* end, std::string* text) {
  const std::string_view digits(begin, static_cast<size_t>(end - begin));
  text->append(digits);
  if (digits.find_first_of(".e") == std::string_view::npos) text->append(".0");
}

void AppendNan(uint64_t bits, uint64_t usual, std::string* text) {
  if (bits == usual) {
    text->append("nan");
  } else {
    StrAppend(text, "nan(0x", absl::Hex(bits), ")");
  }
}

void AppendNarrowText(DType dtype, uint32_t bits, std::string* text) {
  const NarrowFormat format = FormatOf(dtype);
  const double value = DecodeNarrow(format, bits);
  if (std::isnan(value)) return AppendNan(bits, format.nan_bits, text);
  if (std::isinf(value)) {
    text->append(value > 0 ? "inf" : "-inf");
    return;
  }
  char buffer[64];
  double shorter = value;
  // 9 digits are enough for f32, so for everything narrower.
  for (int precision = 1; precision <= 9; ++precision) {
    const char* end =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific, precision - 1).ptr;
    const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
    if (ParseDouble(digits, &shorter) && EncodeNarrowText(format, digits, shorter) == bits) break;
    shorter = value;
  }
  text->append(DoubleText(shorter));
}

}  // namespace

absl::Status AppendElement(std::string_view text, DType dtype, std::string* bytes) {
  switch (GetDTypeKind(dtype)) {
    case DTypeKind::kFloat:
      return AppendFloat(text, dtype, bytes);
    case DTypeKind::kBool:
      if (text != "true" && text != "false") return DoesNotFit(text, dtype);
      bytes->push_back(text == "true" ? '\1' : '\0');
      return absl::OkStatus();
    case DTypeKind::kInteger: {
      if (text == "true" || text == "false") return DoesNotFit(text, dtype);
      FUSELINE_ASSIGN_OR_RETURN(const Literal literal, ParseNumber(text));
      if (!CheckLiteral(literal, dtype).ok()) return DoesNotFit(text, dtype);
      const int64_t value = literal.kind == Literal::Kind::kInt ? literal.i : static_cast<int64_t>(literal.f);
      AppendRaw(value, DTypeSizeBytes(dtype), bytes);
      return absl::OkStatus();
    }
    case DTypeKind::kInvalid:
      break;
  }
  return DoesNotFit(text, dtype);
}

void AppendElementText(DType dtype, const char* data, std::string* text) {
  const uint64_t bits = LoadRaw(data, DTypeSizeBytes(dtype));
  char buffer[64];
  switch (dtype) {
    case DType::kF64:
      text->append(DoubleText(std::bit_cast<double>(bits)));
      return;
    case DType::kF32: {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (std::isnan(value)) return AppendNan(bits, 0x7fc00000u, text);
      if (std::isinf(value)) {
        text->append(value > 0 ? "inf" : "-inf");
        return;
      }
      AppendFloatDigits(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr, text);
      return;
    }
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return AppendNarrowText(dtype, static_cast<uint32_t>(bits), text);
    case DType::kI64:
      StrAppend(text, static_cast<int64_t>(bits));
      return;
    case DType::kI32:
      StrAppend(text, static_cast<int32_t>(bits));
      return;
    case DType::kI16:
      StrAppend(text, static_cast<int32_t>(static_cast<int16_t>(bits)));
      return;
    case DType::kI8:
      StrAppend(text, static_cast<int32_t>(static_cast<int8_t>(bits)));
      return;
    case DType::kU8:
      StrAppend(text, static_cast<int32_t>(bits));
      return;
    case DType::kBool:
      text->append(bits != 0 ? "true" : "false");
      return;
    case DType::kInvalid:
      return;
  }
}

}  // namespace fuseline
