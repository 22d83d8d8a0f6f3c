#include "common/case_file/random_values.h"

#include <algorithm>
#include <cstring>

namespace fuseline {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Repeats the first `filled` elements over the rest.
void RepeatPrefix(Tensor& tensor, int64_t filled) {
  const int64_t total = tensor.size_bytes();
  char* bytes = static_cast<char*>(tensor.data());
  const int64_t block = filled * DTypeSizeBytes(tensor.dtype());
  for (int64_t at = block; at < total; at += block) {
    std::memcpy(bytes + at, bytes, static_cast<size_t>(std::min(block, total - at)));
  }
}

int64_t DrawnElements(const Tensor& tensor, int64_t period) {
  const int64_t count = tensor.element_count();
  return period > 0 ? std::min(period, count) : count;
}

// Floats keep the value; integers are truncated, bool is "not zero".
void Store(Tensor& tensor, int64_t i, double value) {
  if (tensor.dtype() == DType::kF32) {
    static_cast<float*>(tensor.data())[i] = static_cast<float>(value);
  } else {
    tensor.SetDouble(i, value);
  }
}

}  // namespace

uint64_t RandomWord(uint64_t seed, uint64_t index) { return Mix(Mix(seed) + (index + 1) * kGolden); }

void FillNormal(Tensor& tensor, uint64_t seed, int64_t period) {
  const int64_t drawn = DrawnElements(tensor, period);
  constexpr uint64_t kMask = (1u << 21) - 1;
  for (int64_t i = 0; i < drawn; ++i) {
    uint64_t sum = 0;  // of twelve 21-bit integers
    for (uint64_t j = 0; j < 4; ++j) {
      const uint64_t word = RandomWord(seed, 4 * static_cast<uint64_t>(i) + j);
      sum += (word & kMask) + ((word >> 21) & kMask) + ((word >> 42) & kMask);
    }
    // 12 * 0.5: half a step a summand keeps the mean at exactly 0.
    Store(tensor, i, (static_cast<double>(sum) + 6.0) * 0x1p-21 - 6.0);
  }
  RepeatPrefix(tensor, drawn);
}

void FillUniform(Tensor& tensor, uint64_t seed, double low, double high, int64_t period) {
  const int64_t drawn = DrawnElements(tensor, period);
  for (int64_t i = 0; i < drawn; ++i) {
    const double unit = static_cast<double>(RandomWord(seed, static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
    Store(tensor, i, low + unit * (high - low));
  }
  RepeatPrefix(tensor, drawn);
}

void FillRandomInt(Tensor& tensor, uint64_t seed, int64_t low, int64_t high, int64_t period) {
  const int64_t drawn = DrawnElements(tensor, period);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const bool is_float = IsFloat(tensor.dtype());
  for (int64_t i = 0; i < drawn; ++i) {
    const uint64_t word = RandomWord(seed, static_cast<uint64_t>(i));
    const uint64_t offset = static_cast<uint64_t>((static_cast<unsigned __int128>(word) * range) >> 64);
    const int64_t value = static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
    if (is_float) {
      tensor.SetDouble(i, static_cast<double>(value));
    } else {
      tensor.SetInt(i, value);
    }
  }
  RepeatPrefix(tensor, drawn);
}

}  // namespace fuseline
