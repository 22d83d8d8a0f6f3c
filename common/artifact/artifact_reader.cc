#include "common/artifact/artifact_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/artifact/validate_artifact.h"
#include "common/artifact/wire_fields.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

// Field numbers are those of proto/fuseline/v1/artifact.proto. As in protobuf, unknown fields and those of another wire
// type are skipped, and a message that occurs twice is merged.
using Type = WireField::Type;

absl::Status Malformed(std::string_view message) {
  return InvalidArgument(ErrorReason::kDataLoss, "artifact", StrCat("artifact: ", message));
}
absl::Status NoMessage() { return Malformed("bytes are not a message"); }

// Calls `read(field)`, which returns a status, for each field.
template <typename Read>
absl::Status ReadFields(std::string_view message, const Read& read) {
  WireFields fields(message);
  for (WireField field; fields.Next(field);) FUSELINE_RETURN_IF_ERROR(read(field));
  return fields.ok() ? absl::OkStatus() : NoMessage();
}

int64_t Signed(const WireField& field) { return static_cast<int64_t>(field.value); }
int32_t Signed32(const WireField& field) { return static_cast<int32_t>(field.value); }

absl::Status ReadNumbers(const WireField& field, std::vector<int64_t>& values) {
  return AppendVarints(field, values) ? absl::OkStatus() : NoMessage();
}

bool IsNumbers(const WireField& field, uint32_t number) {
  return field.is(number, Type::kVarint) || field.is(number, Type::kBytes);
}

absl::Status ReadResources(std::string_view message, KernelResources& resources) {
  return ReadFields(message, [&](const WireField& field) {
    if (field.type != Type::kVarint) return absl::OkStatus();
    switch (field.number) {
      case 1:
        resources.registers = Signed32(field);
        break;
      case 2:
        resources.static_shared_bytes = Signed(field);
        break;
      case 3:
        resources.spill_store_bytes = Signed(field);
        break;
      case 4:
        resources.spill_load_bytes = Signed(field);
        break;
      case 5:
        resources.stack_bytes = Signed(field);
        break;
      default:
        break;
    }
    return absl::OkStatus();
  });
}

absl::Status ReadKernel(std::string_view message, KernelImage& kernel) {
  int32_t format = 0;
  FUSELINE_RETURN_IF_ERROR(ReadFields(message, [&](const WireField& field) {
    if (field.is(1, Type::kVarint)) format = Signed32(field);
    if (field.is(2, Type::kBytes)) kernel.entry = field.bytes;
    if (field.is(3, Type::kBytes)) kernel.bytes = field.bytes;
    if (field.is(5, Type::kBytes)) return ReadResources(field.bytes, kernel.resources);
    return absl::OkStatus();
  }));
  if (format < 0 || format > static_cast<int32_t>(ImageFormat::kSharedObject))
    return Malformed(StrCat("image format ", format, " is unknown"));
  kernel.format = static_cast<ImageFormat>(format);
  return absl::OkStatus();
}

absl::Status ReadTensor(std::string_view message, PlanTensor& tensor) {
  int32_t dtype = 0;
  tensor.alignment_bytes = 0;
  FUSELINE_RETURN_IF_ERROR(ReadFields(message, [&](const WireField& field) {
    if (field.is(1, Type::kBytes)) tensor.name = field.bytes;
    if (field.is(2, Type::kVarint)) dtype = Signed32(field);
    if (IsNumbers(field, 3)) return ReadNumbers(field, tensor.shape);
    if (IsNumbers(field, 4)) return ReadNumbers(field, tensor.strides);
    if (field.is(5, Type::kVarint)) tensor.alignment_bytes = Signed(field);
    return absl::OkStatus();
  }));
  if (dtype < 0 || dtype >= kDTypeCount) return Malformed(StrCat("dtype ", dtype, " is unknown"));
  tensor.dtype = static_cast<DType>(dtype);
  return absl::OkStatus();
}

absl::Status ReadBuffer(std::string_view message, PlanBuffer& buffer) {
  int32_t kind = 0;
  FUSELINE_RETURN_IF_ERROR(ReadFields(message, [&](const WireField& field) {
    if (field.is(1, Type::kVarint)) kind = Signed32(field);
    if (field.is(2, Type::kVarint)) buffer.index = Signed32(field);
    if (field.is(3, Type::kVarint)) buffer.size_bytes = Signed(field);
    if (field.is(4, Type::kVarint)) buffer.arena_offset_bytes = Signed(field);
    return absl::OkStatus();
  }));
  if (kind < static_cast<int32_t>(PlanBuffer::Kind::kInput) || kind > static_cast<int32_t>(PlanBuffer::Kind::kChecks))
    return Malformed(StrCat("buffer kind ", kind, " is unknown"));
  buffer.kind = static_cast<PlanBuffer::Kind>(kind);
  return absl::OkStatus();
}

absl::Status ReadStep(std::string_view message, PlanStep& step) {
  int32_t kind = 0;
  bool has_dims = false;
  std::vector<int64_t> grid;
  std::vector<int64_t> block;
  step.work_grain = 0;
  FUSELINE_RETURN_IF_ERROR(ReadFields(message, [&](const WireField& field) -> absl::Status {
    if (field.is(1, Type::kVarint)) kind = Signed32(field);
    if (field.is(2, Type::kVarint)) step.kernel = Signed32(field);
    if (field.is(3, Type::kBytes)) {
      has_dims = true;
      return ReadFields(field.bytes, [&](const WireField& dim) {
        if (IsNumbers(dim, 1)) return ReadNumbers(dim, grid);
        if (IsNumbers(dim, 2)) return ReadNumbers(dim, block);
        if (dim.is(3, Type::kVarint)) step.dims.dynamic_shared_bytes = Signed(dim);
        return absl::OkStatus();
      });
    }
    if (field.is(4, Type::kVarint)) step.work_items = Signed(field);
    if (field.is(5, Type::kVarint)) step.work_grain = Signed(field);
    if (IsNumbers(field, 6)) return AppendVarints(field, step.buffers) ? absl::OkStatus() : NoMessage();
    if (IsNumbers(field, 7)) return ReadNumbers(field, step.sizes);
    return absl::OkStatus();
  }));
  if (kind != static_cast<int32_t>(PlanStep::Kind::kLaunch) && kind != static_cast<int32_t>(PlanStep::Kind::kCopy))
    return Malformed(StrCat("step kind ", kind, " is unknown"));
  step.kind = static_cast<PlanStep::Kind>(kind);
  if (has_dims) {
    if (grid.size() != 3 || block.size() != 3) return Malformed("launch dims are not three by three");
    std::copy(grid.begin(), grid.end(), step.dims.grid);
    std::copy(block.begin(), block.end(), step.dims.block);
  }
  return absl::OkStatus();
}

absl::Status ReadCheck(std::string_view message, PlanCheck& check) {
  return ReadFields(message, [&](const WireField& field) {
    if (field.is(1, Type::kBytes)) check.node = field.bytes;
    if (field.is(2, Type::kVarint)) check.extent = Signed(field);
    return absl::OkStatus();
  });
}

absl::Status ReadPlan(std::string_view message, LaunchPlan& plan) {
  return ReadFields(message, [&](const WireField& field) {
    if (field.is(6, Type::kVarint)) plan.arena_bytes = Signed(field);
    if (field.type != Type::kBytes) return absl::OkStatus();
    switch (field.number) {
      case 1:
        return ReadTensor(field.bytes, plan.inputs.emplace_back());
      case 2:
        return ReadTensor(field.bytes, plan.outputs.emplace_back());
      case 3:
        plan.constants.emplace_back(field.bytes);
        return absl::OkStatus();
      case 4:
        return ReadBuffer(field.bytes, plan.buffers.emplace_back());
      case 5:
        return ReadStep(field.bytes, plan.steps.emplace_back());
      case 7:
        return ReadCheck(field.bytes, plan.checks.emplace_back());
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status ReadOptions(std::string_view message, int32_t& numerics, CompileOptions& options) {
  return ReadFields(message, [&](const WireField& field) {
    if (field.is(1, Type::kVarint)) numerics = Signed32(field);
    if (field.is(2, Type::kVarint)) options.fast_math = field.value != 0;
    if (field.is(3, Type::kVarint)) options.allow_tf32 = field.value != 0;
    if (field.is(4, Type::kVarint)) options.fuse = field.value == 0;
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<Artifact> ReadArtifact(std::string_view bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 31;
  if (bytes.size() >= kMaxBytes) return Malformed(StrCat(bytes.size(), " bytes are more than a message can have"));
  Artifact artifact;
  int32_t version = 0;
  int32_t numerics = 0;
  std::string fingerprint;
  std::string target_text;
  FUSELINE_RETURN_IF_ERROR(ReadFields(bytes, [&](const WireField& field) {
    if (field.is(1, Type::kVarint)) version = Signed32(field);
    if (field.is(2, Type::kBytes)) fingerprint = field.bytes;
    if (field.is(3, Type::kBytes)) artifact.canonical_graph = field.bytes;
    if (field.is(4, Type::kBytes)) target_text = field.bytes;
    if (field.is(5, Type::kBytes)) return ReadOptions(field.bytes, numerics, artifact.options);
    if (field.is(6, Type::kBytes)) artifact.compiler_identity = field.bytes;
    if (field.is(7, Type::kVarint)) artifact.least_driver_version = Signed32(field);
    if (field.is(8, Type::kBytes)) return ReadKernel(field.bytes, artifact.kernels.emplace_back());
    if (field.is(9, Type::kBytes)) return ReadPlan(field.bytes, artifact.plan);
    return absl::OkStatus();
  }));
  if (version != kArtifactFormatVersion)
    return Malformed(StrCat("format version ", version, ", this program reads ", kArtifactFormatVersion));
  if (fingerprint.size() != artifact.fingerprint.bytes.size())
    return Malformed(StrCat("fingerprint of ", fingerprint.size(), " bytes"));
  std::copy(fingerprint.begin(), fingerprint.end(), artifact.fingerprint.bytes.begin());
  const absl::StatusOr<Target> target = ParseTarget(target_text);
  if (!target.ok()) return Malformed(std::string(target.status().message()));
  artifact.target = *target;
  if (numerics != static_cast<int32_t>(Numerics::kFused) && numerics != static_cast<int32_t>(Numerics::kEager))
    return Malformed(StrCat("numerics ", numerics, " is unknown"));
  artifact.options.numerics = static_cast<Numerics>(numerics);
  FUSELINE_RETURN_IF_ERROR(ValidateArtifact(artifact));
  return artifact;
}

}  // namespace fuseline
