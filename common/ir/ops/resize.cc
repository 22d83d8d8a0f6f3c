// resize: elements between the operand's, after ONNX's operator Resize (opset 19).
// Tested by tests/unit/lowering/lower_resize_test.cc
#include "common/ir/ops/resize.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

// Each element of the result reads 2 or 4 elements along every resized dim: three dims are 64.
constexpr int kMaxInterpolatedDims = 3;

absl::Status CheckChoice(const InferArgs& args, const char* name, const std::vector<std::string>& choices) {
  const std::string value = StringAttr(args.attrs, name);
  for (const std::string& choice : choices) {
    if (value == choice) return absl::OkStatus();
  }
  return TypeError(absl::StrCat("attribute '", name, "' must be one of \"", absl::StrJoin(choices, "\", \""),
                                "\", not \"", value, "\""));
}

Types ResizeRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  const Shape from = x.shape();
  const Shape& sizes = args.Ints("sizes");
  if (sizes.size() != from.size()) {
    return TypeError(absl::StrCat("attribute 'sizes' must have one size for each of the ", from.size(), " dims"));
  }
  FUSELINE_RETURN_IF_ERROR(CheckShape(sizes, args.limits));
  FUSELINE_RETURN_IF_ERROR(CheckChoice(args, "mode", {"nearest", "linear", "cubic"}));
  FUSELINE_RETURN_IF_ERROR(
      CheckChoice(args, "coordinate_transformation_mode",
                  {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}));
  FUSELINE_RETURN_IF_ERROR(
      CheckChoice(args, "nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  const bool nearest = StringAttr(args.attrs, "mode") == "nearest";
  if (!nearest) FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  if (!std::isfinite(args.Number("cubic_coeff_a"))) return TypeError("attribute 'cubic_coeff_a' must be finite");
  const auto scales = args.attrs.find("scales");
  if (scales != args.attrs.end()) {
    const auto& values = std::get<std::vector<double>>(scales->second);
    if (values.size() != from.size()) {
      return TypeError(absl::StrCat("attribute 'scales' must have one number for each of the ", from.size(), " dims"));
    }
    for (const double s : values) {
      // Positions are taken as integers, so they must stay far inside of those: up to 2^40 / 2^-20.
      if (s != 0 && !(s >= 0x1p-20 && s <= 0x1p40)) {
        return TypeError(absl::StrCat("attribute 'scales': ", s, " is not 0 or between 2^-20 and 2^40"));
      }
    }
  }
  int interpolated = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 0 && sizes[d] != 0) return TypeError(absl::StrCat("dim ", d, " is empty, and has nothing to read"));
    if (ResizedDimOf(from, args.attrs, d).is_resized()) ++interpolated;
  }
  if (!nearest && interpolated > kMaxInterpolatedDims) {
    return InvalidArgument(
        ErrorReason::kLimitExceeded, "",
        absl::StrCat(interpolated, " dims are resized; with this mode at most ", kMaxInterpolatedDims, " can be"));
  }
  return std::vector<TensorType>{TensorType::Make(x.dtype, sizes)};
}

}  // namespace

ResizedDim ResizedDimOf(const Shape& from, const AttrMap& attrs, size_t dim) {
  ResizedDim resized;
  resized.from = from[dim];
  resized.to = std::get<std::vector<int64_t>>(attrs.find("sizes")->second)[dim];
  const auto it = attrs.find("scales");
  const double scale = it == attrs.end() ? 0 : std::get<std::vector<double>>(it->second)[dim];
  if (scale * static_cast<double>(resized.from) != static_cast<double>(resized.to)) resized.scale = scale;
  return resized;
}

void AddResizeRow(std::vector<OpDef>& rows) {
  OpDef row;
  row.name = "resize";
  row.kind = OpKind::kLayout;
  row.min_operands = row.max_operands = 1;
  row.infer = ResizeRule;
  row.attrs = {
      {"sizes", AttrType::kIntList, true},
      {"scales", AttrType::kFloatList},
      {"mode", AttrType::kString, false, AttrValue(std::string("nearest"))},
      {"coordinate_transformation_mode", AttrType::kString, false, AttrValue(std::string("half_pixel"))},
      {"nearest_mode", AttrType::kString, false, AttrValue(std::string("round_prefer_floor"))},
      {"cubic_coeff_a", AttrType::kFloat, false, AttrValue(-0.75)},
      {"exclude_outside", AttrType::kBool, false, AttrValue(false)},
  };
  rows.push_back(std::move(row));
}

}  // namespace fuseline::ops
