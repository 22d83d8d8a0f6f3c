// Walks the elements that a reduction puts together: for each kept position, the offsets of its reduced elements in
// row-major order. Thread-safety: immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "server/reference/array.h"

namespace fuseline::reference {

class ReducedLoop {
 public:
  // `dims`: the reduced ones, sorted. Offsets are into the array's elements.
  ReducedLoop(const Array& array, const std::vector<int64_t>& dims);

  int64_t kept_count() const { return kept_count_; }
  int64_t reduced_count() const { return reduced_count_; }

  // Calls body(kept position, offset of its first element) in row-major order of the kept dims.
  template <typename Body>
  void ForEachKept(const Body& body) const {
    Walk(kept_, kept_count_, [&](int64_t position, int64_t offset) { body(position, start_ + offset); });
  }
  // Calls body(position among the reduced ones, offset) for the elements of the kept position that starts at `base`.
  template <typename Body>
  void ForEachReduced(int64_t base, const Body& body) const {
    Walk(reduced_, reduced_count_, [&](int64_t position, int64_t offset) { body(position, base + offset); });
  }

 private:
  struct Axis {
    int64_t size = 1;
    int64_t stride = 0;
  };

  template <typename Body>
  static void Walk(const std::vector<Axis>& axes, int64_t count, const Body& body) {
    if (count == 0) return;
    if (axes.empty()) {
      body(0, 0);
      return;
    }
    const Axis inner = axes.back();
    std::vector<int64_t> position(axes.size(), 0);
    int64_t offset = 0, k = 0;
    for (;;) {
      int64_t at = offset;
      for (int64_t j = 0; j < inner.size; ++j, at += inner.stride) body(k++, at);
      size_t d = axes.size() - 1;
      for (;;) {
        if (d == 0) return;
        --d;
        offset += axes[d].stride;
        if (++position[d] < axes[d].size) break;
        offset -= axes[d].stride * axes[d].size;
        position[d] = 0;
      }
    }
  }

  std::vector<Axis> kept_, reduced_;
  int64_t start_ = 0;
  int64_t kept_count_ = 1, reduced_count_ = 1;
};

}  // namespace fuseline::reference
