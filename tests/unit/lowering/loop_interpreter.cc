#include "tests/unit/lowering/loop_interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::lowering {
namespace {

using Point = std::vector<int64_t>;

Point PointAt(int64_t position, const Shape& shape) {
  Point at(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    at[i] = position % shape[i];
    position /= shape[i];
  }
  return at;
}

int64_t Position(const Point& at, const Shape& shape) {
  int64_t p = 0;
  for (size_t i = 0; i < at.size(); ++i) p = p * shape[i] + at[i];
  return p;
}

// IEEE 754-2019's order: -0.0 below +0.0.
bool Less(double a, double b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

class Interpreter {
 public:
  Interpreter(const LoopProgram& program, const std::vector<Tensor>& inputs)
      : program_(program), tensors_(program.tensors.size()) {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const LoopTensor& tensor = program.tensors[t];
      if (tensor.kind == LoopTensor::Kind::kInput) tensors_[t] = inputs[static_cast<size_t>(tensor.input)];
      if (tensor.kind == LoopTensor::Kind::kConstant) {
        tensors_[t] = *Tensor::FromBytes(tensor.dtype, tensor.shape, *tensor.constant_bytes);
      }
    }
  }

  absl::StatusOr<std::vector<Tensor>> Run() {
    for (const LoopNode& n : program_.nodes) FUSELINE_RETURN_IF_ERROR(RunNode(n));
    std::vector<Tensor> out;
    for (TensorId t : program_.outputs) out.push_back(tensors_[static_cast<size_t>(t)]);
    return out;
  }

 private:
  // The positions that have been computed so far.
  static std::vector<int64_t> Positions(const LoopNode& n, const std::vector<double>& values) {
    std::vector<int64_t> positions;
    for (int32_t v : n.values) {
      if (static_cast<size_t>(v) >= values.size()) break;
      positions.push_back(static_cast<int64_t>(values[static_cast<size_t>(v)]));
    }
    return positions;
  }

  absl::StatusOr<double> Body(const LoopNode& n, const Point& at) const {
    std::vector<double> values;
    for (const ScalarInstr& s : n.body) {
      if (s.op == ScalarOp::kInput) {
        const LoopInput& in = n.inputs[static_cast<size_t>(s.index)];
        const std::vector<int64_t> positions = Positions(n, values);
        if (in.tensor == kIndexValue) {
          values.push_back(static_cast<double>(EvaluateIndex(in.value, at, positions)));
          continue;
        }
        const bool holds = std::all_of(in.guards.begin(), in.guards.end(), [&](const IndexBound& b) {
          const int64_t v = EvaluateIndex(b.value, at, positions);
          return b.low <= v && v < b.high;
        });
        if (in.tensor == kGuardValue || !holds) {  // what is not read shows where it is used
          values.push_back(in.tensor == kGuardValue ? (holds ? 1 : 0) : std::numeric_limits<double>::quiet_NaN());
          continue;
        }
        Point where;
        for (const IndexExpr& e : in.index) where.push_back(EvaluateIndex(e, at, positions));
        values.push_back(
            tensors_[static_cast<size_t>(in.tensor)].GetDouble(Position(where, program_.tensor(in.tensor).shape)));
        continue;
      }
      double args[3] = {0, 0, 0};
      for (int a = 0; a < 3; ++a) {
        if (s.args[a] >= 0) args[a] = values[static_cast<size_t>(s.args[a])];
      }
      FUSELINE_ASSIGN_OR_RETURN(const double v, EvaluateScalar(s, args));
      values.push_back(v);
    }
    return values[static_cast<size_t>(n.result)];
  }

  absl::Status RunNode(const LoopNode& n) {
    const LoopTensor& t = program_.tensor(n.tensor);
    Tensor out = Tensor::Allocate(t.dtype, t.shape);
    const int64_t count = ElementCount(n.domain);
    if (!n.is_reduction()) {
      for (int64_t p = 0; p < count; ++p) {
        FUSELINE_ASSIGN_OR_RETURN(const double v, Body(n, PointAt(p, n.domain)));
        out.SetDouble(p, v);
      }
    } else {
      FUSELINE_RETURN_IF_ERROR(Reduce(n, out));
    }
    tensors_[static_cast<size_t>(n.tensor)] = std::move(out);
    return absl::OkStatus();
  }

  absl::Status Reduce(const LoopNode& n, Tensor& out) const {
    const bool index = n.reduction == ReductionKind::kArgmax || n.reduction == ReductionKind::kArgmin;
    const Shape kept = n.kept_shape();
    const size_t rows = static_cast<size_t>(ElementCount(kept));
    std::vector<double> best(rows, index ? std::numeric_limits<double>::quiet_NaN() : IdentityValue(n.reduction));
    std::vector<int64_t> where(rows, -1);
    for (int64_t p = 0; p < ElementCount(n.domain); ++p) {
      const Point at = PointAt(p, n.domain);
      Point row;
      for (size_t d = 0; d < at.size(); ++d) {
        if (!n.reduced[d]) row.push_back(at[d]);
      }
      const size_t r = static_cast<size_t>(Position(row, kept));
      FUSELINE_ASSIGN_OR_RETURN(const double v, Body(n, at));
      if (!index) {
        best[r] = CombineValues(n.reduction, best[r], v);
      } else if (where[r] < 0 || (n.reduction == ReductionKind::kArgmax ? v > best[r] : v < best[r])) {
        best[r] = v;
        where[r] = EvaluateIndex(n.arg_index, at);
      }
    }
    for (size_t r = 0; r < rows; ++r) {
      double v = index ? static_cast<double>(where[r]) : best[r];
      if (n.round_result != DType::kInvalid) v = RoundToDType(n.round_result, v);
      out.SetDouble(static_cast<int64_t>(r), v);
    }
    return absl::OkStatus();
  }

  const LoopProgram& program_;
  std::vector<Tensor> tensors_;
};

}  // namespace

int64_t EvaluateIndex(const IndexExpr& expr, const std::vector<int64_t>& at, const std::vector<int64_t>& positions) {
  int64_t sum = expr.constant();
  for (const IndexExpr::Term& t : expr.terms()) {
    int64_t value = 0;
    if (t.kind == IndexExpr::Term::Kind::kVar) {
      value = at[static_cast<size_t>(t.var)];
    } else if (t.kind == IndexExpr::Term::Kind::kValue) {
      value = positions[static_cast<size_t>(t.var)];
    } else {
      const int64_t x = EvaluateIndex(*t.operand, at, positions);
      value = t.kind == IndexExpr::Term::Kind::kFloorDiv ? x / t.divisor : x % t.divisor;
    }
    sum += t.coefficient * value;
  }
  return sum;
}

absl::StatusOr<double> EvaluateScalar(const ScalarInstr& s, const double a[3]) {
  double v = 0;
  switch (s.op) {
    case ScalarOp::kConst:
      v = s.constant.AsDouble();
      break;
    case ScalarOp::kAdd:
      v = a[0] + a[1];
      break;
    case ScalarOp::kSub:
      v = a[0] - a[1];
      break;
    case ScalarOp::kMul:
      v = a[0] * a[1];
      break;
    case ScalarOp::kDiv:
      v = a[0] / a[1];
      break;
    case ScalarOp::kNeg:
      v = -a[0];
      break;
    case ScalarOp::kSqrt:
      v = std::sqrt(a[0]);
      break;
    case ScalarOp::kRsqrt:
      v = 1 / std::sqrt(a[0]);
      break;
    case ScalarOp::kMaximum:
      v = Less(a[0], a[1]) ? a[1] : a[0];
      break;
    case ScalarOp::kMinimum:
      v = Less(a[1], a[0]) ? a[1] : a[0];
      break;
    case ScalarOp::kFloorDiv:
      v = std::floor(a[0] / a[1]);
      break;
    case ScalarOp::kAbs:
      v = std::fabs(a[0]);
      break;
    case ScalarOp::kPow:
      v = std::pow(a[0], a[1]);
      break;
    case ScalarOp::kExp:
      v = std::exp(a[0]);
      break;
    case ScalarOp::kEq:
      return a[0] == a[1] ? 1.0 : 0.0;
    case ScalarOp::kGe:
      return a[0] >= a[1] ? 1.0 : 0.0;
    case ScalarOp::kCheckIndex: {
      const double extent = s.constant.AsDouble();
      if (a[0] < -extent || a[0] >= extent) return absl::OutOfRangeError("index");
      v = a[0] < 0 ? a[0] + extent : a[0];
      break;
    }
    case ScalarOp::kFloor:
      v = std::floor(a[0]);
      break;
    case ScalarOp::kCeil:
      v = std::ceil(a[0]);
      break;
    case ScalarOp::kLogicalAnd:
      return a[0] != 0 && a[1] != 0 ? 1.0 : 0.0;
    case ScalarOp::kCast:
      v = IsBool(s.type) ? a[0] != 0 : IsInteger(s.type) ? std::trunc(a[0]) : a[0];
      break;
    case ScalarOp::kRound16:
      v = RoundToDType(s.storage, a[0]);
      break;
    case ScalarOp::kNe:
      return a[0] != a[1] ? 1.0 : 0.0;
    case ScalarOp::kGt:
      return a[0] > a[1] ? 1.0 : 0.0;
    case ScalarOp::kLt:
      return a[0] < a[1] ? 1.0 : 0.0;
    case ScalarOp::kSelect:
      v = a[0] != 0 ? a[1] : a[2];
      break;
    default:
      return Unimplemented(ScalarOpName(s.op), "not known to this interpreter");
  }
  return s.type == DType::kF32 ? static_cast<double>(static_cast<float>(v)) : v;
}

double IdentityValue(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kProd:
    case ReductionKind::kAll:
      return 1;
    case ReductionKind::kAmax:
      return -std::numeric_limits<double>::infinity();
    case ReductionKind::kAmin:
      return std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

double CombineValues(ReductionKind kind, double a, double b) {
  switch (kind) {
    case ReductionKind::kProd:
      return a * b;
    case ReductionKind::kAmax:
      return Less(a, b) ? b : a;
    case ReductionKind::kAmin:
      return Less(b, a) ? b : a;
    case ReductionKind::kAny:
      return a != 0 || b != 0;
    case ReductionKind::kAll:
      return a != 0 && b != 0;
    default:
      return a + b;
  }
}

absl::StatusOr<std::vector<Tensor>> RunLoopProgram(const LoopProgram& program, const std::vector<Tensor>& inputs) {
  return Interpreter(program, inputs).Run();
}

}  // namespace fuseline::lowering
