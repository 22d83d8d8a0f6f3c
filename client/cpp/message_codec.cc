#include "client/cpp/message_codec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/stream/pooled_tensor.h"

namespace fuseline::client {
namespace {

std::string OutcomeName(v1::CacheOutcome outcome) {
  switch (outcome) {
    case v1::CACHE_OUTCOME_MISS:
      return "miss";
    case v1::CACHE_OUTCOME_MEMORY_HIT:
      return "memory-hit";
    case v1::CACHE_OUTCOME_DISK_HIT:
      return "disk-hit";
    case v1::CACHE_OUTCOME_JOINED:
      return "joined";
    case v1::CACHE_OUTCOME_SHARED_HIT:
      return "shared-hit";
    default:
      return "unknown";
  }
}

KernelReport KernelReportFromProto(const v1::KernelReport& proto) {
  KernelReport kernel;
  kernel.name = proto.name();
  kernel.kind = proto.kind();
  kernel.schedule = proto.schedule();
  kernel.ops.assign(proto.ops().begin(), proto.ops().end());
  kernel.tensors_read = proto.tensors_read_count();
  kernel.tensors_written = proto.tensors_written_count();
  kernel.bytes_read = proto.read_bytes();
  kernel.bytes_written = proto.written_bytes();
  kernel.unfused_kernels = proto.unfused_kernel_count();
  kernel.unfused_transfers = proto.unfused_transfer_count();
  kernel.unfused_bytes = proto.unfused_bytes();
  return kernel;
}

}  // namespace

void SpecFieldsToProto(const CompileSpec& spec, v1::CompileSpec* proto) {
  for (const auto& [name, size] : spec.symbols) (*proto->mutable_symbol_sizes())[name] = size;
  if (spec.target.has_value()) proto->set_target(spec.target->ToString());
  v1::CompileOptions* options = proto->mutable_options();
  options->set_numerics(spec.options.numerics == Numerics::kEager ? v1::NUMERICS_EAGER : v1::NUMERICS_FUSED);
  options->set_fast_math(spec.options.fast_math);
  options->set_allow_tf32(spec.options.allow_tf32);
  options->set_disable_fusion(!spec.options.fuse);
  proto->set_bypass_cache(spec.bypass_cache);
}

void TensorToProto(const Tensor& tensor, v1::Tensor* proto) {
  // The two enums share their numbers.
  proto->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  for (const int64_t size : tensor.shape()) proto->add_shape(size);
  proto->set_data(tensor.data(), static_cast<size_t>(tensor.size_bytes()));
}

namespace {

struct CheckedType {
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t size_bytes = 0;
};

// Of a v1::Tensor or v1::KeptTensor.
template <typename Proto>
absl::StatusOr<CheckedType> TypeFromProto(const Proto& proto) {
  if (proto.dtype() <= v1::DATA_TYPE_UNSPECIFIED || proto.dtype() >= kDTypeCount)
    return Internal("the server sent a tensor of an unknown dtype");
  CheckedType type{static_cast<DType>(proto.dtype()), Shape(proto.shape().begin(), proto.shape().end())};
  const bool empty = std::find(type.shape.begin(), type.shape.end(), 0) != type.shape.end();
  int64_t bytes = DTypeSizeBytes(type.dtype);
  for (const int64_t size : type.shape) {
    if (size < 0) return Internal("the server sent a tensor with a negative size");
    // Zeros count as one, so that no product of the other dims overflows anywhere later.
    if (bytes > std::numeric_limits<int64_t>::max() / std::max<int64_t>(size, 1))
      return Internal("the server sent a tensor with an impossible shape");
    bytes *= std::max<int64_t>(size, 1);
  }
  type.size_bytes = empty ? 0 : bytes;
  return type;
}

}  // namespace

absl::StatusOr<Tensor> TensorFromProto(const v1::Tensor& proto) {
  FUSELINE_ASSIGN_OR_RETURN(CheckedType type, TypeFromProto(proto));
  if (type.size_bytes != static_cast<int64_t>(proto.data().size())) {
    return Internal(absl::StrCat("the server sent a tensor of ", proto.data().size(), " bytes where its shape has ",
                                 type.size_bytes));
  }
  return Tensor::FromBytes(type.dtype, std::move(type.shape), proto.data());
}

absl::StatusOr<Tensor> AllocateFromProto(const v1::Tensor& proto, launch::BlockPool& pool) {
  FUSELINE_ASSIGN_OR_RETURN(CheckedType type, TypeFromProto(proto));
  return AllocatePooled(pool, type.dtype, std::move(type.shape));
}

absl::StatusOr<KeptTensor> KeptTensorFromProto(const v1::KeptTensor& proto) {
  FUSELINE_ASSIGN_OR_RETURN(CheckedType type, TypeFromProto(proto));
  KeptTensor tensor;
  tensor.handle = proto.handle();
  tensor.dtype = type.dtype;
  tensor.shape = std::move(type.shape);
  tensor.size_bytes = proto.size_bytes();
  tensor.lease = DurationFromProto(proto.lease());
  tensor.remaining = DurationFromProto(proto.remaining());
  tensor.name = proto.name();
  return tensor;
}

absl::Duration DurationFromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

void DurationToProto(absl::Duration duration, google::protobuf::Duration* proto) {
  absl::Duration rest;
  proto->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

absl::StatusOr<CompileSummary> SummaryFromProto(const v1::CompileSummary& proto) {
  CompileSummary summary;
  if (proto.fingerprint().size() != summary.fingerprint.bytes.size())
    return Internal("the server sent a fingerprint that is not 32 bytes");
  std::copy(proto.fingerprint().begin(), proto.fingerprint().end(), summary.fingerprint.bytes.begin());
  summary.outcome = OutcomeName(proto.outcome());
  summary.elapsed = DurationFromProto(proto.elapsed());
  summary.build_time = DurationFromProto(proto.build_time());
  if (!proto.symbolic_fingerprint().empty()) {
    Fingerprint& symbolic = summary.symbolic_fingerprint.emplace();
    if (proto.symbolic_fingerprint().size() != symbolic.bytes.size())
      return Internal("the server sent a symbolic fingerprint that is not 32 bytes");
    std::copy(proto.symbolic_fingerprint().begin(), proto.symbolic_fingerprint().end(), symbolic.bytes.begin());
  }
  if (proto.target().empty()) return summary;
  const absl::StatusOr<Target> target = ParseTarget(proto.target());
  if (!target.ok())
    return Internal(absl::StrCat("the server sent a target that this client does not know: '", proto.target(), "'"));
  summary.target = *target;
  return summary;
}

ArtifactReport ReportFromProto(const v1::Report& proto) {
  ArtifactReport report;
  for (const v1::KernelReport& kernel : proto.kernels()) report.kernels.push_back(KernelReportFromProto(kernel));
  for (const v1::FusionRefusal& refusal : proto.refusals()) {
    report.refusals.push_back({refusal.producer(), refusal.consumer(), refusal.reason()});
  }
  report.intermediates_removed = proto.intermediates_removed_count();
  for (const auto& [stage, micros] : proto.stage_micros()) report.stage_micros[stage] = micros;
  return report;
}

OutputComparison ComparisonFromProto(const v1::OutputComparison& proto) {
  OutputComparison comparison;
  comparison.name = proto.name();
  comparison.elements = proto.element_count();
  comparison.mismatches = proto.mismatch_count();
  comparison.max_abs_error = proto.max_abs_error();
  comparison.max_rel_error = proto.max_rel_error();
  comparison.first_mismatch = proto.first_mismatch();
  return comparison;
}

ServerInfo ServerInfoFromProto(const v1::GetServerInfoResponse& proto) {
  ServerInfo info;
  info.version = proto.version();
  info.compiler_identity = proto.compiler_identity();
  for (const v1::TargetInfo& t : proto.targets())
    info.targets.push_back({t.target(), t.can_compile(), t.can_execute(), t.reason()});
  for (const v1::DeviceInfo& d : proto.devices()) {
    info.devices.push_back(
        {d.ordinal(), d.name(), d.target(), d.memory_bytes(), d.healthy(), d.execution_count(), d.queue_depth_count()});
  }
  const v1::Limits& limits = proto.limits();
  info.limits = {limits.max_node_count(), limits.max_rank_count(), limits.max_element_count(),
                 limits.max_constant_bytes(), limits.max_text_bytes()};
  info.max_message_bytes = limits.max_message_bytes();
  info.uptime = DurationFromProto(proto.uptime());
  info.draining = proto.state() == v1::SERVER_STATE_DRAINING;
  return info;
}

CacheStats CacheStatsFromProto(const v1::GetCacheStatsResponse& proto) {
  CacheStats stats;
  for (const v1::CacheLevelStats& l : proto.levels()) {
    stats.levels.push_back({l.level(), l.entry_count(), l.size_bytes(), l.hit_count(), l.miss_count(),
                            l.corrupt_count(), l.eviction_count(), l.error_count(), l.unsigned_count()});
  }
  stats.builds = proto.build_count();
  stats.joins = proto.join_count();
  stats.known_errors = proto.known_error_count();
  return stats;
}

MissReport MissReportFromProto(const v1::MissReport& proto) {
  MissReport report;
  report.is_there = proto.is_there();
  const std::string& nearest = proto.nearest_fingerprint();
  if (Fingerprint key; nearest.size() == key.bytes.size()) {
    std::copy(nearest.begin(), nearest.end(), key.bytes.begin());
    report.nearest = key;
  }
  report.compared = proto.compared_count();
  for (const v1::KeyDifference& difference : proto.differences())
    report.differences.push_back({difference.field(), difference.wanted(), difference.found()});
  return report;
}

}  // namespace fuseline::client
