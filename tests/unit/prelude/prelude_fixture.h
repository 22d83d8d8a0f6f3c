// The fixture of the tests that run prelude functions, and what they share: special values, random bit patterns, errors
// in ulp. The same test sources are linked with the CPU's runner and with CUDA's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/prelude/prelude_runner.h"

namespace fuseline::codegen {

class PreludeFixture : public ::testing::Test {
 protected:
  // One compilation serves all suites of the program.
  static const absl::StatusOr<std::unique_ptr<PreludeRunner>>& Runner() {
    static const auto* const runner = new absl::StatusOr<std::unique_ptr<PreludeRunner>>(MakePreludeRunner());
    return *runner;
  }

  void SetUp() override {
    if (Runner().status().code() == absl::StatusCode::kUnavailable) GTEST_SKIP() << Runner().status().message();
    ASSERT_TRUE(Runner().ok()) << Runner().status();
  }

  // Bools are uint8_t.
  template <class R, class... A>
  static std::vector<R> Call(const std::string& name, const std::vector<A>&... operands) {
    const size_t n = std::min({operands.size()...});
    std::vector<R> result(n);
    EXPECT_TRUE((*Runner())->Has(name)) << name;
    if ((*Runner())->Has(name)) {
      (*Runner())->Call(name, {operands.data()...}, {n * sizeof(A)...}, result.data(), n * sizeof(R),
                        static_cast<int64_t>(n));
    }
    return result;
  }
};

template <class F>
using BitsOf = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;

template <class F>
std::vector<F> SpecialFloats() {
  using L = std::numeric_limits<F>;
  std::vector<F> out;
  for (double v : {0.0,
                   0.25,
                   0.5,
                   0.75,
                   1.0,
                   1.5,
                   2.0,
                   2.5,
                   3.0,
                   3.5,
                   4.0,
                   5.0,
                   10.0,
                   20.0,
                   88.72284,
                   100.0,
                   1e-3,
                   1e-8,
                   1e-20,
                   1e4,
                   1e6,
                   1e9,
                   1e20,
                   3.14159265358979,
                   1.5707963267948966,
                   16777215.0,
                   16777216.0,
                   16777217.0,
                   2147483647.0,
                   2147483648.0}) {
    out.push_back(static_cast<F>(v));
  }
  for (F v : {L::infinity(), L::max(), L::min(), L::denorm_min(), L::min() / 2, L::epsilon(),
              std::nextafter(F(1), F(0)), std::nextafter(F(1), F(2)), std::nextafter(F(2), F(0)),
              static_cast<F>(9223372036854775808.0), L::quiet_NaN()}) {
    out.push_back(v);
  }
  const size_t positive = out.size();
  for (size_t i = 0; i < positive; ++i) out.push_back(-out[i]);
  return out;
}

// Random bit patterns (all exponents alike), and as many moderate values, where functions are used.
template <class F>
std::vector<F> RandomFloats(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<F> out;
  for (int i = 0; i < n; ++i) out.push_back(std::bit_cast<F>(static_cast<BitsOf<F>>(random())));
  for (int i = 0; i < n; ++i) {
    const F unit = static_cast<F>(static_cast<double>(random()) * 0x1p-64);
    out.push_back((i & 1 ? F(3) : F(40)) * (unit - F(0.5)));
  }
  return out;
}

// |got - want| in units of the last place of the result type at `want`; 0 if both are NaN, or the same infinity or
// zero, and infinite where one is special and the other is not. `want` is more precise than F.
template <class F>
double UlpError(F got, long double want) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  using L = std::numeric_limits<F>;
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kWrong;
  const F rounded = static_cast<F>(want);
  if (std::isinf(want)) return got == rounded ? 0 : kWrong;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : kWrong;
  if (std::isinf(rounded) || std::isinf(got)) {
    // At the border of overflow both neighbours count as one ulp away.
    if (got == rounded) return 0;
    const F finite = std::isinf(got) ? rounded : got;
    return std::fabs(finite) == L::max() && std::signbit(got) == std::signbit(rounded) ? 1 : kWrong;
  }
  int exponent;
  std::frexp(want, &exponent);
  const int least = L::min_exponent - L::digits;
  const int last = std::max(exponent - L::digits, least);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) * std::ldexp(1.0L, -last));
}

}  // namespace fuseline::codegen
