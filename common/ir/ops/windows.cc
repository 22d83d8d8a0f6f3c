// Pooling: reductions over sliding windows. The last dims are the spatial ones, as many as the kernel has numbers;
// those before them are a batch.
#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/ir/ops/window_geometry.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

constexpr size_t kMaxSpatialDims = 3;

// The spatial sizes for a kernel or an output size of `count` numbers.
absl::StatusOr<Shape> SpatialOf(const InferArgs& args, size_t count, const char* attr) {
  const Shape shape = args.operands[0].shape();
  if (count < 1 || count > kMaxSpatialDims || count > shape.size()) {
    return TypeError(absl::StrCat("attribute '", attr, "' has ", count, " numbers for ", args.operands[0].ToString(),
                                  ": 1 to 3 of its last dims are spatial"));
  }
  return Shape(shape.end() - static_cast<int64_t>(count), shape.end());
}

absl::Status CheckElements(const Shape& shape, const Shape& kernel, const GraphLimits& limits) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, limits));
  int64_t count = 1;
  for (const Shape* sizes : {&shape, &kernel}) {
    for (int64_t size : *sizes) {
      if (size <= 1) continue;
      if (count > (int64_t{1} << 60) / size) {
        return InvalidArgument(ErrorReason::kLimitExceeded, "", "the windows have more elements than the limit 2^60");
      }
      count *= size;
    }
  }
  return absl::OkStatus();
}

Types PoolRule(const InferArgs& args, DTypeSet set) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, set));
  const std::vector<int64_t>& sizes = args.Ints("kernel");
  FUSELINE_ASSIGN_OR_RETURN(const Shape spatial, SpatialOf(args, sizes.size(), "kernel"));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, WindowList(args.attrs, "kernel", sizes.size(), 1, {}));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<WindowDim> window, SlidingWindow(args.attrs, spatial, kernel, kernel));
  Shape shape = x.shape();
  const size_t first = shape.size() - window.size();
  for (size_t i = 0; i < window.size(); ++i) shape[first + i] = window[i].output;
  FUSELINE_RETURN_IF_ERROR(CheckElements(shape, kernel, args.limits));
  return std::vector<TensorType>{TensorType::Make(x.dtype, shape)};
}

Types MaxPoolRule(const InferArgs& args) { return PoolRule(args, DTypeSet::kNumbers); }
Types AvgPoolRule(const InferArgs& args) { return PoolRule(args, DTypeSet::kFloats); }

Types LpPoolRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, PoolRule(args, DTypeSet::kFloats));
  const double p = args.Number("p");
  if (!(p >= 1 && p <= 1024)) return TypeError(absl::StrCat("attribute 'p': ", p, " is not in [1, 1024]"));
  return types;
}

Types AdaptivePoolRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  const std::vector<int64_t>& sizes = args.Ints("output_size");
  FUSELINE_ASSIGN_OR_RETURN(const Shape spatial, SpatialOf(args, sizes.size(), "output_size"));
  FUSELINE_RETURN_IF_ERROR(WindowList(args.attrs, "output_size", sizes.size(), 0, {}).status());
  Shape shape = x.shape();
  const size_t first = shape.size() - sizes.size();
  Shape kernel;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (spatial[i] == 0) return TypeError(absl::StrCat("spatial dim ", i, " of ", x.ToString(), " is empty"));
    if (spatial[i] > kMaxWindowNumber << 11) {
      return InvalidArgument(ErrorReason::kLimitExceeded, "", absl::StrCat("spatial dim ", i, " is above 2^31"));
    }
    shape[first + i] = sizes[i];
    kernel.push_back(sizes[i] == 0 ? 1 : spatial[i] / sizes[i] + 2);
  }
  FUSELINE_RETURN_IF_ERROR(CheckElements(shape, kernel, args.limits));
  return std::vector<TensorType>{TensorType::Make(x.dtype, shape)};
}

void AddRow(std::vector<OpDef>& rows, const char* name, TypeRule infer, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kWindow;
  row.min_operands = row.max_operands = 1;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddWindowRows(std::vector<OpDef>& rows) {
  const AttrSpec kernel = {"kernel", AttrType::kIntList, true};
  const AttrSpec strides = {"strides", AttrType::kIntList};
  const AttrSpec padding = {"padding", AttrType::kIntList};
  const AttrSpec dilation = {"dilation", AttrType::kIntList};
  const AttrSpec ceil_mode = {"ceil_mode", AttrType::kBool, false, AttrValue(false)};
  AddRow(rows, "max_pool", MaxPoolRule, {kernel, strides, padding, dilation, ceil_mode});
  AddRow(
      rows, "avg_pool", AvgPoolRule,
      {kernel, strides, padding, dilation, ceil_mode, {"count_include_pad", AttrType::kBool, false, AttrValue(true)}});
  AddRow(rows, "lp_pool", LpPoolRule,
         {kernel, strides, padding, dilation, ceil_mode, {"p", AttrType::kFloat, false, AttrValue(2.0)}});
  AddRow(rows, "adaptive_avg_pool", AdaptivePoolRule, {{"output_size", AttrType::kIntList, true}});
}

}  // namespace fuseline::ops
