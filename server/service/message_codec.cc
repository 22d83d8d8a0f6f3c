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

// As cache::OutcomeName, whose library brings the database with it.
const char* OutcomeLabel(cache::Outcome outcome) {
  switch (outcome) {
    case cache::Outcome::kMiss:
      return "miss";
    case cache::Outcome::kMemoryHit:
      return "memory-hit";
    case cache::Outcome::kDiskHit:
      return "disk-hit";
    case cache::Outcome::kJoined:
      return "joined";
    case cache::Outcome::kSharedHit:
      return "shared-hit";
  }
  return "";
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

absl::StatusOr<CompileResult> FindOrCompile(const v1::CompileSpec& spec, Engine& engine, const CallContext& context) {
  absl::StatusOr<CompileResult> result;
  if (spec.source_case() == v1::CompileSpec::kFingerprint) {
    FUSELINE_ASSIGN_OR_RETURN(const Fingerprint fingerprint, DecodeFingerprint(spec));
    result = engine.Find(fingerprint);
    if (result.ok() && result->symbolic.has_value()) {
      CompileRequest request = *std::move(result->symbolic);
      for (const auto& [symbol, size] : spec.symbol_sizes()) request.symbols[symbol] = size;
      result = engine.Compile(request, WaitFor(context));
    }
  } else {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, DecodeGraphSpec(spec, engine));
    result = engine.Compile(request, WaitFor(context));
  }
  if (result.ok()) NoteCompiled(*result, context);
  return result;
}

cache::WaitOptions WaitFor(const CallContext& context) {
  cache::WaitOptions wait;
  wait.deadline = context.deadline;
  wait.stop = [context] { return context.CheckAlive(); };
  return wait;
}

void NoteCompiled(const CompileResult& result, const CallContext& context) {
  if (context.notes == nullptr) return;
  context.notes->outcome = OutcomeLabel(result.outcome);
  if (result.outcome == cache::Outcome::kMiss || result.outcome == cache::Outcome::kJoined)
    context.notes->build_micros = absl::ToInt64Microseconds(result.build_time);
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
  if (result.symbolic_fingerprint.has_value()) {
    const auto& bytes = result.symbolic_fingerprint->bytes;
    proto->set_symbolic_fingerprint(bytes.data(), bytes.size());
  }
  proto->set_target(artifact.target.ToString());
}

absl::StatusOr<TensorHeader> DecodeTensorHeader(v1::DataType dtype,
                                                const google::protobuf::RepeatedField<int64_t>& shape,
                                                const std::string& name, const GraphLimits& limits) {
  if (dtype == v1::DATA_TYPE_UNSPECIFIED || !v1::DataType_IsValid(dtype))
    return TensorError(name, absl::StrCat("dtype ", static_cast<int>(dtype), " is not known"));
  TensorHeader header;
  header.dtype = static_cast<DType>(dtype);  // the same numbers
  if (shape.size() > limits.max_rank) {
    return InvalidArgument(
        ErrorReason::kLimitExceeded, name,
        absl::StrCat("tensor '", name, "': rank ", shape.size(), " is over the limit of ", limits.max_rank));
  }
  // Zeros count as one in the bound, as in the graph's verifier: then no product of the other dims overflows anywhere
  // later.
  int64_t bounded = 1;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0) return TensorError(name, absl::StrCat("dim ", size, " is negative"));
    if (__builtin_mul_overflow(bounded, std::max<int64_t>(size, 1), &bounded) || bounded > limits.max_elements) {
      return InvalidArgument(
          ErrorReason::kLimitExceeded, name,
          absl::StrCat("tensor '", name, "': more elements than the limit of ", limits.max_elements));
    }
    elements *= size;
  }
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(DTypeSizeBytes(header.dtype)), &header.size_bytes)) {
    return InvalidArgument(ErrorReason::kLimitExceeded, name,
                           absl::StrCat("tensor '", name, "': more bytes than an integer can count"));
  }
  header.shape.assign(shape.begin(), shape.end());
  return header;
}

absl::StatusOr<Tensor> DecodeTensor(const v1::Tensor& proto, const std::string& name, const GraphLimits& limits,
                                    const std::shared_ptr<const void>& owner) {
  FUSELINE_ASSIGN_OR_RETURN(TensorHeader header, DecodeTensorHeader(proto.dtype(), proto.shape(), name, limits));
  if (header.size_bytes != static_cast<int64_t>(proto.data().size())) {
    return TensorError(name, absl::StrCat(proto.data().size(), " bytes of data, not ", header.size_bytes,
                                          " as dtype and shape ask for"));
  }
  if (header.dtype == DType::kBool) {
    // Kernels compute with these bytes as they are, so only 0 and 1 may come in.
    uint8_t all = 0;
    for (const char c : proto.data()) all |= static_cast<uint8_t>(c);
    if (all > 1) return TensorError(name, "a bool is neither 0 nor 1");
  }
  const char* data = proto.data().data();
  if (owner != nullptr && reinterpret_cast<uintptr_t>(data) % kTensorAlignment == 0) {
    // Inputs are only read; the interface takes non-const pointers because outputs use it too.
    return Tensor::Borrow(header.dtype, std::move(header.shape), const_cast<char*>(data),
                          std::const_pointer_cast<void>(owner));
  }
  return Tensor::FromBytes(header.dtype, std::move(header.shape), std::string_view(data, proto.data().size()));
}

void EncodeTensorHeader(const Tensor& tensor, v1::Tensor* proto) {
  proto->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  proto->mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
}

void EncodeTensor(const Tensor& tensor, v1::Tensor* proto) {
  EncodeTensorHeader(tensor, proto);
  proto->set_data(tensor.data(), static_cast<size_t>(tensor.size_bytes()));
}

void EncodeDuration(absl::Duration duration, google::protobuf::Duration* proto) {
  absl::Duration rest;
  proto->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

absl::Duration DecodeDuration(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

absl::StatusOr<std::vector<size_t>> BindNames(const std::vector<std::string>& names,
                                              const std::vector<std::string>& given, const std::string& what) {
  const auto error = [](const std::string& subject, const std::string& message) {
    return InvalidArgument(ErrorReason::kTensorMismatch, subject, message);
  };
  const bool by_position =
      std::all_of(given.begin(), given.end(), [](const std::string& name) { return name.empty(); });
  std::vector<size_t> found(names.size(), 0);
  if (by_position) {
    if (given.size() != names.size()) {
      return error(what, absl::StrCat(given.size(), " ", what, " tensors, the graph has ", names.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) found[i] = i;
    return found;
  }
  absl::flat_hash_map<std::string, size_t> positions;
  for (size_t i = 0; i < names.size(); ++i) positions.emplace(names[i], i);
  std::vector<bool> seen(names.size(), false);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].empty()) return error(what, absl::StrCat("some ", what, " tensors have names and some do not"));
    const auto it = positions.find(given[i]);
    if (it == positions.end()) return error(given[i], absl::StrCat("the graph has no ", what, " '", given[i], "'"));
    if (seen[it->second]) return error(given[i], absl::StrCat(what, " '", given[i], "' is given twice"));
    seen[it->second] = true;
    found[it->second] = i;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!seen[i]) return error(names[i], absl::StrCat(what, " '", names[i], "' is missing"));
  }
  return found;
}

absl::StatusOr<std::vector<Tensor>> BindTensors(const std::vector<std::string>& names,
                                                const std::vector<TensorArgument>& arguments, const std::string& what,
                                                const GraphLimits& limits, const std::shared_ptr<const void>& owner) {
  std::vector<std::string> given;
  for (const TensorArgument& argument : arguments) given.push_back(argument.name);
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<size_t> found, BindNames(names, given, what));
  std::vector<Tensor> tensors;
  tensors.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const v1::Tensor* proto = arguments[found[i]].tensor;
    if (proto == nullptr) {
      return InvalidArgument(ErrorReason::kTensorMismatch, names[i],
                             absl::StrCat(what, " '", names[i], "' has no tensor"));
    }
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, DecodeTensor(*proto, names[i], limits, owner));
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
