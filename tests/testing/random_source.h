// A seeded source of random choices for test generators. Counter-based: draw number n of a seed is RandomWord(seed, n),
// integers alone, so that a seed gives the same graph on every machine (std:: distributions differ between libraries).
// A fuzzer gives the first draws itself, as bytes. Thread-safety: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "common/case_file/random_values.h"

namespace fuseline::testing {

class RandomSource {
 public:
  // `choices`, which outlive the source: two bytes for each of the first draws.
  explicit RandomSource(uint64_t seed, std::string_view choices = {}) : seed_(seed), choices_(choices) {}

  uint64_t Next() {
    if (choices_.size() < 2) return RandomWord(seed_, next_++);
    const uint64_t draw = static_cast<uint8_t>(choices_[0]) | static_cast<uint64_t>(static_cast<uint8_t>(choices_[1]))
                                                                  << 8;
    choices_.remove_prefix(2);
    return draw;
  }
  // In [0, n); n > 0. The bias of the modulus does not matter here.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return *(choices.begin() + Below(static_cast<int64_t>(choices.size())));
  }
  template <typename T>
  const T& Pick(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Below(static_cast<int64_t>(choices.size())))];
  }

 private:
  uint64_t seed_;
  std::string_view choices_;  // what is left of them
  uint64_t next_ = 0;
};

}  // namespace fuseline::testing
