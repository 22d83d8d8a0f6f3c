#include "tests/unit/codegen/body_interpreter.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::codegen {
namespace {

using lowering::EvaluateIndex;
using Point = std::vector<int64_t>;

class BodyInterpreter {
 public:
  BodyInterpreter(const KernelBody& body, const std::vector<Buffer*>& buffers)
      : body_(body), buffers_(buffers), written_(buffers.size()) {}

  absl::Status Run() {
    Point at(body_.extents.size(), 0);
    return ForEach(false, at, [&](Point& row) { return RunRow(row); });
  }

 private:
  // Every point of the row loops (or of the reduced ones, within a row).
  template <typename Visit>
  absl::Status ForEach(bool reduced, Point& at, Visit visit) {
    std::vector<int32_t> vars = reduced ? body_.reduced_vars() : body_.row_vars();
    for (int32_t v : vars) {
      at[static_cast<size_t>(v)] = 0;
      if (body_.extents[static_cast<size_t>(v)] == 0) return absl::OkStatus();
    }
    for (;;) {
      if (!(reduced && OutOfBound(at))) FUSELINE_RETURN_IF_ERROR(visit(at));
      size_t d = vars.size();
      while (d > 0) {
        int64_t& x = at[static_cast<size_t>(vars[d - 1])];
        if (++x < body_.extents[static_cast<size_t>(vars[d - 1])]) break;
        x = 0;
        --d;
      }
      if (d == 0) return absl::OkStatus();
    }
  }

  bool OutOfBound(const Point& at) const {
    return body_.bound &&
           EvaluateIndex(body_.bound->start, at) + at[static_cast<size_t>(body_.bound->var)] >= body_.bound->limit;
  }

  absl::Status RunRow(Point& row) {
    results_.assign(body_.instrs.size(), 0);
    known_.assign(body_.instrs.size(), false);
    for (size_t i = 0; i < body_.instrs.size(); ++i) {
      const BodyInstr& instr = body_.instrs[i];
      if (instr.kind != BodyInstr::Kind::kReduction) continue;
      FUSELINE_RETURN_IF_ERROR(Reduce(i, row));
    }
    for (const BodyStore& s : body_.stores) {
      if (s.full) {
        FUSELINE_RETURN_IF_ERROR(ForEach(true, row, [&](Point& at) { return Store(s, at); }));
      } else {
        FUSELINE_RETURN_IF_ERROR(Store(s, row));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Store(const BodyStore& s, const Point& at) {
    FUSELINE_ASSIGN_OR_RETURN(const double value, Value(s.value, at));
    const BodyParam& p = body_.params[static_cast<size_t>(s.param)];
    const int64_t offset = EvaluateIndex(s.offset, at);
    Buffer& buffer = *buffers_[static_cast<size_t>(s.param)];
    if (offset < 0 || offset >= static_cast<int64_t>(buffer.size()))
      return Internal(StrCat("store outside '", p.name, "'"));
    if (!written_[static_cast<size_t>(s.param)].insert(offset).second)
      return Internal(StrCat("'", p.name, "' is written twice at ", offset));
    buffer[static_cast<size_t>(offset)] = IsFloat(p.dtype) ? RoundToDType(p.dtype, value) : value;
    return absl::OkStatus();
  }

  absl::Status Reduce(size_t id, Point& row) {
    const BodyInstr& instr = body_.instrs[id];
    const BodyReduction& r = body_.reductions[static_cast<size_t>(instr.reduction)];
    double best = r.returns_index() ? 0 : lowering::IdentityValue(r.kind);
    double where = -1;
    FUSELINE_RETURN_IF_ERROR(ForEach(true, row, [&](Point& at) -> absl::Status {
      FUSELINE_ASSIGN_OR_RETURN(const double v, Value(r.value, at));
      if (!r.returns_index()) {
        best = lowering::CombineValues(r.kind, best, v);
        return absl::OkStatus();
      }
      FUSELINE_ASSIGN_OR_RETURN(const double position, Value(r.arg, at));
      const bool better = r.kind == ReductionKind::kArgmax ? v > best : v < best;
      if (where < 0 || better || (v == best && position < where)) {
        best = v;
        where = position;
      }
      return absl::OkStatus();
    }));
    results_[id] = r.returns_index() && instr.scalar.index == 0 ? where : best;
    known_[id] = true;
    return absl::OkStatus();
  }

  absl::StatusOr<double> Value(int32_t id, const Point& at) {
    std::vector<double> values(static_cast<size_t>(id) + 1, 0);
    std::vector<bool> needed(static_cast<size_t>(id) + 1, false);
    needed.back() = true;
    for (size_t i = needed.size(); i-- > 0;) {
      const bool has_args =
          body_.instrs[i].kind == BodyInstr::Kind::kOp || body_.instrs[i].kind == BodyInstr::Kind::kLoad;
      if (!needed[i] || !has_args) continue;
      for (int32_t a : body_.instrs[i].scalar.args) {
        if (a >= static_cast<int32_t>(i)) return Internal(StrCat("s", i, " uses a later instruction"));
        if (a >= 0) needed[static_cast<size_t>(a)] = true;
      }
    }
    for (size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i]) continue;
      const BodyInstr& instr = body_.instrs[i];
      switch (instr.kind) {
        case BodyInstr::Kind::kIndex:
          values[i] = static_cast<double>(EvaluateIndex(instr.offset, at));
          break;
        case BodyInstr::Kind::kReduction:
          if (!known_[i]) return Internal(StrCat("s", i, " is used before its reduction is done"));
          values[i] = results_[i];
          break;
        case BodyInstr::Kind::kGuard:
          values[i] = 1;
          for (const lowering::IndexBound& b : instr.bounds) {
            const int64_t value = EvaluateIndex(b.value, at);
            if (value < b.low || value >= b.high) values[i] = 0;
          }
          break;
        case BodyInstr::Kind::kLoad: {
          if (instr.scalar.args[0] >= 0 && values[static_cast<size_t>(instr.scalar.args[0])] == 0) {
            values[i] = std::nan("");  // nothing is read, and nothing may use it
            break;
          }
          const Buffer& buffer = *buffers_[static_cast<size_t>(instr.param)];
          const int64_t offset = EvaluateIndex(instr.offset, at);
          if (offset < 0 || offset >= static_cast<int64_t>(buffer.size())) {
            return Internal(
                StrCat("load outside '", body_.params[static_cast<size_t>(instr.param)].name, "' at ", offset));
          }
          values[i] = buffer[static_cast<size_t>(offset)];
          break;
        }
        case BodyInstr::Kind::kOp: {
          double args[3] = {0, 0, 0};
          for (int a = 0; a < 3; ++a) {
            if (instr.scalar.args[a] >= 0) args[a] = values[static_cast<size_t>(instr.scalar.args[a])];
          }
          FUSELINE_ASSIGN_OR_RETURN(values[i], lowering::EvaluateScalar(instr.scalar, args));
        }
      }
    }
    return values.back();
  }

  const KernelBody& body_;
  const std::vector<Buffer*>& buffers_;
  std::vector<std::set<int64_t>> written_;
  std::vector<double> results_;  // of reductions, in this row
  std::vector<bool> known_;
};

Buffer ToBuffer(const Tensor& t) {
  Buffer b;
  for (int64_t i = 0; i < t.element_count(); ++i) b.push_back(t.GetDouble(i));
  return b;
}

}  // namespace

absl::Status RunBody(const KernelBody& body, const std::vector<Buffer*>& buffers) {
  if (buffers.size() != body.params.size()) return Internal("one buffer for each parameter");
  return BodyInterpreter(body, buffers).Run();
}

absl::StatusOr<std::vector<Tensor>> RunScheduledPlan(const lowering::LoopProgram& program,
                                                     const fuser::FusionPlan& plan, const Target& target,
                                                     const std::vector<Tensor>& inputs) {
  std::vector<Buffer> tensors(program.tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    const lowering::LoopTensor& tensor = program.tensors[t];
    const size_t count = static_cast<size_t>(tensor.element_count());
    if (tensor.kind == lowering::LoopTensor::Kind::kInput)
      tensors[t] = ToBuffer(inputs[static_cast<size_t>(tensor.input)]);
    if (tensor.kind == lowering::LoopTensor::Kind::kComputed)
      tensors[t].assign(count, std::numeric_limits<double>::quiet_NaN());
    if (tensor.kind == lowering::LoopTensor::Kind::kConstant) {
      FUSELINE_ASSIGN_OR_RETURN(const Tensor constant,
                                Tensor::FromBytes(tensor.dtype, tensor.shape, *tensor.constant_bytes));
      tensors[t] = ToBuffer(constant);
    }
  }
  for (const fuser::FusionGroup& group : plan.groups) {
    if (group.row_count() == 0) continue;
    FUSELINE_ASSIGN_OR_RETURN(KernelBody body, BuildKernelBody(program, group));
    FUSELINE_ASSIGN_OR_RETURN(std::vector<ScheduledKernel> kernels,
                              ScheduleKernel(std::move(body), group.split, target.is_cuda(), 0));
    std::map<int32_t, Buffer> partials;
    for (const ScheduledKernel& k : kernels) {
      std::vector<Buffer*> buffers;
      for (const BodyParam& p : k.body.params) {
        if (p.tensor >= 0) {
          buffers.push_back(&tensors[static_cast<size_t>(p.tensor)]);
          continue;
        }
        Buffer& partial = partials[p.partial];
        if (partial.empty())
          partial.assign(static_cast<size_t>(p.element_count), std::numeric_limits<double>::quiet_NaN());
        buffers.push_back(&partial);
      }
      FUSELINE_RETURN_IF_ERROR(RunBody(k.body, buffers));
    }
  }
  std::vector<Tensor> out;
  for (TensorId id : program.outputs) {
    const lowering::LoopTensor& tensor = program.tensor(id);
    Tensor t = Tensor::Allocate(tensor.dtype, tensor.shape);
    for (int64_t i = 0; i < t.element_count(); ++i)
      t.SetDouble(i, tensors[static_cast<size_t>(id)][static_cast<size_t>(i)]);
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace fuseline::codegen
