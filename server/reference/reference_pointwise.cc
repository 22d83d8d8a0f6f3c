// Tested by tests/unit/reference/reference_interpreter_test.cc
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

constexpr int kMaxOperands = 3;

// The result's dims with each operand's stride (0 where it is broadcast), neighbours merged where all operands allow
// it.
struct BroadcastLoop {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides[kMaxOperands];
};

BroadcastLoop MakeLoop(const Shape& result, const std::vector<Array>& operands) {
  BroadcastLoop loop;
  std::vector<std::vector<int64_t>> strides(operands.size());
  for (size_t k = 0; k < operands.size(); ++k) {
    const Shape& shape = operands[k].shape;
    strides[k].assign(result.size(), 0);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != 1) strides[k][result.size() - shape.size() + d] = operands[k].strides[d];
    }
  }
  for (size_t d = 0; d < result.size(); ++d) {
    if (result[d] == 1) continue;
    bool merges = !loop.sizes.empty();
    for (size_t k = 0; merges && k < operands.size(); ++k) merges = loop.strides[k].back() == strides[k][d] * result[d];
    if (merges) {
      loop.sizes.back() *= result[d];
      for (size_t k = 0; k < operands.size(); ++k) loop.strides[k].back() = strides[k][d];
    } else {
      loop.sizes.push_back(result[d]);
      for (size_t k = 0; k < operands.size(); ++k) loop.strides[k].push_back(strides[k][d]);
    }
  }
  if (loop.sizes.empty()) {
    loop.sizes.push_back(1);
    for (size_t k = 0; k < operands.size(); ++k) loop.strides[k].push_back(0);
  }
  return loop;
}

// Calls body(flat result index, operands' offsets) in row-major order.
template <typename Body>
void ForEach(const BroadcastLoop& loop, int64_t count, size_t operands, const Body& body) {
  if (count == 0) return;
  const size_t last = loop.sizes.size() - 1;
  std::vector<int64_t> position(loop.sizes.size(), 0);
  int64_t start[kMaxOperands] = {0, 0, 0};
  int64_t step[kMaxOperands] = {0, 0, 0};
  for (size_t k = 0; k < operands; ++k) step[k] = loop.strides[k][last];
  for (int64_t flat = 0;;) {
    int64_t at[kMaxOperands] = {start[0], start[1], start[2]};
    for (int64_t j = 0; j < loop.sizes[last]; ++j) {
      body(flat++, at);
      for (size_t k = 0; k < operands; ++k) at[k] += step[k];
    }
    size_t d = last;
    for (;;) {
      if (d == 0) return;
      --d;
      for (size_t k = 0; k < operands; ++k) start[k] += loop.strides[k][d];
      if (++position[d] < loop.sizes[d]) break;
      for (size_t k = 0; k < operands; ++k) start[k] -= loop.strides[k][d] * loop.sizes[d];
      position[d] = 0;
    }
  }
}

// The element's bits in `from`, read as `to`.
Array Bitcast(const Array& operand, DType to) {
  const Tensor bits = ToTensor(operand);
  const Tensor result = Tensor::Borrow(to, operand.shape, const_cast<void*>(bits.data()), nullptr);
  return FromTensor(result);
}

// Attributes as a kernel has them: rounded to the dtype that the op computes in.
AttrMap ComputedAttrs(const AttrMap& attrs, DType operand_dtype) {
  AttrMap computed = attrs;
  if (ComputeDType(operand_dtype) != DType::kF32) return computed;
  for (auto& [name, value] : computed) {
    if (double* number = std::get_if<double>(&value)) *number = RoundToDType(DType::kF32, *number);
  }
  return computed;
}

}  // namespace

absl::StatusOr<Array> EvaluatePointwise(const OpContext& context, const std::vector<Array>& given) {
  const Node& node = context.node;
  std::vector<Array> operands = given;
  const bool is_cast = node.op == "cast";
  // These two see the stored value.
  if (is_cast || node.op == "bitcast") operands[0] = Stored(operands[0]);
  const DType to = context.result_types[0].dtype;
  if (node.op == "bitcast") return Bitcast(operands[0], to);

  // The condition of `where` aside, operands are of one dtype.
  const Array& value = operands[node.op == "where" ? 1 : 0];
  const bool by_float = value.is_float();
  if (operands.size() > kMaxOperands ||
      (by_float ? node.def->reference_float == nullptr : node.def->reference_int == nullptr)) {
    return Unimplemented("",
                         absl::StrCat("op '", node.op, "' has no reference for ", std::string(DTypeName(value.dtype))));
  }
  const AttrMap attrs = ComputedAttrs(node.attrs, value.dtype);
  Array result = Array::Make(to, context.result_types[0].shape());
  const BroadcastLoop loop = MakeLoop(result.shape, operands);
  const size_t n = operands.size();
  double f[kMaxOperands] = {0, 0, 0};
  int64_t i[kMaxOperands] = {0, 0, 0};
  ReferenceArgs args;
  args.f = f;
  args.i = i;
  args.operand_dtype = operands[0].dtype;
  args.result_dtype = to;
  args.attrs = &attrs;
  const double* fs[kMaxOperands] = {};
  const int64_t* is[kMaxOperands] = {};
  for (size_t k = 0; k < n; ++k) {
    fs[k] = operands[k].is_float() ? operands[k].f->data() + operands[k].offset : nullptr;
    is[k] = operands[k].is_float() ? nullptr : operands[k].i->data() + operands[k].offset;
  }
  const auto load = [&](const int64_t* at) {
    for (size_t k = 0; k < n; ++k) {
      if (fs[k] != nullptr) {
        f[k] = fs[k][at[k]];
      } else {
        i[k] = is[k][at[k]];
        f[k] = static_cast<double>(i[k]);
      }
    }
  };
  if (by_float) {
    const FloatReference reference = node.def->reference_float;
    if (result.is_float()) {
      double* out = result.f->data();
      // A cast rounds once, from what it sees to what it gives; `narrow` and `widen` do not round to 16 bits in kFused.
      ForEach(loop, result.size(), n, [&](int64_t flat, const int64_t* at) {
        load(at);
        const double exact = reference(args);
        out[flat] = is_cast ? RoundToDType(to, exact) : context.Round(exact);
      });
    } else {
      int64_t* out = result.i->data();
      ForEach(loop, result.size(), n, [&](int64_t flat, const int64_t* at) {
        load(at);
        out[flat] = CastToInteger(to, reference(args));
      });
    }
    return result;
  }
  const IntReference reference = node.def->reference_int;
  if (result.is_float()) {  // a cast
    double* out = result.f->data();
    ForEach(loop, result.size(), n, [&](int64_t flat, const int64_t* at) {
      load(at);
      const int64_t exact = reference(args);
      out[flat] = to == DType::kF32 ? static_cast<double>(static_cast<float>(exact))
                                    : RoundToDType(to, static_cast<double>(exact));
    });
  } else {
    int64_t* out = result.i->data();
    ForEach(loop, result.size(), n, [&](int64_t flat, const int64_t* at) {
      load(at);
      out[flat] = WrapInteger(to, reference(args));
    });
  }
  return result;
}

}  // namespace fuseline::reference
