#include "client/onnx/emitter.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/type_limits.h"
#include "common/status/error.h"

namespace fuseline::onnx_import {
namespace {

AttrValue NumberAttr(DType dtype, double value) {
  if (IsBool(dtype)) return AttrValue(value != 0);
  if (IsInteger(dtype)) return AttrValue(static_cast<int64_t>(value));
  return AttrValue(value);
}

}  // namespace

DType Val::dtype() const {
  const TensorType* type = ok() ? emitter_->type(id_) : nullptr;
  return type == nullptr ? DType::kF32 : type->dtype;
}

Shape Val::shape() const {
  const TensorType* type = ok() ? emitter_->type(id_) : nullptr;
  return type == nullptr ? Shape() : type->shape();
}

int64_t Val::rank() const {
  const TensorType* type = ok() ? emitter_->type(id_) : nullptr;
  return type == nullptr ? 0 : type->rank();
}

int64_t Val::dim(int64_t d) const {
  const TensorType* type = ok() ? emitter_->type(id_) : nullptr;
  if (type == nullptr) return 1;
  if (d < 0) d += type->rank();
  return d < 0 || d >= type->rank() ? 1 : type->dims[static_cast<size_t>(d)].size;
}

int64_t Val::count() const {
  const TensorType* type = ok() ? emitter_->type(id_) : nullptr;
  return type == nullptr ? 1 : type->element_count();
}

void Emitter::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void Emitter::Fail(const std::string& message) { Fail(InvalidArgument(ErrorReason::kGraphStructure, "", message)); }

void Emitter::Begin(std::string origin) {
  status_ = absl::OkStatus();
  origin_ = std::move(origin);
}

const TensorType* Emitter::type(ValueId id) const {
  if (id < 0 || static_cast<size_t>(id) >= builder_.graph().values.size()) return nullptr;
  return &builder_.type(id);
}

Operand Emitter::ToOperand(const Arg& arg, DType dtype) const {
  if (!arg.is_number) return GraphBuilder::Value(arg.value.id());
  if (IsBool(dtype)) {
    Operand operand;
    operand.literal.kind = Literal::Kind::kBool;
    operand.literal.i = arg.number != 0;
    return operand;
  }
  const bool whole = std::trunc(arg.number) == arg.number && std::abs(arg.number) < 9e15;
  if (IsInteger(dtype) && whole) return GraphBuilder::Integer(static_cast<int64_t>(arg.number));
  return GraphBuilder::Number(arg.number);
}

std::vector<Val> Emitter::EmitMany(std::string_view op, const std::vector<Arg>& args, AttrMap attrs, size_t count) {
  std::vector<Val> none(count);
  if (!ok()) return none;
  DType dtype = DType::kF32;
  for (const Arg& arg : args) {
    if (arg.is_number) continue;
    if (!arg.value.ok()) {
      Fail("an operand is missing");
      return none;
    }
    // The first operand of `where` is a condition; the last value says the type in every op that takes numbers.
    dtype = arg.value.dtype();
  }
  std::vector<Operand> operands;
  operands.reserve(args.size());
  for (const Arg& arg : args) operands.push_back(ToOperand(arg, dtype));
  absl::StatusOr<std::vector<ValueId>> results = builder_.AddNode(op, operands, std::move(attrs), "", origin_);
  if (!results.ok()) {
    Fail(results.status());
    return none;
  }
  std::vector<Val> values;
  for (const ValueId id : *results) values.emplace_back(this, id);
  values.resize(std::max(values.size(), count));
  return values;
}

Val Emitter::Emit(std::string_view op, const std::vector<Arg>& args, AttrMap attrs) {
  return EmitMany(op, args, std::move(attrs), 1)[0];
}

Val Emitter::Constant(const Tensor& tensor) {
  if (!ok()) return {};
  absl::StatusOr<ValueId> id =
      builder_.AddConstant(TensorType::Make(tensor.dtype(), tensor.shape()), std::string(tensor.bytes()));
  if (!id.ok()) {
    Fail(id.status());
    return {};
  }
  return {this, *id};
}

Val Emitter::IntConstant(const std::vector<int64_t>& values, const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return Constant(tensor);
}

Val Emitter::FloatConstant(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  return Constant(tensor);
}

Val Emitter::Full(DType dtype, const Shape& shape, double value) {
  return Emit("full", {}, {{"shape", shape}, {"value", NumberAttr(dtype, value)}, {"dtype", dtype}});
}

Val Emitter::Iota(DType dtype, const Shape& shape, int64_t dim) {
  return Emit("iota", {}, {{"shape", shape}, {"dim", dim}, {"dtype", dtype}});
}

Val Emitter::Cast(Val x, DType dtype) {
  if (!x.ok() || x.dtype() == dtype) return x;
  return Emit("cast", {x}, {{"dtype", dtype}});
}

Val Emitter::Reshape(Val x, const Shape& shape) {
  if (!x.ok() || x.shape() == shape) return x;
  return Emit("reshape", {x}, {{"shape", shape}});
}

Val Emitter::BroadcastTo(Val x, const Shape& shape) {
  if (!x.ok() || x.shape() == shape) return x;
  return Emit("broadcast_to", {x}, {{"shape", shape}});
}

Val Emitter::Permute(Val x, const Ints& dims) {
  bool same = true;
  for (size_t i = 0; i < dims.size(); ++i) same = same && dims[i] == static_cast<int64_t>(i);
  if (!x.ok() || (same && x.rank() == static_cast<int64_t>(dims.size()))) return x;
  return Emit("permute", {x}, {{"dims", dims}});
}

Val Emitter::Unsqueeze(Val x, int64_t dim) { return Emit("unsqueeze", {x}, {{"dim", dim}}); }

Val Emitter::Squeeze(Val x, const Ints& dims) {
  if (dims.empty()) return x;
  return Emit("squeeze", {x}, {{"dims", dims}});
}

Val Emitter::Slice(Val x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  if (start == 0 && step == 1 && end >= x.dim(dim)) return x;
  return Emit("slice", {x}, {{"starts", Ints{start}}, {"ends", Ints{end}}, {"steps", Ints{step}}, {"dims", Ints{dim}}});
}

Val Emitter::Flip(Val x, int64_t dim) { return Emit("flip", {x}, {{"dims", Ints{dim}}}); }

Val Emitter::Concat(const std::vector<Val>& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  return Emit("concat", std::vector<Arg>(parts.begin(), parts.end()), {{"dim", dim}});
}

Val Emitter::Pad(Val x, const Ints& low, const Ints& high, double value) {
  bool nothing = true;
  for (const int64_t n : low) nothing = nothing && n == 0;
  for (const int64_t n : high) nothing = nothing && n == 0;
  if (nothing) return x;
  return Emit("pad", {x}, {{"low", low}, {"high", high}, {"value", NumberAttr(x.dtype(), value)}});
}

Val Emitter::Select(Val x, const Ints& positions, int64_t dim) {
  if (dim < 0) dim += x.rank();
  bool same = static_cast<int64_t>(positions.size()) == x.dim(dim);
  for (size_t i = 0; same && i < positions.size(); ++i) same = positions[i] == static_cast<int64_t>(i);
  if (same) return x;
  return Emit("index_select", {x, IntConstant(positions, {static_cast<int64_t>(positions.size())})}, {{"dim", dim}});
}

Val Emitter::Sum(Val x, const Ints& dims, bool keepdim) {
  AttrMap attrs = {{"dims", dims}, {"keepdim", keepdim}};
  if (IsInteger(x.dtype())) attrs["dtype"] = x.dtype();
  return Emit("sum", {x}, std::move(attrs));
}

Val Emitter::Where(Val condition, Arg a, Arg b) { return Emit("where", {condition, a, b}); }

Val Emitter::Clamp(Val x, double low, double high) {
  return Emit("clamp", {x}, {{"min", NumberAttr(x.dtype(), low)}, {"max", NumberAttr(x.dtype(), high)}});
}

Val Apply(const char* op, Val x) { return x.emitter() == nullptr ? Val() : x.emitter()->Emit(op, {x}); }
Val Apply(const char* op, Val a, Arg b) { return a.emitter() == nullptr ? Val() : a.emitter()->Emit(op, {a, b}); }
Val operator+(Val a, Arg b) { return Apply("add", a, b); }
Val operator-(Val a, Arg b) { return Apply("sub", a, b); }
Val operator*(Val a, Arg b) { return Apply("mul", a, b); }
Val operator/(Val a, Arg b) {
  // ONNX divides integers as C does.
  return Apply(IsInteger(a.dtype()) ? "trunc_divide" : "div", a, b);
}
Val operator-(Val a) { return Apply("neg", a); }

}  // namespace fuseline::onnx_import
