// rand, randn and dropout by their definitions. Tested by tests/unit/reference/reference_random_test.cc
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/ir/philox.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

// A fraction of 53 bits out of two words, in units of 2^-53.
double Wide(uint32_t high, uint32_t low) {
  return static_cast<double>(high >> 5) * 67108864.0 + static_cast<double>(low >> 6);
}

// The element's words, from the sequence of all words from block `offset` on.
std::array<uint32_t, 4> WordsOf(uint64_t seed, uint64_t offset, uint64_t element, uint64_t words) {
  std::array<uint32_t, 4> taken = {};
  for (uint64_t w = 0; w < words; ++w) {
    const uint64_t at = element * words + w;
    taken[w] = PhiloxBlock(seed, offset + at / 4)[at % 4];
  }
  return taken;
}

double Uniform(DType dtype, const std::array<uint32_t, 4>& block) {
  switch (dtype) {
    case DType::kF64:
      return Wide(block[0], block[1]) * 0x1p-53;
    case DType::kF16:
      return std::floor(block[0] * 0x1p-21) * 0x1p-11;
    case DType::kBF16:
      return std::floor(block[0] * 0x1p-24) * 0x1p-8;
    default:
      return std::floor(block[0] * 0x1p-8) * 0x1p-24;
  }
}

// The radius is sensitive to the rounding of its argument, which is therefore that of the compute dtype.
double Normal(DType dtype, const std::array<uint32_t, 4>& block) {
  const double pi = std::acos(-1.0);
  if (dtype == DType::kF64) {
    const double u = Wide(block[0], block[1]) * 0x1p-53 + 0x1p-54;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * pi * 0x1p-53 * Wide(block[2], block[3]));
  }
  const float u = static_cast<float>(block[0]) * 0x1p-32f + 0x1p-33f;
  const float angle = static_cast<float>(block[1] >> 8) * static_cast<float>(2 * pi * 0x1p-24);
  return std::sqrt(-2 * std::log(static_cast<double>(u))) * std::cos(static_cast<double>(angle));
}

}  // namespace

absl::StatusOr<Array> EvaluateRandom(const OpContext& context, const std::vector<Array>& operands) {
  const std::string& op = context.node.op;
  const Array seed = Dense(operands.back());
  const DType dtype = context.result_types[0].dtype;
  Array result = Array::Make(dtype, context.result_types[0].shape());
  const Array x = Dense(operands.front());
  const double p = context.Number("p");
  const uint64_t words = op == "dropout" ? 1 : (op == "randn" ? 2 : 1) * (dtype == DType::kF64 ? 2 : 1);
  for (int64_t k = 0; k < result.size(); ++k) {
    const auto block = WordsOf(static_cast<uint64_t>((*seed.i)[0]), static_cast<uint64_t>((*seed.i)[1]),
                               static_cast<uint64_t>(k), words);
    double& element = (*result.f)[static_cast<size_t>(k)];
    if (op == "rand") {
      element = Uniform(dtype, block);
    } else if (op == "randn") {
      element = context.Round(Normal(dtype, block));
    } else if (op == "dropout") {
      const bool kept = block[0] >= std::round(p * 4294967296.0);
      element = kept ? context.Round((*x.f)[static_cast<size_t>(k)] / (1 - p)) : 0.0;
    } else {
      return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
    }
  }
  return result;
}

}  // namespace fuseline::reference
