#include "server/reference/reduced_loop.h"

#include <algorithm>

namespace fuseline::reference {

ReducedLoop::ReducedLoop(const Array& array, const std::vector<int64_t>& dims) : start_(array.offset) {
  const Shape& shape = array.shape;
  const Shape& strides = array.strides;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool is_reduced = std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(d));
    (is_reduced ? reduced_count_ : kept_count_) *= shape[d];
    std::vector<Axis>& axes = is_reduced ? reduced_ : kept_;
    // Neighbours that are contiguous with each other become one axis.
    if (!axes.empty() && axes.back().stride == strides[d] * shape[d]) {
      axes.back() = {axes.back().size * shape[d], strides[d]};
    } else {
      axes.push_back({shape[d], strides[d]});
    }
  }
}

}  // namespace fuseline::reference
