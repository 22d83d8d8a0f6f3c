// Tested by tests/unit/reference/tensor_test.cc
#include "common/tensor/float_formats.h"

#include <bit>
#include <cmath>
#include <limits>

namespace fuseline {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Format {
  int fraction_bits;
  int least_exponent;  // of a normal number
  int exponent_bits;
  double largest;
  bool saturates;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {7, -126, 8, 3.3895313892515355e38, false};
    case DType::kF8E4M3:
      return {3, -6, 4, 448, true};
    case DType::kF8E5M2:
      return {2, -14, 5, 57344, true};
    default:
      return {10, -14, 5, 65504, false};
  }
}

}  // namespace

double RoundToSmallFloat(DType dtype, double value) {
  if (std::isnan(value)) return kNan;
  const Format format = FormatOf(dtype);
  double rounded = value;
  const double magnitude = std::fabs(value);
  if (std::isfinite(value)) {
    if (magnitude < std::ldexp(1.0, format.least_exponent)) {
      // Added to a number whose last place is the format's least subnormal, the hardware rounds it there.
      const double anchor = std::ldexp(1.5, 52 + format.least_exponent - format.fraction_bits);
      const volatile double sum = magnitude + anchor;
      rounded = std::copysign(sum - anchor, value);
    } else {
      const int drop = 52 - format.fraction_bits;
      uint64_t bits = std::bit_cast<uint64_t>(value);
      bits += (uint64_t{1} << (drop - 1)) - 1 + ((bits >> drop) & 1);  // a carry runs into the exponent, as it should
      bits = bits >> drop << drop;
      rounded = std::bit_cast<double>(bits);
    }
  }
  if (std::fabs(rounded) > format.largest) return std::copysign(format.saturates ? format.largest : kInf, value);
  return rounded;
}

uint16_t EncodeSmallFloat(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  const int sign_position = format.fraction_bits + format.exponent_bits;
  const uint32_t exponent_mask = (1u << format.exponent_bits) - 1;
  const uint32_t infinity = exponent_mask << format.fraction_bits;
  const double rounded = RoundToSmallFloat(dtype, value);
  const uint32_t sign = std::signbit(value) ? 1u << sign_position : 0;
  if (std::isnan(rounded)) {
    const uint32_t nan = dtype == DType::kF8E4M3 ? 0x7f : infinity | (1u << (format.fraction_bits - 1));
    return static_cast<uint16_t>(sign | nan);
  }
  const double magnitude = std::fabs(rounded);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  if (magnitude < std::ldexp(1.0, format.least_exponent)) {
    const double steps = std::ldexp(magnitude, format.fraction_bits - format.least_exponent);
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(steps));
  }
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const uint32_t biased = static_cast<uint32_t>(exponent - 1 - format.least_exponent + 1);
  const uint32_t low = static_cast<uint32_t>(std::ldexp(fraction * 2 - 1, format.fraction_bits));
  return static_cast<uint16_t>(sign | (biased << format.fraction_bits) | low);
}

double DecodeSmallFloat(DType dtype, uint16_t bits) {
  if (dtype == DType::kBF16) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  const Format format = FormatOf(dtype);
  const uint32_t exponent_mask = (1u << format.exponent_bits) - 1;
  const uint32_t fraction_mask = (1u << format.fraction_bits) - 1;
  const uint32_t fraction = bits & fraction_mask;
  const uint32_t exponent = (bits >> format.fraction_bits) & exponent_mask;
  const bool negative = (bits >> (format.fraction_bits + format.exponent_bits)) & 1;
  double magnitude;
  if (dtype == DType::kF8E4M3 && exponent == exponent_mask && fraction == fraction_mask) {
    magnitude = kNan;
  } else if (dtype != DType::kF8E4M3 && exponent == exponent_mask) {
    magnitude = fraction != 0 ? kNan : kInf;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(fraction), format.least_exponent - format.fraction_bits);
  } else {
    magnitude = std::ldexp(static_cast<double>(fraction + fraction_mask + 1),
                           static_cast<int>(exponent) - 1 + format.least_exponent - format.fraction_bits);
  }
  return negative ? -magnitude : magnitude;
}

}  // namespace fuseline
