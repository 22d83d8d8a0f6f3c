#include "common/ir/ops/window_geometry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

absl::StatusOr<std::vector<WindowDim>> CommonWindow(const AttrMap& attrs, const Shape& spatial, const Shape& kernel,
                                                    const std::vector<int64_t>& strides) {
  const size_t count = spatial.size();
  const std::vector<int64_t> ones(count, 1);
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> stride, WindowList(attrs, "strides", count, 1, strides));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dilation, WindowList(attrs, "dilation", count, 1, ones));
  const auto padding = attrs.find(std::string_view("padding"));
  const auto* list = padding == attrs.end() ? nullptr : std::get_if<std::vector<int64_t>>(&padding->second);
  const bool both_ends = list != nullptr && list->size() == 2 * count && count > 0;
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> pads, WindowList(attrs, "padding", both_ends ? 2 * count : count,
                                                                        0, std::vector<int64_t>(count, 0)));
  std::vector<WindowDim> dims(count);
  for (size_t i = 0; i < count; ++i) {
    WindowDim& d = dims[i];
    d.input = spatial[i];
    d.kernel = kernel[i];
    d.stride = stride[i];
    d.dilation = dilation[i];
    d.low = pads[i];
    d.high = both_ends ? pads[count + i] : pads[i];
    if (d.kernel < 1) return TypeError(absl::StrCat("the kernel has size 0 in spatial dim ", i));
  }
  return dims;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> WindowList(const AttrMap& attrs, const char* name, size_t count, int64_t least,
                                                const std::vector<int64_t>& absent) {
  const auto it = attrs.find(std::string_view(name));
  const auto* given = it == attrs.end() ? nullptr : std::get_if<std::vector<int64_t>>(&it->second);
  if (given == nullptr) return absent;
  if (given->size() != count && given->size() != 1) {
    return TypeError(absl::StrCat("attribute '", name, "' has ", given->size(), " numbers for ", count, " dims"));
  }
  for (int64_t number : *given) {
    if (number < least || number > kMaxWindowNumber) {
      return TypeError(
          absl::StrCat("attribute '", name, "': ", number, " is not in [", least, ", ", kMaxWindowNumber, "]"));
    }
  }
  return given->size() == count ? *given : std::vector<int64_t>(count, (*given)[0]);
}

absl::StatusOr<std::vector<WindowDim>> SlidingWindow(const AttrMap& attrs, const Shape& spatial, const Shape& kernel,
                                                     const std::vector<int64_t>& strides) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<WindowDim> dims, CommonWindow(attrs, spatial, kernel, strides));
  const auto mode = attrs.find(std::string_view("ceil_mode"));
  const bool* ceil = mode == attrs.end() ? nullptr : std::get_if<bool>(&mode->second);
  for (size_t i = 0; i < dims.size(); ++i) {
    WindowDim& d = dims[i];
    const int64_t padded = d.low + d.input + d.high;
    // Divided, since the product may not fit.
    if (padded < 1 || (padded - 1) / d.dilation < d.kernel - 1) {
      return TypeError(absl::StrCat("the kernel of size ", d.kernel, ", dilation ", d.dilation,
                                    " is larger than spatial dim ", i, " with its padding, ", padded));
    }
    const int64_t steps = padded - d.dilation * (d.kernel - 1) - 1;
    d.output = steps / d.stride + 1;
    if (ceil != nullptr && *ceil && steps % d.stride != 0) {
      // The last window must begin inside the input or the padding before it.
      if (d.output * d.stride < d.input + d.low) ++d.output;
    }
  }
  return dims;
}

absl::StatusOr<std::vector<WindowDim>> TransposedWindow(const AttrMap& attrs, const Shape& spatial,
                                                        const Shape& kernel) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<WindowDim> dims,
                            CommonWindow(attrs, spatial, kernel, std::vector<int64_t>(spatial.size(), 1)));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> extra,
                            WindowList(attrs, "output_padding", dims.size(), 0, std::vector<int64_t>(dims.size(), 0)));
  for (size_t i = 0; i < dims.size(); ++i) {
    WindowDim& d = dims[i];
    if (extra[i] > 0 && extra[i] >= std::max(d.stride, d.dilation)) {
      return TypeError(absl::StrCat("attribute 'output_padding': ", extra[i],
                                    " is not less than the stride or the dilation of spatial dim ", i));
    }
    // Sizes are at most 2^40, the others at most 2^20: neither product nor sum overflows.
    d.output = (d.input - 1) * d.stride - d.low - d.high + d.dilation * (d.kernel - 1) + extra[i] + 1;
    if (d.input < 1 || d.output < 0) {
      return TypeError(absl::StrCat("spatial dim ", i, " of size ", d.input, " gives a result of size ", d.output));
    }
  }
  return dims;
}

}  // namespace fuseline::ops
