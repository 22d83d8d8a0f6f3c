#include "common/ir/number_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

constexpr uint64_t kQuietNanBits = 0x7ff8000000000000;
constexpr std::string_view kNanOpen = "nan(0x";

// Whether a decimal number that does not fit is too small (and not too large): its value is below 1.
bool IsTooSmall(std::string_view text) {
  // The position of the first significant digit relative to the point, plus the exponent.
  int64_t magnitude = 0;
  bool after_point = false;
  bool significant = false;
  size_t i = 0;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      after_point = true;
    } else if (text[i] >= '0' && text[i] <= '9') {
      if (text[i] != '0') significant = true;
      if (significant && !after_point) ++magnitude;
      if (!significant && after_point) --magnitude;
    }
  }
  if (!significant) return true;
  if (i == text.size()) return magnitude <= 0;
  std::string_view exponent_text = text.substr(i + 1);
  const bool negative = !exponent_text.empty() && exponent_text[0] == '-';
  if (negative || (!exponent_text.empty() && exponent_text[0] == '+')) exponent_text.remove_prefix(1);
  int64_t exponent = 0;
  for (char c : exponent_text) {
    // Saturated: no text is long enough for its digits to weigh against such an exponent.
    if (exponent < (int64_t{1} << 40)) exponent = exponent * 10 + (c - '0');
  }
  return magnitude + (negative ? -exponent : exponent) <= 0;
}

template <typename T>
bool ParseFloating(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (end != text.data() + text.size()) return false;
  if (error == std::errc::result_out_of_range) {
    if (!IsTooSmall(text)) return false;
    *value = !text.empty() && text[0] == '-' ? T{-0.0} : T{0.0};
    return true;
  }
  return error == std::errc() && !std::isinf(*value);
}

absl::Status NumberError(std::string_view text, std::string_view what) {
  return InvalidArgument(ErrorReason::kGraphSyntax, "", StrCat("number ", text, " ", what));
}

}  // namespace

std::string DoubleText(double value) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<uint64_t>(value);
    return bits == kQuietNanBits ? "nan" : StrCat(kNanOpen, absl::Hex(bits), ")");
  }
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string LiteralText(const Literal& literal) {
  switch (literal.kind) {
    case Literal::Kind::kInt:
      return StrCat(literal.i);
    case Literal::Kind::kFloat:
      return DoubleText(literal.f);
    case Literal::Kind::kBool:
      return literal.i != 0 ? "true" : "false";
  }
  return "invalid";
}

bool ParseNanBits(std::string_view text, uint64_t* bits) {
  if (text.substr(0, kNanOpen.size()) != kNanOpen || text.back() != ')') return false;
  const std::string_view digits = text.substr(kNanOpen.size(), text.size() - kNanOpen.size() - 1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  *bits = error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  return true;
}

bool ParseDouble(std::string_view text, double* value) { return ParseFloating(text, value); }
bool ParseFloat(std::string_view text, float* value) { return ParseFloating(text, value); }

absl::StatusOr<Literal> ParseNumber(std::string_view text) {
  Literal literal;
  literal.kind = Literal::Kind::kFloat;
  uint64_t bits = 0;
  if (text == "inf" || text == "-inf") {
    literal.f = text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    return literal;
  }
  if (text == "nan") {
    literal.f = std::bit_cast<double>(kQuietNanBits);
    return literal;
  }
  if (ParseNanBits(text, &bits)) {
    literal.f = std::bit_cast<double>(bits);
    if (!std::isnan(literal.f)) return NumberError(text, "is not a nan of f64");
    return literal;
  }
  if (text.find_first_of(".eE") == std::string_view::npos) {
    literal.kind = Literal::Kind::kInt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), literal.i);
    if (error == std::errc::result_out_of_range) return NumberError(text, "does not fit i64");
    if (error != std::errc() || end != text.data() + text.size()) return NumberError(text, "is malformed");
    return literal;
  }
  if (!ParseDouble(text, &literal.f)) return NumberError(text, "does not fit f64");
  return literal;
}

}  // namespace fuseline
