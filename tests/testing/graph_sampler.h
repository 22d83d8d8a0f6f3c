// The state of one random graph under construction, and the moves that add an op to it.
// Pipeline: RandomSource -> GraphSampler -> Graph, tensors; used by random_graph.cc alone.
// Thread-safety: thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/tensor/tensor.h"
#include "tests/testing/random_source.h"

namespace fuseline::testing {

// The interval that a value's elements lie in, NaN aside; coarse.
struct Interval {
  double low = 0;
  double high = 0;
  bool Within(const Interval& other) const { return low >= other.low && high <= other.high; }
};

class GraphSampler {
 public:
  GraphSampler(uint64_t seed, int64_t max_elements, std::string_view choices = {});

  // Adds one op (and what brings its operands into its domain). Errors: INTERNAL with the op's name.
  absl::Status AddOp(const OpDef& def);
  int op_count() const { return static_cast<int>(builder_.graph().nodes.size()); }
  // Chooses outputs and returns the graph.
  absl::StatusOr<Graph> Finish();
  std::vector<Tensor>& inputs() { return inputs_; }
  RandomSource& random() { return random_; }

 private:
  using Ids = absl::StatusOr<std::vector<ValueId>>;
  using Id = absl::StatusOr<ValueId>;

  // graph_sampler.cc: values.
  Shape RandomShape(int64_t max_elements);
  Shape RelatedShape();
  DType RandomDType();
  absl::StatusOr<ValueId> NewInput(DType dtype, const Shape& shape);
  Tensor RandomTensor(DType dtype, const Shape& shape, Interval* interval);
  TensorType RandomLayout(const TensorType& dense);
  // A value, recent ones preferred; kNoValue where none passes.
  template <typename Passes>
  ValueId FindValue(const Passes& passes) {
    std::vector<ValueId> candidates;
    const ValueId count = static_cast<ValueId>(builder_.graph().values.size());
    for (ValueId id = 0; id < count; ++id) {
      if (passes(id)) candidates.push_back(id);
    }
    if (candidates.empty()) return kNoValue;
    // Half of the picks are among the last few, so that chains grow long.
    const int64_t n = static_cast<int64_t>(candidates.size());
    const int64_t back = random_.Chance(50) ? random_.Below(n < 4 ? n : 4) : random_.Below(n);
    return candidates[static_cast<size_t>(n - 1 - back)];
  }
  Id ValueOf(DType dtype);                           // of any shape; casts or makes one where there is none
  Id ValueOfShape(DType dtype, const Shape& shape);  // exactly
  Id FloatValue();
  ValueId AnyValue();
  // A value of the dtype that broadcasts with `shape` without passing the size limit; kNoValue where there is none.
  ValueId Partner(DType dtype, const Shape& shape);
  bool Fits(const Shape& shape) const { return ElementCount(shape) <= max_elements_; }

  Ids EmitAll(std::string_view op, std::vector<Operand> operands, AttrMap attrs, Interval interval);
  Id Emit(std::string_view op, std::vector<Operand> operands, AttrMap attrs, Interval interval);
  // The value, or the value brought into the interval by other ops.
  Id Into(ValueId value, Interval domain);
  // Into, but now and then the value itself.
  Id MostlyInto(ValueId value, Interval domain);
  // The largest magnitude that operands of the dtype are given.
  static double MagnitudeLimit(DType dtype);

  const TensorType& type(ValueId id) const { return builder_.type(id); }
  Interval& interval(ValueId id) { return intervals_[static_cast<size_t>(id)]; }
  static Operand V(ValueId id) { return GraphBuilder::Value(id); }

  // sampler_pointwise.cc
  absl::Status AddPointwise(const OpDef& def);
  AttrMap PointwiseAttrs(const OpDef& def, DType dtype);
  Operand RandomLiteral(DType dtype, Interval domain, Interval* range);
  // An operand besides the first: of `dtype`, broadcasting with `shape`, which becomes the joint shape.
  absl::StatusOr<Operand> OtherOperand(DType dtype, Interval domain, bool is_integer_divisor, Shape* shape,
                                       Interval* range);
  // sampler_structure.cc
  absl::Status AddCreation(const OpDef& def);
  absl::Status AddView(const OpDef& def);
  absl::Status AddReduction(const OpDef& def);
  absl::Status AddComposite(const OpDef& def);
  std::vector<int64_t> RandomDims(int rank, bool may_be_negative);
  AttrMap RandomReductionAttrs(const OpDef& def, const Shape& shape, int64_t* reduced_count);
  Shape RandomReshape(const Shape& shape);

  // sampler_layout.cc
  absl::Status AddLayout(const OpDef& def);
  absl::Status AddPad(ValueId x);
  absl::Status AddRandomNumbers(const OpDef& def);
  // sampler_movement.cc
  absl::Status AddIndexing(const OpDef& def);
  absl::Status AddOrdered(const OpDef& def);
  // Positions, some of them negative: element i within the extent i % extents.size().
  Id Indices(const Shape& shape, const std::vector<int64_t>& extents);
  Id ValueOfRank(int64_t rank, bool exact, bool numbers);
  // sampler_contraction.cc
  absl::Status AddContraction(const OpDef& def);
  absl::Status AddWindow(const OpDef& def);
  absl::Status AddMixedComposite(const OpDef& def);
  int64_t SmallSize();
  Id Factor(DType dtype, const Shape& shape);
  Id TargetClasses(const Shape& shape, int64_t classes);

  RandomSource random_;
  GraphBuilder builder_;
  int64_t max_elements_;
  Shape base_shape_;
  bool has_special_values_ = false;
  std::vector<Interval> intervals_;  // one for each value
  std::vector<Tensor> inputs_;
};

// The interval of every number of an integer dtype, and [0, 1] for bool.
Interval WholeRange(DType dtype);

}  // namespace fuseline::testing
