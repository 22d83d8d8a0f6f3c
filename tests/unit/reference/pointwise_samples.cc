#include "tests/unit/reference/pointwise_samples.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/status/status_macros.h"
#include "common/tensor/tensor.h"

namespace fuseline {

std::vector<AttrMap> SampleAttrs(const OpDef& def) {
  const std::string name = def.name;
  if (name == "cast" || name == "bitcast" || name == "narrow") {
    std::vector<AttrMap> sets;
    for (int d = 1; d < kDTypeCount; ++d) sets.push_back({{"dtype", static_cast<DType>(d)}});
    return sets;
  }
  if (name == "gelu") return {{{"approximate", std::string("none")}}, {{"approximate", std::string("tanh")}}};
  if (name == "clamp") {
    return {{{"min", int64_t{2}}},
            {{"max", int64_t{3}}},
            {{"min", int64_t{1}}, {"max", int64_t{5}}},
            {{"min", -0.5}, {"max", 0.25}}};
  }
  if (name == "hardtanh") return {{{"min", int64_t{0}}, {"max", int64_t{3}}}, {{"min", -0.5}, {"max", 0.75}}};
  if (name == "threshold") {
    return {{{"threshold", int64_t{1}}, {"value", int64_t{7}}}, {{"threshold", 0.1}, {"value", -2.5}}};
  }
  if (name == "addcmul" || name == "addcdiv") return {{}, {{"value", int64_t{3}}}};
  if (name == "softplus") return {{}, {{"beta", 2.0}, {"threshold", 4.0}}, {{"beta", 0.5}, {"threshold", 200.0}}};
  if (name == "elu" || name == "celu") return {{}, {{"alpha", 0.5}}};
  if (name == "philox") return {{{"word", int64_t{0}}}, {{"word", int64_t{3}}}};
  if (name == "leaky_relu") return {{}, {{"slope", 0.25}}};
  return {{}};
}

absl::StatusOr<Graph> SampleGraph(const OpDef& def, DType dtype, const AttrMap& attrs) {
  GraphBuilder builder("sample");
  std::vector<Operand> operands;
  for (int k = 0; k < def.min_operands; ++k) {
    const DType own = k == 0 && std::string(def.name) == "where" ? DType::kBool : dtype;
    FUSELINE_ASSIGN_OR_RETURN(const ValueId id, builder.AddInput(absl::StrCat("x", k), TensorType::Make(own, {})));
    operands.push_back(GraphBuilder::Value(id));
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, builder.AddNode(def.name, operands, attrs));
  FUSELINE_RETURN_IF_ERROR(builder.AddOutput("y", results[0]));
  return builder.Build();
}

std::vector<double> SampleFloats(DType dtype) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {std::numeric_limits<double>::quiet_NaN(), inf, -inf};
  for (const double v :
       {0.0,  1.0,   0.5,   1.5,   2.0,   2.5, 3.0, 3.5, 6.0,  1e-3, 0.1,  0.9999, 1.0001, 4.2,   10.0,  20.0,  20.5,
        88.0, 100.0, 104.0, 300.0, 720.0, 1e4, 6e4, 1e5, 1e20, 3e38, 1e-8, 1e-20,  1e-40,  1e-45, 1e300, 1e-310}) {
    values.push_back(v);
    values.push_back(-v);
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> near(-8, 8), exponent(-20, 20);
  for (int k = 0; k < 40; ++k) {
    values.push_back(near(random));
    values.push_back(std::copysign(std::exp2(exponent(random)), near(random)));
  }
  for (double& v : values) v = RoundToDType(dtype, v);
  return values;
}

std::vector<int64_t> SampleIntegers(DType dtype) {
  if (IsBool(dtype)) return {0, 1};
  std::vector<int64_t> values = {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, 46341, 65536};
  for (size_t k = 0, n = values.size(); k < n; ++k) values.push_back(-values[k]);
  for (const int64_t v :
       {int64_t{std::numeric_limits<int32_t>::min()}, int64_t{std::numeric_limits<int32_t>::max()},
        std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), int64_t{0x123456789abcdef}}) {
    values.push_back(v);
  }
  Tensor cell = Tensor::Allocate(dtype, {});
  for (int64_t& v : values) {
    cell.SetInt(0, v);
    v = cell.GetInt(0);
  }
  return values;
}

}  // namespace fuseline
