#include "server/codegen/generate_kernels.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/codegen/cpu/cpu_emitter.h"
#include "server/codegen/cpu/cpu_ordered_emitter.h"
#include "server/codegen/cuda/cuda_emitter.h"
#include "server/codegen/cuda/cuda_ordered_emitter.h"
#include "server/codegen/kernel_body.h"
#include "server/codegen/plan_memory.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/codegen/write_in_place.h"

namespace fuseline::codegen {
namespace {

using fuser::FusionGroup;
using lowering::LoopProgram;
using lowering::LoopTensor;

constexpr size_t kMaxNameLength = 80;
constexpr char kNumberPlaceholder[] = "FUSELINE_KERNEL_NUMBER";
constexpr size_t kMaxOpsInReport = 64;  // of one kernel; longer lists say how many more there are

class Generator {
 public:
  Generator(const LoopProgram& program, const fuser::FusionPlan& fusion, const Target& target,
            const CompileOptions& options)
      : program_(program),
        fusion_(fusion),
        target_(target),
        options_(options),
        counted_(program.sources.size(), false) {
    for (const lowering::LoopNode& n : program.nodes) {
      if (n.into >= 0) becomes_.emplace(n.into, n.tensor);
    }
  }

  absl::StatusOr<GeneratedKernels> Run() {
    AddSignature();
    FindLastReaders();
    for (const FusionGroup& g : fusion_.groups) FUSELINE_RETURN_IF_ERROR(AddGroup(g));
    PlanMemory(out_.plan);
    FinishReport();
    return std::move(out_);
  }

 private:
  void AddSignature() {
    for (const LoopTensor& t : program_.tensors) {
      if (t.kind != LoopTensor::Kind::kInput) continue;
      PlanTensor p;
      p.dtype = t.dtype;
      p.shape = t.shape;
      p.strides = t.strides;
      out_.plan.inputs.push_back(std::move(p));
    }
    for (lowering::TensorId id : program_.outputs) {
      const LoopTensor& t = program_.tensor(id);
      PlanTensor p;
      p.dtype = t.dtype;
      p.shape = t.shape;
      p.strides = DenseStrides(t.shape);
      out_.plan.outputs.push_back(std::move(p));
    }
  }

  // Bytes from the first to the last element of a strided input.
  static int64_t SpanBytes(const LoopTensor& t) {
    if (t.element_count() == 0) return 0;
    int64_t last = 0;
    for (size_t i = 0; i < t.shape.size(); ++i) last += (t.shape[i] - 1) * t.strides[i];
    return (last + 1) * DTypeSizeBytes(t.dtype);
  }

  int32_t BufferOf(lowering::TensorId id) {
    // A scatter's result lies where what it writes into lay.
    if (const auto it = becomes_.find(id); it != becomes_.end()) id = it->second;
    if (const auto it = buffers_.find(id); it != buffers_.end()) return it->second;
    const LoopTensor& t = program_.tensor(id);
    PlanBuffer b;
    b.size_bytes = t.size_bytes();
    switch (t.kind) {
      case LoopTensor::Kind::kInput:
        b.kind = PlanBuffer::Kind::kInput;
        b.index = t.input;
        b.size_bytes = SpanBytes(t);
        break;
      case LoopTensor::Kind::kConstant:
        b.kind = PlanBuffer::Kind::kConstant;
        b.index = static_cast<int32_t>(out_.plan.constants.size());
        out_.plan.constants.push_back(*t.constant_bytes);
        break;
      case LoopTensor::Kind::kComputed:
        b.kind = t.output >= 0 ? PlanBuffer::Kind::kOutput : PlanBuffer::Kind::kTemporary;
        b.index = t.output >= 0 ? t.output : 0;
        break;
    }
    out_.plan.buffers.push_back(b);
    const int32_t buffer = static_cast<int32_t>(out_.plan.buffers.size() - 1);
    buffers_.emplace(id, buffer);
    return buffer;
  }

  int32_t PartialBuffer(const BodyParam& p) {
    if (const auto it = partials_.find(p.partial); it != partials_.end()) return it->second;
    PlanBuffer b;
    b.kind = PlanBuffer::Kind::kTemporary;
    b.size_bytes = p.element_count * DTypeSizeBytes(p.dtype);
    out_.plan.buffers.push_back(b);
    const int32_t buffer = static_cast<int32_t>(out_.plan.buffers.size() - 1);
    partials_.emplace(p.partial, buffer);
    next_partial_ = std::max(next_partial_, p.partial + 1);
    return buffer;
  }

  // Made for the first kernel that checks an index, so that other plans pay nothing.
  int32_t ChecksBuffer() {
    if (checks_buffer_ >= 0) return checks_buffer_;
    for (const lowering::IndexCheck& check : program_.checks) out_.plan.checks.push_back({check.node, check.extent});
    PlanBuffer b;
    b.kind = PlanBuffer::Kind::kChecks;
    b.size_bytes = ChecksBytes(out_.plan);
    out_.plan.buffers.push_back(b);
    return checks_buffer_ = static_cast<int32_t>(out_.plan.buffers.size() - 1);
  }

  int32_t ParamBuffer(const BodyParam& p) {
    if (p.tensor >= 0) return BufferOf(p.tensor);
    return p.tensor == kChecksParam ? ChecksBuffer() : PartialBuffer(p);
  }

  void FindLastReaders() {
    for (const FusionGroup& g : fusion_.groups) {
      for (lowering::TensorId t : g.loads) last_reader_[t] = &g;
    }
  }

  // Where nothing reads an operand after this group, its memory may hold the result.
  void ReuseOperand(const FusionGroup& group, ScheduledKernel& kernel) {
    const auto is_temporary = [&](lowering::TensorId id) {
      const LoopTensor& t = program_.tensor(id);
      return t.kind == LoopTensor::Kind::kComputed && t.output < 0;
    };
    const auto dies_here = [&](lowering::TensorId id) {
      const auto it = last_reader_.find(id);
      return is_temporary(id) && it != last_reader_.end() && it->second == &group && buffers_.contains(id);
    };
    // What a scatter writes into has the scatter's place.
    const auto may_move = [&](lowering::TensorId id) {
      return is_temporary(id) && !buffers_.contains(id) && !becomes_.contains(id);
    };
    const std::optional<TakenOver> taken = WriteInPlace(kernel, dies_here, may_move);
    if (!taken.has_value()) return;
    const int32_t shared = buffers_.at(taken->operand);  // a copy: the map may move while it grows
    buffers_.emplace(taken->result, shared);
  }

  absl::Status AddGroup(const FusionGroup& group) {
    if (group.row_count() == 0) return absl::OkStatus();  // every tensor it stores is empty
    if (group.ordered >= 0 && ElementCount(group.domain) == 0) return absl::OkStatus();
    FUSELINE_ASSIGN_OR_RETURN(KernelBody body, BuildKernelBody(program_, group));
    FUSELINE_ASSIGN_OR_RETURN(std::vector<ScheduledKernel> kernels,
                              ScheduleKernel(std::move(body), group.split, target_.is_cuda(), next_partial_));
    if (kernels.size() == 1) ReuseOperand(group, kernels[0]);
    for (size_t i = 0; i < kernels.size(); ++i) {
      ScheduledKernel& k = kernels[i];
      PlanStep step;
      step.dims = k.dims;
      step.work_items = k.work_items;
      step.work_grain = k.work_grain;
      for (const BodyParam& p : k.body.params) step.buffers.push_back(ParamBuffer(p));
      if (target_.is_cuda() && k.dims.grid[0] > 2147483647) {
        return Unimplemented(program_.tensor(group.stored[0]).name, "the tensor is too large for one launch");
      }
      step.kernel = AddSource(k, KernelName(group, kernels.size() > 1 ? PartName(k, i == 0) : ""));
      k.name = out_.sources[static_cast<size_t>(step.kernel)].entry;
      absl::StrAppend(&out_.bodies, k.name, ": ", k.description, "\n", PrintKernelBody(k.body));
      out_.plan.steps.push_back(std::move(step));
      AddReport(group, k, i == 0);
    }
    return absl::OkStatus();
  }

  KernelSource Emit(const ScheduledKernel& k) const {
    if (k.kind == ScheduledKernel::Kind::kOrdered) {
      return target_.is_cuda() ? EmitCudaOrderedKernel(k, target_, options_.fast_math)
                               : EmitCpuOrderedKernel(k, target_, options_.fast_math);
    }
    return target_.is_cuda() ? EmitCudaKernel(k, target_, options_.fast_math)
                             : EmitCpuKernel(k, target_, options_.fast_math);
  }

  // Emits the kernel, unless an equal one is there: repeated parts of a graph (a model's layers) share a kernel.
  int32_t AddSource(ScheduledKernel& k, const std::string& stem) {
    k.name = absl::StrCat(stem, "_", kNumberPlaceholder);
    KernelSource source = Emit(k);
    const auto [it, is_new] = same_text_.try_emplace(source.text, static_cast<int32_t>(out_.sources.size()));
    if (!is_new) return it->second;
    const std::string number = absl::StrCat(out_.sources.size());
    source.entry = absl::StrCat(stem, "_", number);
    absl::StrReplaceAll({{kNumberPlaceholder, number}}, &source.text);
    out_.sources.push_back(std::move(source));
    return it->second;
  }

  // Of one of the kernels that a group is split into.
  static const char* PartName(const ScheduledKernel& k, bool first) {
    if (k.kind != ScheduledKernel::Kind::kOrdered) return first ? "_pieces" : "_combine";
    if (k.sort_step == ScheduledKernel::SortStep::kStore) return "_store";
    return first ? "_tiles" : "_merge";
  }

  static const char* KindName(const FusionGroup& group) {
    return group.ordered >= 0 ? "ordered" : (group.is_reduction() ? "reduction" : "pointwise");
  }

  // fuseline_<kind>_<ops>, to which the kernel's number is added
  std::string KernelName(const FusionGroup& group, const char* suffix) {
    std::string name = absl::StrCat("fuseline_", KindName(group));
    std::set<std::string> seen;
    for (lowering::LoopNodeId id : group.nodes) {
      const std::string& label = program_.node(id).label;
      if (!seen.insert(label).second) continue;
      if (name.size() + label.size() > kMaxNameLength) break;
      absl::StrAppend(&name, "_", label);
    }
    return absl::StrCat(name, suffix);
  }

  void AddReport(const FusionGroup& group, const ScheduledKernel& k, bool first) {
    KernelReport r;
    r.name = k.name;
    r.kind = KindName(group);
    r.schedule = k.description;
    std::vector<bool> is_read(k.body.params.size(), false);
    for (const BodyInstr& instr : k.body.instrs) {
      if (instr.kind == BodyInstr::Kind::kLoad) is_read[static_cast<size_t>(instr.param)] = true;
    }
    for (size_t i = 0; i < k.body.params.size(); ++i) {
      const BodyParam& p = k.body.params[i];
      if (p.tensor == kChecksParam) continue;
      const int64_t bytes = p.element_count * DTypeSizeBytes(p.dtype);
      if (p.written) {
        r.tensors_written += 1;
        r.bytes_written += bytes;
      }
      if (!p.written || is_read[i]) {  // both: it is written in place
        r.tensors_read += 1;
        r.bytes_read += bytes;
      }
    }
    if (first) {
      size_t left_out = 0;
      for (lowering::LoopNodeId id : group.nodes) {
        const NodeId source = program_.node(id).source;
        if (source == kNoNode || counted_[static_cast<size_t>(source)]) continue;
        counted_[static_cast<size_t>(source)] = true;
        const lowering::SourceOp& op = program_.sources[static_cast<size_t>(source)];
        if (r.ops.size() < kMaxOpsInReport) {
          r.ops.push_back(absl::StrCat(op.op, " ", op.name));
        } else {
          ++left_out;
        }
        if (op.is_view) continue;
        r.unfused_kernels += 1;
        r.unfused_transfers += op.transfers;
        r.unfused_bytes += op.bytes;
        if (op.makes_intermediate) ++intermediates_before_;
      }
      if (left_out > 0) r.ops.push_back(absl::StrCat("and ", left_out, " more"));
      for (lowering::TensorId t : group.stored) {
        if (program_.tensor(t).output < 0) ++intermediates_after_;
      }
    }
    out_.report.kernels.push_back(std::move(r));
  }

  void FinishReport() {
    out_.report.intermediates_removed = std::max<int64_t>(0, intermediates_before_ - intermediates_after_);
    if (fusion_.refusals.empty()) return;
    std::vector<int32_t> part_counts(program_.sources.size(), 0);
    for (const lowering::LoopNode& n : program_.nodes) {
      if (n.source != kNoNode) ++part_counts[static_cast<size_t>(n.source)];
    }
    for (const fuser::FusionRefusalNote& n : fusion_.refusals) {
      out_.report.refusals.push_back(
          {SourceName(n.producer, part_counts), SourceName(n.consumer, part_counts), n.reason});
    }
  }

  // "%v3", or "%v3 (part of softmax)": the value of the graph that `tensor` is or helps to compute, since names made by
  // lowering mean nothing to the reader of a report. `part_counts`: the loop nodes of each source op.
  std::string SourceName(lowering::TensorId tensor, const std::vector<int32_t>& part_counts) const {
    const lowering::LoopTensor& t = program_.tensor(tensor);
    const NodeId source = t.producer < 0 ? kNoNode : program_.node(t.producer).source;
    if (source == kNoNode) return absl::StrCat("%", t.name);
    const lowering::SourceOp& op = program_.sources[static_cast<size_t>(source)];
    return part_counts[static_cast<size_t>(source)] == 1 ? op.name : absl::StrCat(op.name, " (part of ", op.op, ")");
  }

  const LoopProgram& program_;
  const fuser::FusionPlan& fusion_;
  const Target& target_;
  const CompileOptions& options_;
  GeneratedKernels out_;
  absl::flat_hash_map<lowering::TensorId, int32_t> buffers_;
  absl::flat_hash_map<lowering::TensorId, lowering::TensorId> becomes_;
  absl::flat_hash_map<int32_t, int32_t> partials_;
  absl::flat_hash_map<lowering::TensorId, const FusionGroup*> last_reader_;
  absl::flat_hash_map<std::string, int32_t> same_text_;
  int32_t next_partial_ = 0;
  int32_t checks_buffer_ = -1;
  std::vector<bool> counted_;
  int64_t intermediates_before_ = 0;
  int64_t intermediates_after_ = 0;
};

}  // namespace

absl::StatusOr<GeneratedKernels> GenerateKernels(const LoopProgram& program, const fuser::FusionPlan& plan,
                                                 const Target& target, const CompileOptions& options) {
  return Generator(program, plan, target, options).Run();
}

}  // namespace fuseline::codegen
