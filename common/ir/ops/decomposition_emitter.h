// What decompositions of composites are written with: emits nodes and remembers the first error, so that a
// decomposition reads as a formula. Pipeline: composite's node -> Emitter -> nodes of a GraphBuilder. Errors: those of
// GraphBuilder; after one everything is a no-op, and Done returns it. Thread-safety: thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ir/graph.h"
#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"

namespace fuseline::ops {

class Emitter {
 public:
  Emitter(GraphBuilder& builder, const Node& node) : builder_(builder), node_(node) {}

  ValueId Op(const char* name, std::initializer_list<Operand> operands, AttrMap attrs = {}) {
    const std::vector<ValueId> results = Results(name, operands, std::move(attrs));
    return results.empty() ? kNoValue : results[0];
  }
  std::vector<ValueId> Results(const char* name, std::initializer_list<Operand> operands, AttrMap attrs = {}) {
    if (!status_.ok()) return {};
    auto results = builder_.AddNode(name, std::vector<Operand>(operands), std::move(attrs), "", node_.origin);
    if (!results.ok()) {
      status_ = results.status();
      return {};
    }
    return *std::move(results);
  }

  static Operand V(ValueId id) { return GraphBuilder::Value(id); }
  static Operand N(double number) { return GraphBuilder::Number(number); }
  ValueId Add(ValueId a, ValueId b) { return Op("add", {V(a), V(b)}); }
  ValueId Sub(ValueId a, ValueId b) { return Op("sub", {V(a), V(b)}); }
  ValueId Mul(ValueId a, ValueId b) { return Op("mul", {V(a), V(b)}); }
  ValueId Div(ValueId a, ValueId b) { return Op("div", {V(a), V(b)}); }
  ValueId Unary(const char* name, ValueId a) { return Op(name, {V(a)}); }
  ValueId Reduce(const char* name, ValueId a, const std::vector<int64_t>& dims, bool keepdim) {
    return Op(name, {V(a)}, {{"dims", dims}, {"keepdim", keepdim}});
  }
  ValueId Reshape(ValueId a, const Shape& shape) { return Op("reshape", {V(a)}, {{"shape", shape}}); }
  ValueId Full(const Shape& shape, double value, DType dtype) {
    return Op("full", {}, {{"shape", shape}, {"value", value}, {"dtype", dtype}});
  }

  // f16 and bf16 as f32, with no rounding; other dtypes as they are.
  ValueId Widen(ValueId a) { return ok() && IsHalf(dtype(a)) ? Op("widen", {V(a)}) : a; }
  ValueId Narrow(ValueId a, DType to) { return ok() && IsHalf(to) ? Op("narrow", {V(a)}, {{"dtype", to}}) : a; }

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  DType dtype(ValueId id) const { return builder_.type(id).dtype; }
  Shape shape(ValueId id) const { return builder_.type(id).shape(); }

  absl::StatusOr<std::vector<ValueId>> Done(std::vector<ValueId> results) const {
    if (!status_.ok()) return status_;
    return results;
  }

  double Number(const char* name) const {
    const auto it = node_.attrs.find(name);
    if (it == node_.attrs.end()) return 0;
    if (const auto* i = std::get_if<int64_t>(&it->second)) return static_cast<double>(*i);
    if (const auto* f = std::get_if<double>(&it->second)) return *f;
    return 0;
  }
  int64_t Int(const char* name) const { return static_cast<int64_t>(Number(name)); }
  bool Keepdim() const {
    const auto it = node_.attrs.find("keepdim");
    const bool* keep = it == node_.attrs.end() ? nullptr : std::get_if<bool>(&it->second);
    return keep != nullptr && *keep;
  }
  // The reduced dims of `a`, sorted. The node has been verified, so they are valid.
  std::vector<int64_t> Dims(ValueId a) const {
    const int rank = builder_.type(a).rank();
    if (const auto it = node_.attrs.find("dim"); it != node_.attrs.end()) {
      const auto dim = NormalizeDim(std::get<int64_t>(it->second), rank);
      return {dim.ok() ? *dim : 0};
    }
    const auto it = node_.attrs.find("dims");
    auto dims = NormalizeDims(it == node_.attrs.end() ? nullptr : &std::get<std::vector<int64_t>>(it->second), rank);
    return dims.ok() ? *std::move(dims) : std::vector<int64_t>{};
  }
  double ReducedCount(ValueId a, const std::vector<int64_t>& dims) const {
    const Shape sizes = shape(a);
    double count = 1;
    for (int64_t d : dims) count *= static_cast<double>(sizes[static_cast<size_t>(d)]);
    return count;
  }
  Shape ShapeAfter(ValueId a, const std::vector<int64_t>& dims, bool keepdim) const {
    const Shape sizes = shape(a);
    Shape result;
    for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
      if (!std::binary_search(dims.begin(), dims.end(), d)) {
        result.push_back(sizes[static_cast<size_t>(d)]);
      } else if (keepdim) {
        result.push_back(1);
      }
    }
    return result;
  }
  // A value with keepdim's ones as the node wants it.
  ValueId Kept(ValueId with_ones, ValueId operand, const std::vector<int64_t>& dims) {
    return !ok() || Keepdim() ? with_ones : Reshape(with_ones, ShapeAfter(operand, dims, false));
  }
  ValueId Mean(ValueId a, const std::vector<int64_t>& dims, bool keepdim) {
    if (!ok()) return kNoValue;
    return Op("div", {V(Reduce("sum", a, dims, keepdim)), N(ReducedCount(a, dims))});
  }
  // `parameter` (weight or bias: the sizes of `dims` in their order) as something that broadcasts against `a`.
  ValueId Spread(ValueId parameter, ValueId a, const std::vector<int64_t>& dims) {
    if (!ok()) return kNoValue;
    const Shape sizes = shape(a);
    Shape spread(sizes.size(), 1);
    for (int64_t d : dims) spread[static_cast<size_t>(d)] = sizes[static_cast<size_t>(d)];
    return shape(parameter) == spread ? parameter : Reshape(parameter, spread);
  }
  // y * weight + bias, for the operands that there are.
  ValueId Affine(ValueId y, absl::Span<const ValueId> parameters, const std::vector<int64_t>& dims) {
    if (parameters.size() > 0) y = Mul(y, Spread(Widen(parameters[0]), y, dims));
    if (parameters.size() > 1) y = Add(y, Spread(Widen(parameters[1]), y, dims));
    return y;
  }
  // (a - mean) / sqrt(var + eps)
  ValueId Normalize(ValueId a, ValueId mean, ValueId var) {
    return Mul(Sub(a, mean), Unary("rsqrt", Op("add", {V(var), N(Number("eps"))})));
  }

 private:
  GraphBuilder& builder_;
  const Node& node_;
  absl::Status status_;
};

}  // namespace fuseline::ops
