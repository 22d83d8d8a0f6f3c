#include "common/artifact/codec/artifact_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/artifact.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace fuseline {
namespace {

// The enums' numbers are the same on both sides, so that they can be cast.
static_assert(static_cast<int>(ImageFormat::kSharedObject) == v1::IMAGE_FORMAT_SHARED_OBJECT);
static_assert(static_cast<int>(PlanBuffer::Kind::kChecks) == v1::PlanBuffer::KIND_CHECKS);
static_assert(static_cast<int>(PlanStep::Kind::kCopy) == v1::PlanStep::KIND_COPY);
static_assert(static_cast<int>(Numerics::kEager) == v1::NUMERICS_EAGER);
static_assert(static_cast<int>(DType::kBool) == v1::DATA_TYPE_BOOL);

absl::Status Malformed(const std::string& message) {
  return InvalidArgument(ErrorReason::kDataLoss, "artifact", absl::StrCat("artifact: ", message));
}

// --- Encoding ---

void KernelToProto(const KernelImage& kernel, v1::KernelImage* proto) {
  proto->set_format(static_cast<v1::ImageFormat>(kernel.format));
  proto->set_entry(kernel.entry);
  proto->set_image(kernel.bytes);
  proto->set_source(kernel.source);
  v1::KernelResources* resources = proto->mutable_resources();
  resources->set_registers_per_thread(kernel.resources.registers);
  resources->set_static_shared_bytes(kernel.resources.static_shared_bytes);
  resources->set_spill_store_bytes(kernel.resources.spill_store_bytes);
  resources->set_spill_load_bytes(kernel.resources.spill_load_bytes);
  resources->set_stack_bytes(kernel.resources.stack_bytes);
}

void TensorToProto(const PlanTensor& tensor, v1::PlanTensor* proto) {
  proto->set_name(tensor.name);
  proto->set_dtype(static_cast<v1::DataType>(tensor.dtype));
  proto->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  proto->mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
  proto->set_alignment_bytes(tensor.alignment_bytes);
}

void StepToProto(const PlanStep& step, v1::PlanStep* proto) {
  proto->set_kind(static_cast<v1::PlanStep::Kind>(step.kind));
  proto->set_kernel(step.kernel);
  v1::LaunchDims* dims = proto->mutable_dims();
  for (const int64_t n : step.dims.grid) dims->add_grid(n);
  for (const int64_t n : step.dims.block) dims->add_block(n);
  dims->set_dynamic_shared_bytes(step.dims.dynamic_shared_bytes);
  proto->set_work_item_count(step.work_items);
  proto->set_work_grain_count(step.work_grain);
  proto->mutable_buffers()->Add(step.buffers.begin(), step.buffers.end());
  proto->mutable_sizes()->Add(step.sizes.begin(), step.sizes.end());
}

void PlanToProto(const LaunchPlan& plan, v1::LaunchPlan* proto) {
  for (const PlanTensor& tensor : plan.inputs) TensorToProto(tensor, proto->add_inputs());
  for (const PlanTensor& tensor : plan.outputs) TensorToProto(tensor, proto->add_outputs());
  for (const std::string& bytes : plan.constants) proto->add_constants(bytes);
  for (const PlanBuffer& buffer : plan.buffers) {
    v1::PlanBuffer* out = proto->add_buffers();
    out->set_kind(static_cast<v1::PlanBuffer::Kind>(buffer.kind));
    out->set_index(buffer.index);
    out->set_size_bytes(buffer.size_bytes);
    out->set_arena_offset_bytes(buffer.arena_offset_bytes);
  }
  for (const PlanStep& step : plan.steps) StepToProto(step, proto->add_steps());
  proto->set_arena_bytes(plan.arena_bytes);
  for (const PlanCheck& check : plan.checks) {
    v1::PlanCheck* out = proto->add_checks();
    out->set_node(check.node);
    out->set_extent(check.extent);
  }
}

void OptionsToProto(const CompileOptions& options, v1::CompileOptions* proto) {
  proto->set_numerics(static_cast<v1::Numerics>(options.numerics));
  proto->set_fast_math(options.fast_math);
  proto->set_allow_tf32(options.allow_tf32);
  proto->set_disable_fusion(!options.fuse);
}

// --- Decoding: shape of the message only; ValidateArtifact checks the values ---

absl::StatusOr<KernelImage> KernelFromProto(const v1::KernelImage& proto) {
  if (!v1::ImageFormat_IsValid(proto.format()))
    return Malformed(absl::StrCat("image format ", static_cast<int>(proto.format()), " is unknown"));
  KernelImage kernel;
  kernel.format = static_cast<ImageFormat>(proto.format());
  kernel.entry = proto.entry();
  kernel.bytes = proto.image();
  kernel.source = proto.source();
  kernel.resources.registers = proto.resources().registers_per_thread();
  kernel.resources.static_shared_bytes = proto.resources().static_shared_bytes();
  kernel.resources.spill_store_bytes = proto.resources().spill_store_bytes();
  kernel.resources.spill_load_bytes = proto.resources().spill_load_bytes();
  kernel.resources.stack_bytes = proto.resources().stack_bytes();
  return kernel;
}

absl::StatusOr<PlanTensor> TensorFromProto(const v1::PlanTensor& proto) {
  // Checked here, since the enum in memory has fewer values than the message's.
  if (!v1::DataType_IsValid(proto.dtype()))
    return Malformed(absl::StrCat("dtype ", static_cast<int>(proto.dtype()), " is unknown"));
  PlanTensor tensor;
  tensor.name = proto.name();
  tensor.dtype = static_cast<DType>(proto.dtype());
  tensor.shape.assign(proto.shape().begin(), proto.shape().end());
  tensor.strides.assign(proto.strides().begin(), proto.strides().end());
  tensor.alignment_bytes = proto.alignment_bytes();
  return tensor;
}

absl::StatusOr<PlanStep> StepFromProto(const v1::PlanStep& proto) {
  if (proto.kind() == v1::PlanStep::KIND_UNSPECIFIED || !v1::PlanStep::Kind_IsValid(proto.kind())) {
    return Malformed(absl::StrCat("step kind ", static_cast<int>(proto.kind()), " is unknown"));
  }
  PlanStep step;
  step.kind = static_cast<PlanStep::Kind>(proto.kind());
  step.kernel = proto.kernel();
  if (proto.has_dims()) {
    if (proto.dims().grid_size() != 3 || proto.dims().block_size() != 3)
      return Malformed("launch dims are not three by three");
    std::copy(proto.dims().grid().begin(), proto.dims().grid().end(), step.dims.grid);
    std::copy(proto.dims().block().begin(), proto.dims().block().end(), step.dims.block);
    step.dims.dynamic_shared_bytes = proto.dims().dynamic_shared_bytes();
  }
  step.work_items = proto.work_item_count();
  step.work_grain = proto.work_grain_count();
  step.buffers.assign(proto.buffers().begin(), proto.buffers().end());
  step.sizes.assign(proto.sizes().begin(), proto.sizes().end());
  return step;
}

absl::StatusOr<LaunchPlan> PlanFromProto(const v1::LaunchPlan& proto) {
  LaunchPlan plan;
  for (const v1::PlanTensor& tensor : proto.inputs()) {
    FUSELINE_ASSIGN_OR_RETURN(PlanTensor decoded, TensorFromProto(tensor));
    plan.inputs.push_back(std::move(decoded));
  }
  for (const v1::PlanTensor& tensor : proto.outputs()) {
    FUSELINE_ASSIGN_OR_RETURN(PlanTensor decoded, TensorFromProto(tensor));
    plan.outputs.push_back(std::move(decoded));
  }
  plan.constants.assign(proto.constants().begin(), proto.constants().end());
  for (const v1::PlanBuffer& buffer : proto.buffers()) {
    if (buffer.kind() == v1::PlanBuffer::KIND_UNSPECIFIED || !v1::PlanBuffer::Kind_IsValid(buffer.kind())) {
      return Malformed(absl::StrCat("buffer kind ", static_cast<int>(buffer.kind()), " is unknown"));
    }
    PlanBuffer out;
    out.kind = static_cast<PlanBuffer::Kind>(buffer.kind());
    out.index = buffer.index();
    out.size_bytes = buffer.size_bytes();
    out.arena_offset_bytes = buffer.arena_offset_bytes();
    plan.buffers.push_back(out);
  }
  for (const v1::PlanStep& step : proto.steps()) {
    FUSELINE_ASSIGN_OR_RETURN(PlanStep decoded, StepFromProto(step));
    plan.steps.push_back(std::move(decoded));
  }
  plan.arena_bytes = proto.arena_bytes();
  for (const v1::PlanCheck& check : proto.checks()) plan.checks.push_back({check.node(), check.extent()});
  return plan;
}

absl::StatusOr<CompileOptions> OptionsFromProto(const v1::CompileOptions& proto) {
  CompileOptions options;
  switch (proto.numerics()) {
    case v1::NUMERICS_FUSED:
      options.numerics = Numerics::kFused;
      break;
    case v1::NUMERICS_EAGER:
      options.numerics = Numerics::kEager;
      break;
    default:
      return Malformed(absl::StrCat("numerics ", static_cast<int>(proto.numerics()), " is unknown"));
  }
  options.fast_math = proto.fast_math();
  options.allow_tf32 = proto.allow_tf32();
  options.fuse = !proto.disable_fusion();
  return options;
}

}  // namespace

void ReportToProto(const ArtifactReport& report, v1::Report* proto) {
  proto->Clear();
  for (const KernelReport& kernel : report.kernels) {
    v1::KernelReport* out = proto->add_kernels();
    out->set_name(kernel.name);
    out->set_kind(kernel.kind);
    out->set_schedule(kernel.schedule);
    for (const std::string& op : kernel.ops) out->add_ops(op);
    out->set_tensors_read_count(kernel.tensors_read);
    out->set_tensors_written_count(kernel.tensors_written);
    out->set_read_bytes(kernel.bytes_read);
    out->set_written_bytes(kernel.bytes_written);
    out->set_unfused_kernel_count(kernel.unfused_kernels);
    out->set_unfused_transfer_count(kernel.unfused_transfers);
    out->set_unfused_bytes(kernel.unfused_bytes);
  }
  for (const FusionRefusal& refusal : report.refusals) {
    v1::FusionRefusal* out = proto->add_refusals();
    out->set_producer(refusal.producer);
    out->set_consumer(refusal.consumer);
    out->set_reason(refusal.reason);
  }
  proto->set_intermediates_removed_count(report.intermediates_removed);
  for (const auto& [stage, micros] : report.stage_micros) (*proto->mutable_stage_micros())[stage] = micros;
}

ArtifactReport ReportFromProto(const v1::Report& proto) {
  ArtifactReport report;
  for (const v1::KernelReport& kernel : proto.kernels()) {
    KernelReport out;
    out.name = kernel.name();
    out.kind = kernel.kind();
    out.schedule = kernel.schedule();
    out.ops.assign(kernel.ops().begin(), kernel.ops().end());
    out.tensors_read = kernel.tensors_read_count();
    out.tensors_written = kernel.tensors_written_count();
    out.bytes_read = kernel.read_bytes();
    out.bytes_written = kernel.written_bytes();
    out.unfused_kernels = kernel.unfused_kernel_count();
    out.unfused_transfers = kernel.unfused_transfer_count();
    out.unfused_bytes = kernel.unfused_bytes();
    report.kernels.push_back(std::move(out));
  }
  for (const v1::FusionRefusal& refusal : proto.refusals()) {
    report.refusals.push_back({refusal.producer(), refusal.consumer(), refusal.reason()});
  }
  report.intermediates_removed = proto.intermediates_removed_count();
  for (const auto& [stage, micros] : proto.stage_micros()) report.stage_micros[stage] = micros;
  return report;
}

void ArtifactToProto(const Artifact& artifact, v1::Artifact* proto) {
  proto->Clear();
  proto->set_format_version(kArtifactFormatVersion);
  proto->set_fingerprint(artifact.fingerprint.bytes.data(), artifact.fingerprint.bytes.size());
  proto->set_canonical_graph(artifact.canonical_graph);
  proto->set_target(artifact.target.ToString());
  OptionsToProto(artifact.options, proto->mutable_options());
  proto->set_compiler_identity(artifact.compiler_identity);
  proto->set_least_driver_version(artifact.least_driver_version);
  for (const KernelImage& kernel : artifact.kernels) KernelToProto(kernel, proto->add_kernels());
  PlanToProto(artifact.plan, proto->mutable_plan());
  ReportToProto(artifact.report, proto->mutable_report());
}

absl::StatusOr<Artifact> ArtifactFromProto(const v1::Artifact& proto) {
  if (proto.format_version() != kArtifactFormatVersion) {
    return Malformed(
        absl::StrCat("format version ", proto.format_version(), ", this program reads ", kArtifactFormatVersion));
  }
  Artifact artifact;
  if (proto.fingerprint().size() != artifact.fingerprint.bytes.size()) {
    return Malformed(absl::StrCat("fingerprint of ", proto.fingerprint().size(), " bytes"));
  }
  std::copy(proto.fingerprint().begin(), proto.fingerprint().end(), artifact.fingerprint.bytes.begin());
  artifact.canonical_graph = proto.canonical_graph();
  const absl::StatusOr<Target> target = ParseTarget(proto.target());
  if (!target.ok()) return Malformed(std::string(target.status().message()));
  artifact.target = *target;
  FUSELINE_ASSIGN_OR_RETURN(artifact.options, OptionsFromProto(proto.options()));
  artifact.compiler_identity = proto.compiler_identity();
  artifact.least_driver_version = proto.least_driver_version();
  for (const v1::KernelImage& kernel : proto.kernels()) {
    FUSELINE_ASSIGN_OR_RETURN(KernelImage decoded, KernelFromProto(kernel));
    artifact.kernels.push_back(std::move(decoded));
  }
  FUSELINE_ASSIGN_OR_RETURN(artifact.plan, PlanFromProto(proto.plan()));
  artifact.report = ReportFromProto(proto.report());
  FUSELINE_RETURN_IF_ERROR(ValidateArtifact(artifact));
  return artifact;
}

std::string SerializeArtifact(const Artifact& artifact) {
  v1::Artifact proto;
  ArtifactToProto(artifact, &proto);
  std::string bytes;
  {
    // Maps in the order of their keys, so that equal artifacts have equal digests. The streams write their tail when
    // they are destroyed.
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    proto.SerializeToCodedStream(&coded);
  }
  return bytes;
}

absl::StatusOr<Artifact> DeserializeArtifact(std::string_view bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 31;
  if (bytes.size() >= kMaxBytes)
    return Malformed(absl::StrCat(bytes.size(), " bytes are more than a message can have"));
  v1::Artifact proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Malformed("bytes are not a message");
  return ArtifactFromProto(proto);
}

}  // namespace fuseline
