// Writes arithmetic on graph values as expressions, for importers: `x * 0.5 + y`. The first error sticks and what
// follows does nothing, so that an importer reads as its formula and asks for the status once.
// Pipeline: expressions -> Emitter -> GraphBuilder. Ownership: borrows the builder. Thread-safety: thread-compatible.
// Tested by tests/unit/client/onnx/emitter_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/ir/graph_builder.h"
#include "common/tensor/tensor.h"

namespace fuseline::onnx_import {

class Emitter;
using Ints = std::vector<int64_t>;

// A value of the graph, or nothing after an error: then it is 0-d, its dims are 1 and its dtype is f32.
class Val {
 public:
  Val() = default;
  Val(Emitter* emitter, ValueId id) : emitter_(emitter), id_(id) {}
  bool ok() const { return emitter_ != nullptr && id_ != kNoValue; }
  ValueId id() const { return id_; }
  Emitter* emitter() const { return emitter_; }
  DType dtype() const;
  Shape shape() const;
  int64_t rank() const;
  // Negative: from the end. 1 where there is no such dim.
  int64_t dim(int64_t d) const;
  int64_t count() const;

 private:
  Emitter* emitter_ = nullptr;
  ValueId id_ = kNoValue;
};

// An operand: a value or a number, which takes the dtype of the values beside it.
struct Arg {
  Val value;
  double number = 0;
  bool is_number = false;
  Arg(Val v) : value(v) {}                       // NOLINT(google-explicit-constructor): operands are written as values
  Arg(double n) : number(n), is_number(true) {}  // NOLINT(google-explicit-constructor): or as numbers
};

class Emitter {
 public:
  explicit Emitter(GraphBuilder& builder) : builder_(builder) {}

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // Keeps the first error.
  void Fail(absl::Status status);
  // INVALID_ARGUMENT with this message.
  void Fail(const std::string& message);
  // Forgets the error, for the next node, whose origin is given.
  void Begin(std::string origin);

  const TensorType* type(ValueId id) const;
  GraphBuilder& builder() { return builder_; }

  Val Emit(std::string_view op, const std::vector<Arg>& args, AttrMap attrs = {});
  // For ops with several results: `count` of them, in any case.
  std::vector<Val> EmitMany(std::string_view op, const std::vector<Arg>& args, AttrMap attrs, size_t count);

  Val Constant(const Tensor& tensor);
  Val IntConstant(const std::vector<int64_t>& values, const Shape& shape, DType dtype = DType::kI64);
  Val FloatConstant(const std::vector<double>& values, const Shape& shape, DType dtype = DType::kF32);
  Val Full(DType dtype, const Shape& shape, double value);
  Val Iota(DType dtype, const Shape& shape, int64_t dim);

  // Nothing is added where the type or shape is the wanted one already.
  Val Cast(Val x, DType dtype);
  Val Reshape(Val x, const Shape& shape);
  Val BroadcastTo(Val x, const Shape& shape);
  Val Permute(Val x, const Ints& dims);
  Val Unsqueeze(Val x, int64_t dim);
  Val Squeeze(Val x, const Ints& dims);
  // [start, end) of one dim.
  Val Slice(Val x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
  Val Flip(Val x, int64_t dim);
  Val Concat(const std::vector<Val>& parts, int64_t dim);
  Val Pad(Val x, const Ints& low, const Ints& high, double value);
  Val Select(Val x, const Ints& positions, int64_t dim);  // index_select at positions that are known
  Val Sum(Val x, const Ints& dims, bool keepdim);         // in x's own dtype
  Val Where(Val condition, Arg a, Arg b);
  Val Clamp(Val x, double low, double high);

 private:
  Operand ToOperand(const Arg& arg, DType dtype) const;

  GraphBuilder& builder_;
  absl::Status status_;
  std::string origin_;
};

Val operator+(Val a, Arg b);
Val operator-(Val a, Arg b);
Val operator*(Val a, Arg b);
Val operator/(Val a, Arg b);
Val operator-(Val a);
// One op of one operand.
Val Apply(const char* op, Val x);
Val Apply(const char* op, Val a, Arg b);

}  // namespace fuseline::onnx_import
