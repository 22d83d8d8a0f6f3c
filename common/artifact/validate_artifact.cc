#include "common/artifact/validate_artifact.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

// Limits of the hardware (CUDA's programming guide, "Technical Specifications") and of sense. They bound what a hostile
// artifact can ask for; the device's own limits are checked by its driver.
constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxGridYz = 65535;
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kMaxBlockZ = 64;
constexpr int64_t kMaxSharedBytes = 256 << 10;
constexpr int64_t kMaxBytes = int64_t{1} << 46;
constexpr int64_t kArenaAlignmentBytes = 256;
constexpr int64_t kMaxAlignmentBytes = 4096;
constexpr size_t kMaxRank = 64;
constexpr size_t kMaxEntryLength = 4096;
constexpr size_t kMaxSizes = 256;               // a kernel's parameters take at most 4 KiB
constexpr size_t kMaxChecks = size_t{1} << 24;  // a graph has fewer dims that are indexed

absl::Status Invalid(const std::string& message) {
  return InvalidArgument(ErrorReason::kDataLoss, "artifact", StrCat("artifact: ", message));
}

// a * b for non-negative factors; false where it is over kMaxBytes.
bool Multiply(int64_t a, int64_t b, int64_t& product) {
  return !__builtin_mul_overflow(a, b, &product) && product <= kMaxBytes;
}

// The bytes that a tensor's buffer has: up to and with its last element.
absl::StatusOr<int64_t> ExtentBytes(const PlanTensor& tensor, bool is_output) {
  const std::string where = StrCat(is_output ? "output '" : "input '", tensor.name, "'");
  const int element_bytes = DTypeSizeBytes(tensor.dtype);
  if (element_bytes == 0) return Invalid(StrCat(where, " has no dtype"));
  if (tensor.shape.size() > kMaxRank) return Invalid(StrCat(where, " has rank ", tensor.shape.size()));
  if (tensor.strides.size() != tensor.shape.size()) {
    return Invalid(StrCat(where, " has ", tensor.strides.size(), " strides for ", tensor.shape.size(), " dims"));
  }
  const int64_t alignment = tensor.alignment_bytes;
  if (alignment < 1 || alignment > kMaxAlignmentBytes || (alignment & (alignment - 1)) != 0) {
    return Invalid(StrCat(where, " has alignment ", alignment));
  }
  bool empty = false;
  for (const int64_t size : tensor.shape) {
    if (size < 0) return Invalid(StrCat(where, " has a negative dim"));
    empty = empty || size == 0;
  }
  // Bounds a tensor whose strides are zero too. Zeros count as one, so that no product of the other dims overflows
  // anywhere later.
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) {
    if (!Multiply(elements, std::max<int64_t>(size, 1), elements)) return Invalid(StrCat(where, " is too large"));
  }
  int64_t extent = 1;
  int64_t dense_stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const int64_t size = tensor.shape[i];
    const int64_t stride = tensor.strides[i];
    if (stride < 0) return Invalid(StrCat(where, " has a negative stride"));
    if (is_output && !empty && size != 1 && stride != dense_stride)
      return Invalid(StrCat(where, " is not dense row-major"));
    if (!empty) dense_stride *= size;  // at most `elements`
    // Of a dim of one element and of an empty tensor too: whoever walks over them adds strides as well.
    int64_t reach = 0;
    if (stride > kMaxBytes || !Multiply(std::max<int64_t>(size - 1, 0), stride, reach) || extent + reach > kMaxBytes)
      return Invalid(StrCat(where, " reaches too far"));
    extent += reach;
  }
  if (empty) return 0;
  int64_t bytes = 0;
  if (!Multiply(extent, element_bytes, bytes) || !Multiply(elements, element_bytes, elements)) {
    return Invalid(StrCat(where, " is too large"));
  }
  return bytes;
}

absl::Status ValidateKernel(const KernelImage& kernel, size_t index, const Target& target) {
  const std::string where = StrCat("kernel ", index);
  const bool fits = target.is_cuda() ? kernel.format == ImageFormat::kCubin || kernel.format == ImageFormat::kPtx
                                     : kernel.format == ImageFormat::kSharedObject;
  if (!fits)
    return Invalid(StrCat(where, " has image format ", static_cast<int>(kernel.format), " for ", target.ToString()));
  if (kernel.bytes.empty()) return Invalid(StrCat(where, " is empty"));
  if (kernel.entry.empty() || kernel.entry.size() > kMaxEntryLength)
    return Invalid(StrCat(where, " has no proper entry"));
  // Entries are looked up by name in what is loaded, so only a C identifier may be one.
  for (size_t i = 0; i < kernel.entry.size(); ++i) {
    const char c = kernel.entry[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool digit = c >= '0' && c <= '9' && i > 0;
    if (!letter && !digit) return Invalid(StrCat(where, " has an entry that is no identifier"));
  }
  return absl::OkStatus();
}

absl::Status ValidateBuffer(const LaunchPlan& plan, size_t index, const std::vector<int64_t>& input_bytes,
                            const std::vector<int64_t>& output_bytes) {
  const PlanBuffer& buffer = plan.buffers[index];
  const std::string where = StrCat("buffer ", index);
  if (buffer.size_bytes < 0 || buffer.size_bytes > kMaxBytes)
    return Invalid(StrCat(where, " has size ", buffer.size_bytes));
  const auto check_within = [&](size_t count, const auto& bytes_of) -> absl::Status {
    if (buffer.index < 0 || static_cast<size_t>(buffer.index) >= count)
      return Invalid(StrCat(where, " has index ", buffer.index));
    if (buffer.size_bytes > bytes_of(static_cast<size_t>(buffer.index))) {
      return Invalid(StrCat(where, " has size ", buffer.size_bytes, ", more than what it stands for"));
    }
    return absl::OkStatus();
  };
  switch (buffer.kind) {
    case PlanBuffer::Kind::kInput:
      return check_within(input_bytes.size(), [&](size_t i) { return input_bytes[i]; });
    case PlanBuffer::Kind::kOutput:
      FUSELINE_RETURN_IF_ERROR(check_within(output_bytes.size(), [&](size_t i) { return output_bytes[i]; }));
      // Else the rest of the output would go to the client unwritten.
      if (buffer.size_bytes < output_bytes[static_cast<size_t>(buffer.index)]) {
        return Invalid(StrCat(where, " has size ", buffer.size_bytes, ", less than the output that it stands for"));
      }
      return absl::OkStatus();
    case PlanBuffer::Kind::kConstant:
      return check_within(plan.constants.size(),
                          [&](size_t i) { return static_cast<int64_t>(plan.constants[i].size()); });
    case PlanBuffer::Kind::kTemporary:
      if (buffer.arena_offset_bytes < 0 || buffer.arena_offset_bytes > kMaxBytes ||
          buffer.arena_offset_bytes % kArenaAlignmentBytes != 0) {
        return Invalid(StrCat(where, " has arena offset ", buffer.arena_offset_bytes));
      }
      if (buffer.arena_offset_bytes + buffer.size_bytes > plan.arena_bytes)
        return Invalid(StrCat(where, " reaches outside the arena"));
      return absl::OkStatus();
    case PlanBuffer::Kind::kChecks:
      if (buffer.size_bytes != ChecksBytes(plan)) {
        return Invalid(StrCat(where, " has size ", buffer.size_bytes, " for ", plan.checks.size(), " index checks"));
      }
      return absl::OkStatus();
  }
  return Invalid(StrCat(where, " has no kind"));
}

absl::Status ValidateChecks(const std::vector<PlanCheck>& checks) {
  if (checks.size() > kMaxChecks) return Invalid(StrCat(checks.size(), " index checks"));
  for (size_t i = 0; i < checks.size(); ++i) {
    if (checks[i].extent < 0 || checks[i].node.size() > kMaxEntryLength)
      return Invalid(StrCat("index check ", i, " has no proper node and extent"));
  }
  return absl::OkStatus();
}

absl::Status ValidateDims(const LaunchDims& dims, const std::string& where) {
  for (int i = 0; i < 3; ++i) {
    if (dims.grid[i] < 1 || dims.grid[i] > (i == 0 ? kMaxGridX : kMaxGridYz))
      return Invalid(StrCat(where, " has grid ", dims.grid[i]));
    if (dims.block[i] < 1 || dims.block[i] > (i == 2 ? kMaxBlockZ : kMaxBlockThreads)) {
      return Invalid(StrCat(where, " has block ", dims.block[i]));
    }
  }
  if (dims.block[0] * dims.block[1] * dims.block[2] > kMaxBlockThreads)
    return Invalid(StrCat(where, " has too many threads a block"));
  if (dims.dynamic_shared_bytes < 0 || dims.dynamic_shared_bytes > kMaxSharedBytes) {
    return Invalid(StrCat(where, " has ", dims.dynamic_shared_bytes, " bytes of shared memory"));
  }
  return absl::OkStatus();
}

absl::Status ValidateStep(const Artifact& artifact, size_t index) {
  const LaunchPlan& plan = artifact.plan;
  const PlanStep& step = plan.steps[index];
  const std::string where = StrCat("step ", index);
  for (const int32_t b : step.buffers) {
    if (b < 0 || static_cast<size_t>(b) >= plan.buffers.size()) return Invalid(StrCat(where, " uses buffer ", b));
  }
  if (step.sizes.size() > kMaxSizes) return Invalid(StrCat(where, " has ", step.sizes.size(), " sizes"));
  switch (step.kind) {
    case PlanStep::Kind::kLaunch:
      if (step.kernel < 0 || static_cast<size_t>(step.kernel) >= artifact.kernels.size()) {
        return Invalid(StrCat(where, " launches kernel ", step.kernel));
      }
      if (artifact.target.is_cuda()) return ValidateDims(step.dims, where);
      if (step.work_items < 0 || step.work_grain < 1) {
        return Invalid(StrCat(where, " has ", step.work_items, " work items in grains of ", step.work_grain));
      }
      return absl::OkStatus();
    case PlanStep::Kind::kCopy: {
      if (step.buffers.size() != 2) return Invalid(StrCat(where, " copies between ", step.buffers.size(), " buffers"));
      const PlanBuffer& from = plan.buffers[static_cast<size_t>(step.buffers[0])];
      const PlanBuffer& to = plan.buffers[static_cast<size_t>(step.buffers[1])];
      if (from.size_bytes != to.size_bytes) return Invalid(StrCat(where, " copies between sizes that differ"));
      if (to.kind != PlanBuffer::Kind::kOutput && to.kind != PlanBuffer::Kind::kTemporary) {
        return Invalid(StrCat(where, " copies to what must not be written"));
      }
      return absl::OkStatus();
    }
  }
  return Invalid(StrCat(where, " has no kind"));
}

// Nothing is copied from where nothing was written: that would hand out what an earlier run has left in memory. A
// launch may write all of its buffers, since a plan does not say which.
absl::Status ValidateContents(const LaunchPlan& plan, const std::vector<int64_t>& output_bytes) {
  std::vector<bool> temporary_filled(plan.buffers.size(), false);
  std::vector<bool> output_filled(plan.outputs.size(), false);
  const auto filled = [&](int32_t b) -> std::vector<bool>::reference {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(b)];
    return buffer.kind == PlanBuffer::Kind::kOutput ? output_filled[static_cast<size_t>(buffer.index)]
                                                    : temporary_filled[static_cast<size_t>(b)];
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind == PlanStep::Kind::kLaunch) {
      for (const int32_t b : step.buffers) filled(b) = true;
      continue;
    }
    const PlanBuffer& from = plan.buffers[static_cast<size_t>(step.buffers[0])];
    const bool given = from.kind == PlanBuffer::Kind::kInput || from.kind == PlanBuffer::Kind::kConstant;
    if (!given && !filled(step.buffers[0]) && from.size_bytes > 0)
      return Invalid(StrCat("step ", i, " copies from buffer ", step.buffers[0], ", which no step has written"));
    filled(step.buffers[1]) = true;
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (!output_filled[i] && output_bytes[i] > 0)
      return Invalid(StrCat("no step writes output '", plan.outputs[i].name, "'"));
  }
  return absl::OkStatus();
}

// Temporaries do not overlap in the arena while both are in use: from the first step that names one to the last, both
// included. A sweep over the steps with the live ones sorted by place: O((n + m) log n) for n buffers named m times.
absl::Status ValidateArena(const LaunchPlan& plan) {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<size_t> first(plan.buffers.size(), kNever);
  std::vector<size_t> last(plan.buffers.size(), kNever);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    for (const int32_t b : plan.steps[i].buffers) {
      if (first[static_cast<size_t>(b)] == kNever) first[static_cast<size_t>(b)] = i;
      last[static_cast<size_t>(b)] = i;
    }
  }
  std::map<int64_t, size_t> live;  // offset -> buffer
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    // Not empty, and named here for the first or the last time.
    const auto counts = [&](size_t b, const std::vector<size_t>& when) {
      return plan.buffers[b].kind == PlanBuffer::Kind::kTemporary && plan.buffers[b].size_bytes > 0 && when[b] == i;
    };
    for (const int32_t name : plan.steps[i].buffers) {
      const size_t b = static_cast<size_t>(name);
      if (!counts(b, first)) continue;
      first[b] = kNever;  // a step may name it twice
      const int64_t offset = plan.buffers[b].arena_offset_bytes;
      const auto next = live.lower_bound(offset);
      size_t other = kNever;
      if (next != live.end() && next->first < offset + plan.buffers[b].size_bytes) other = next->second;
      if (next != live.begin()) {
        const auto& [at, before] = *std::prev(next);
        if (at + plan.buffers[before].size_bytes > offset) other = before;
      }
      if (other != kNever) {
        return Invalid(StrCat("temporaries ", std::min(b, other), " and ", std::max(b, other),
                              " overlap in the arena while both are in use, at step ", i));
      }
      live.emplace(offset, b);
    }
    for (const int32_t name : plan.steps[i].buffers) {
      const size_t b = static_cast<size_t>(name);
      if (counts(b, last)) live.erase(plan.buffers[b].arena_offset_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateArtifact(const Artifact& artifact) {
  const LaunchPlan& plan = artifact.plan;
  if (artifact.least_driver_version < 0) return Invalid("least driver version is negative");
  if (plan.arena_bytes < 0 || plan.arena_bytes > kMaxBytes)
    return Invalid(StrCat("arena of ", plan.arena_bytes, " bytes"));
  constexpr size_t kMaxCount = std::numeric_limits<int32_t>::max();  // indices are int32
  if (plan.buffers.size() > kMaxCount || artifact.kernels.size() > kMaxCount)
    return Invalid("too many buffers or kernels");
  for (size_t i = 0; i < artifact.kernels.size(); ++i)
    FUSELINE_RETURN_IF_ERROR(ValidateKernel(artifact.kernels[i], i, artifact.target));
  std::vector<int64_t> input_bytes;
  std::vector<int64_t> output_bytes;
  for (const PlanTensor& tensor : plan.inputs) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, ExtentBytes(tensor, false));
    input_bytes.push_back(bytes);
  }
  for (const PlanTensor& tensor : plan.outputs) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, ExtentBytes(tensor, true));
    output_bytes.push_back(bytes);
  }
  FUSELINE_RETURN_IF_ERROR(ValidateChecks(plan.checks));
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    FUSELINE_RETURN_IF_ERROR(ValidateBuffer(plan, i, input_bytes, output_bytes));
  for (size_t i = 0; i < plan.steps.size(); ++i) FUSELINE_RETURN_IF_ERROR(ValidateStep(artifact, i));
  FUSELINE_RETURN_IF_ERROR(ValidateContents(plan, output_bytes));
  return ValidateArena(plan);
}

}  // namespace fuseline
