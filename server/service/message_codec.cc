#include "server/service/message_codec.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::service {
namespace {

// What Tensor promises of its storage.
constexpr uintptr_t kTensorAlignment = 64;

absl::StatusOr<CompileOptions> DecodeOptions(const v1::CompileOptions& proto) {
  CompileOptions options;
  switch (proto.numerics()) {
    case v1::NUMERICS_UNSPECIFIED:
    case v1::NUMERICS_FUSED:
      options.numerics = Numerics::kFused;
      break;
    case v1::NUMERICS_EAGER:
      options.numerics = Numerics::kEager;
      break;
    default:
      return InvalidArgument(ErrorReason::kOptionInvalid, "options.numerics",
                             absl::StrCat("option 'numerics': ", static_cast<int>(proto.numerics()), " is not known"));
  }
  options.fast_math = proto.fast_math();
  options.allow_tf32 = proto.allow_tf32();
  options.fuse = !proto.disable_fusion();
  return options;
}

absl::Status TensorError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("tensor '", name, "': ", message));
}

void EncodeDuration(absl::Duration duration, google::protobuf::Duration* proto) {
  const int64_t nanos = absl::ToInt64Nanoseconds(duration);
  proto->set_seconds(nanos / 1'000'000'000);
  proto->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

}  // namespace

absl::StatusOr<Target> DefaultTarget(const EngineInfo& info) {
  for (const TargetInfo& target : info.targets) {
    if (target.can_compile && target.can_execute) return target.target;
  }
  for (const TargetInfo& target : info.targets) {
    if (target.can_compile) return target.target;
  }
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "target",
                   "this server can't compile for any target");
}

absl::StatusOr<CompileRequest> DecodeGraphSpec(const v1::CompileSpec& spec, const Engine& engine) {
  CompileRequest request;
  switch (spec.source_case()) {
    case v1::CompileSpec::kGraph: {
      FUSELINE_ASSIGN_OR_RETURN(request.graph, GraphFromProto(spec.graph(), engine.limits()));
      break;
    }
    case v1::CompileSpec::kGraphText: {
      FUSELINE_ASSIGN_OR_RETURN(request.graph, ParseGraphText(spec.graph_text(), engine.limits()));
      break;
    }
    case v1::CompileSpec::kFingerprint:
      return InvalidArgument(ErrorReason::kOptionInvalid, "spec.fingerprint",
                             "a fingerprint is not enough for this call: send the graph");
    case v1::CompileSpec::SOURCE_NOT_SET:
      return InvalidArgument(ErrorReason::kOptionInvalid, "spec", "the request has neither graph nor fingerprint");
  }
  for (const auto& [symbol, size] : spec.symbol_sizes()) request.symbols[symbol] = size;
  if (spec.target().empty()) {
    FUSELINE_ASSIGN_OR_RETURN(request.target, DefaultTarget(engine.Info()));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(request.target, ParseTarget(spec.target()));
  }
  FUSELINE_ASSIGN_OR_RETURN(request.options, DecodeOptions(spec.options()));
  request.bypass_cache = spec.bypass_cache();
  return request;
}

absl::StatusOr<Fingerprint> DecodeFingerprint(const v1::CompileSpec& spec) {
  Fingerprint fingerprint;
  if (spec.fingerprint().size() != fingerprint.bytes.size()) {
    return InvalidArgument(
        ErrorReason::kOptionInvalid, "spec.fingerprint",
        absl::StrCat("a fingerprint has ", fingerprint.bytes.size(), " bytes, not ", spec.fingerprint().size()));
  }
  std::copy(spec.fingerprint().begin(), spec.fingerprint().end(), fingerprint.bytes.begin());
  return fingerprint;
}

absl::StatusOr<CompileResult> FindOrCompile(const v1::CompileSpec& spec, Engine& engine) {
  if (spec.source_case() == v1::CompileSpec::kFingerprint) {
    FUSELINE_ASSIGN_OR_RETURN(const Fingerprint fingerprint, DecodeFingerprint(spec));
    return engine.Find(fingerprint);
  }
  FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, DecodeGraphSpec(spec, engine));
  return engine.Compile(request);
}

v1::CacheOutcome EncodeOutcome(cache::Outcome outcome) {
  switch (outcome) {
    case cache::Outcome::kMiss:
      return v1::CACHE_OUTCOME_MISS;
    case cache::Outcome::kMemoryHit:
      return v1::CACHE_OUTCOME_MEMORY_HIT;
    case cache::Outcome::kDiskHit:
      return v1::CACHE_OUTCOME_DISK_HIT;
    case cache::Outcome::kJoined:
      return v1::CACHE_OUTCOME_JOINED;
    case cache::Outcome::kSharedHit:
      return v1::CACHE_OUTCOME_SHARED_HIT;
  }
  return v1::CACHE_OUTCOME_UNSPECIFIED;
}

void EncodeSummary(const CompileResult& result, v1::CompileSummary* proto) {
  const Artifact& artifact = *result.artifact;
  proto->set_fingerprint(artifact.fingerprint.bytes.data(), artifact.fingerprint.bytes.size());
  proto->set_outcome(EncodeOutcome(result.outcome));
  EncodeDuration(result.elapsed, proto->mutable_elapsed());
  EncodeDuration(result.build_time, proto->mutable_build_time());
  proto->set_target(artifact.target.ToString());
}

absl::StatusOr<Tensor> DecodeTensor(const v1::Tensor& proto, const std::string& name, const GraphLimits& limits,
                                    const std::shared_ptr<const void>& owner) {
  if (proto.dtype() == v1::DATA_TYPE_UNSPECIFIED || !v1::DataType_IsValid(proto.dtype())) {
    return TensorError(name, absl::StrCat("dtype ", static_cast<int>(proto.dtype()), " is not known"));
  }
  const DType dtype = static_cast<DType>(proto.dtype());  // the same numbers
  if (proto.shape_size() > limits.max_rank) {
    return InvalidArgument(
        ErrorReason::kLimitExceeded, name,
        absl::StrCat("tensor '", name, "': rank ", proto.shape_size(), " is over the limit of ", limits.max_rank));
  }
  // Zeros count as one in the bound, as in the graph's verifier: then no product of the other dims overflows anywhere
  // later.
  int64_t bounded = 1;
  int64_t elements = 1;
  for (const int64_t size : proto.shape()) {
    if (size < 0) return TensorError(name, absl::StrCat("dim ", size, " is negative"));
    if (__builtin_mul_overflow(bounded, std::max<int64_t>(size, 1), &bounded) || bounded > limits.max_elements) {
      return InvalidArgument(
          ErrorReason::kLimitExceeded, name,
          absl::StrCat("tensor '", name, "': more elements than the limit of ", limits.max_elements));
    }
    elements *= size;
  }
  int64_t size_bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(DTypeSizeBytes(dtype)), &size_bytes) ||
      size_bytes != static_cast<int64_t>(proto.data().size())) {
    return TensorError(
        name, absl::StrCat(proto.data().size(), " bytes of data, not ", size_bytes, " as dtype and shape ask for"));
  }
  if (dtype == DType::kBool) {
    // Kernels compute with these bytes as they are, so only 0 and 1 may come in.
    uint8_t all = 0;
    for (const char c : proto.data()) all |= static_cast<uint8_t>(c);
    if (all > 1) return TensorError(name, "a bool is neither 0 nor 1");
  }
  Shape shape(proto.shape().begin(), proto.shape().end());
  const char* data = proto.data().data();
  if (owner != nullptr && reinterpret_cast<uintptr_t>(data) % kTensorAlignment == 0) {
    // Inputs are only read; the interface takes non-const pointers because outputs use it too.
    return Tensor::Borrow(dtype, std::move(shape), const_cast<char*>(data), std::const_pointer_cast<void>(owner));
  }
  return Tensor::FromBytes(dtype, std::move(shape), std::string_view(data, proto.data().size()));
}

void EncodeTensor(const Tensor& tensor, v1::Tensor* proto) {
  proto->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  proto->mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
  proto->set_data(tensor.data(), static_cast<size_t>(tensor.size_bytes()));
}

absl::StatusOr<std::vector<Tensor>> BindTensors(const std::vector<std::string>& names,
                                                const std::vector<TensorArgument>& arguments, const std::string& what,
                                                const GraphLimits& limits, const std::shared_ptr<const void>& owner) {
  const auto error = [](const std::string& subject, const std::string& message) {
    return InvalidArgument(ErrorReason::kTensorMismatch, subject, message);
  };
  const bool by_position =
      std::all_of(arguments.begin(), arguments.end(), [](const TensorArgument& a) { return a.name.empty(); });
  std::vector<const v1::Tensor*> found(names.size(), nullptr);
  if (by_position) {
    if (arguments.size() != names.size()) {
      return error(what, absl::StrCat(arguments.size(), " ", what, " tensors, the graph has ", names.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) found[i] = arguments[i].tensor;
  } else {
    absl::flat_hash_map<std::string, size_t> positions;
    for (size_t i = 0; i < names.size(); ++i) positions.emplace(names[i], i);
    std::vector<bool> seen(names.size(), false);
    for (const TensorArgument& argument : arguments) {
      if (argument.name.empty()) return error(what, absl::StrCat("some ", what, " tensors have names and some do not"));
      const auto it = positions.find(argument.name);
      if (it == positions.end())
        return error(argument.name, absl::StrCat("the graph has no ", what, " '", argument.name, "'"));
      if (seen[it->second]) return error(argument.name, absl::StrCat(what, " '", argument.name, "' is given twice"));
      seen[it->second] = true;
      found[it->second] = argument.tensor;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (!seen[i]) return error(names[i], absl::StrCat(what, " '", names[i], "' is missing"));
    }
  }
  std::vector<Tensor> tensors;
  tensors.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (found[i] == nullptr) return error(names[i], absl::StrCat(what, " '", names[i], "' has no tensor"));
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, DecodeTensor(*found[i], names[i], limits, owner));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<std::string> InputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId id : graph.inputs) names.push_back(graph.value(id).name);
  return names;
}

std::vector<std::string> OutputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphOutput& output : graph.outputs) names.push_back(output.name);
  return names;
}

}  // namespace fuseline::service
