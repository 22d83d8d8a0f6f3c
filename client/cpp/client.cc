#include "client/cpp/client.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/error_details.h"
#include "client/cpp/fingerprint_memory.h"
#include "client/cpp/message_codec.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/ir/codec/graph_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpcpp/grpcpp.h"

namespace fuseline::client {
namespace {

absl::Status BadOption(const std::string& field, const std::string& message) {
  return InvalidArgument(ErrorReason::kOptionInvalid, field, absl::StrCat("client option '", field, "': ", message));
}

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.deadline <= absl::ZeroDuration()) return BadOption("deadline", "must be above 0");
  if (options.max_attempts < 1) return BadOption("max_attempts", "must be at least 1");
  if (options.max_message_bytes < 1 || options.max_message_bytes > std::numeric_limits<int>::max()) {
    return BadOption("max_message_bytes", "must be between 1 and 2^31 - 1");
  }
  return absl::OkStatus();
}

absl::Status InputError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("input '", name, "' ", message));
}

// The inputs in the graph's order. Checked here too, since a request by fingerprint no longer carries the graph's
// names.
absl::StatusOr<std::vector<Tensor>> InGraphOrder(const Graph& graph, const std::vector<NamedTensor>& inputs) {
  std::vector<Tensor> ordered;
  ordered.reserve(inputs.size());
  const bool unnamed = std::all_of(inputs.begin(), inputs.end(), [](const NamedTensor& t) { return t.name.empty(); });
  if (unnamed) {
    if (inputs.size() != graph.inputs.size()) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, "inputs",
          absl::StrCat("the graph has ", graph.inputs.size(), " inputs, ", inputs.size(), " tensors were given"));
    }
    for (const NamedTensor& input : inputs) ordered.push_back(input.tensor);
    return ordered;
  }
  absl::flat_hash_map<std::string, const Tensor*> by_name;
  for (const NamedTensor& input : inputs) {
    if (!by_name.emplace(input.name, &input.tensor).second) return InputError(input.name, "is given twice");
  }
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    const auto it = by_name.find(name);
    if (it == by_name.end()) return InputError(name, "has no tensor");
    ordered.push_back(*it->second);
    by_name.erase(it);
  }
  if (!by_name.empty()) return InputError(by_name.begin()->first, "is not an input of the graph");
  return ordered;
}

// What a request asks for, whatever its messages' field order in memory.
Digest RequestDigest(const v1::CompileSpec& spec, const std::vector<Tensor>& inputs) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  // The shapes of the inputs bind symbolic dims, and so are part of what is compiled.
  for (const Tensor& input : inputs) {
    for (const int64_t size : input.shape()) absl::StrAppend(&bytes, size, ",");
    bytes += ';';
  }
  return ComputeDigest(bytes);
}

std::string FingerprintBytes(const Fingerprint& fingerprint) {
  return std::string(fingerprint.bytes.begin(), fingerprint.bytes.end());
}

}  // namespace

class Client::Impl {
 public:
  Impl(const std::string& address, const ClientOptions& options)
      : options_(options), memory_(options.remember_fingerprints ? options.max_remembered : 0) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
    // The retries are ours: they know RetryInfo.
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    // gRPC waits a second before it connects again; a server that restarts is back sooner.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    // This one is also how long an attempt to connect may take: a distant or busy server needs more than the backoff.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10000);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
    const std::shared_ptr<grpc::Channel> channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    compile_ = v1::CompileService::NewStub(channel);
    execute_ = v1::ExecuteService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
  }

  // One call with its retries. `method`: of a stub.
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response) {
    // Said here, since gRPC's own message for it is unreadable.
    if (request.ByteSizeLong() > static_cast<size_t>(options_.max_message_bytes)) {
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kLimitExceeded, "request",
                       absl::StrCat("a request of ", request.ByteSizeLong(), " bytes is over the limit of ",
                                    options_.max_message_bytes));
    }
    const absl::Time deadline = absl::Now() + options_.deadline;
    absl::Duration backoff = options_.initial_backoff;
    absl::BitGen random;
    for (int attempt = 1;; ++attempt) {
      grpc::ClientContext context;
      if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
      response.Clear();
      const grpc::Status status = (stub.*method)(&context, request, &response);
      if (status.ok()) return absl::OkStatus();
      absl::Status error =
          DecodeError(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
      if (error.code() != absl::StatusCode::kUnavailable || attempt >= options_.max_attempts) return error;
      const absl::Duration jittered = backoff * absl::Uniform(random, 0.5, 1.0);
      const absl::Duration wait = std::max(jittered, GetRetryDelay(error));
      if (absl::Now() + wait >= deadline) return error;
      absl::SleepFor(wait);
      backoff = std::min(backoff * 2, options_.max_backoff);
    }
  }

  // Makes `request` (whose mutable_spec() is filled in here) by fingerprint where one is known, else by graph; falls
  // back to the graph. `inputs`: the tensors of the request, where they bind symbols. Returns whether the graph was
  // sent.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<bool> CallBySpec(Stub& stub,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                  const CompileSpec& spec, const std::vector<Tensor>& inputs, Request& request,
                                  Response& response) {
    if (spec.graph == nullptr) {
      if (!spec.fingerprint.has_value())
        return InvalidArgument(ErrorReason::kOptionInvalid, "spec", "neither a graph nor a fingerprint is given");
      request.mutable_spec()->set_fingerprint(FingerprintBytes(*spec.fingerprint));
      FUSELINE_RETURN_IF_ERROR(Call(stub, method, request, response));
      return false;
    }
    SpecFieldsToProto(spec, request.mutable_spec());
    GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    if (spec.bypass_cache) {
      FUSELINE_RETURN_IF_ERROR(Call(stub, method, request, response));
      return true;
    }
    const Digest digest = RequestDigest(request.spec(), inputs);
    std::optional<Fingerprint> known = spec.fingerprint;
    if (!known.has_value()) known = memory_.Find(digest);
    if (known.has_value()) {
      v1::CompileSpec by_graph;
      by_graph.Swap(request.mutable_spec());
      request.mutable_spec()->set_fingerprint(FingerprintBytes(*known));
      const absl::Status status = Call(stub, method, request, response);
      if (status.ok()) return false;
      // INVALID_ARGUMENT: asked again with the graph, so that the message has the user's names and not canonical ones.
      if (!absl::IsNotFound(status) && !absl::IsInvalidArgument(status)) return status;
      request.mutable_spec()->Swap(&by_graph);
    }
    FUSELINE_RETURN_IF_ERROR(Call(stub, method, request, response));
    FUSELINE_ASSIGN_OR_RETURN(const CompileSummary summary, SummaryFromProto(response.summary()));
    memory_.Remember(digest, summary.fingerprint);
    return true;
  }

  v1::CompileService::Stub& compile() { return *compile_; }
  v1::ExecuteService::Stub& execute() { return *execute_; }
  v1::AdminService::Stub& admin() { return *admin_; }

 private:
  // Fixed after construction.
  const ClientOptions options_;
  std::unique_ptr<v1::CompileService::Stub> compile_;
  std::unique_ptr<v1::ExecuteService::Stub> execute_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  // Own synchronisation.
  FingerprintMemory memory_;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address, const ClientOptions& options) {
  if (address.empty()) return InvalidArgument(ErrorReason::kOptionInvalid, "address", "the server's address is empty");
  FUSELINE_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(address, options)));
}

absl::StatusOr<CompileResult> Client::Compile(const CompileSpec& spec, bool include_source) {
  v1::CompileRequest request;
  request.set_include_source(include_source);
  v1::CompileResponse response;
  FUSELINE_ASSIGN_OR_RETURN(
      const bool graph_sent,
      impl_->CallBySpec(impl_->compile(), &v1::CompileService::Stub::Compile, spec, {}, request, response));
  CompileResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  absl::StatusOr<Artifact> artifact = ArtifactFromProto(response.artifact());
  if (!artifact.ok())
    return Internal(absl::StrCat("the server's artifact can't be decoded: ", artifact.status().message()));
  artifact->report = ReportFromProto(response.report());
  result.artifact = std::make_shared<const Artifact>(*std::move(artifact));
  return result;
}

absl::StatusOr<ExecuteResult> Client::Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs) {
  v1::ExecuteRequest request;
  std::vector<Tensor> ordered;
  if (spec.graph != nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(ordered, InGraphOrder(*spec.graph, inputs));
    for (const Tensor& tensor : ordered) TensorToProto(tensor, request.add_inputs()->mutable_tensor());
  } else {
    for (const NamedTensor& input : inputs) {
      v1::InputTensor* proto = request.add_inputs();
      proto->set_name(input.name);
      TensorToProto(input.tensor, proto->mutable_tensor());
    }
  }
  v1::ExecuteResponse response;
  FUSELINE_ASSIGN_OR_RETURN(
      const bool graph_sent,
      impl_->CallBySpec(impl_->execute(), &v1::ExecuteService::Stub::Execute, spec, ordered, request, response));
  ExecuteResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  if (spec.graph != nullptr && response.outputs_size() != static_cast<int>(spec.graph->outputs.size())) {
    return Internal(
        absl::StrCat("the server sent ", response.outputs_size(), " outputs of ", spec.graph->outputs.size()));
  }
  for (int i = 0; i < response.outputs_size(); ++i) {
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(response.outputs(i).tensor()));
    const std::string& name =
        spec.graph != nullptr ? spec.graph->outputs[static_cast<size_t>(i)].name : response.outputs(i).name();
    result.outputs.push_back({name, std::move(tensor)});
  }
  const v1::ExecuteTimings& timings = response.timings();
  result.queue_time = absl::Seconds(timings.queue_time().seconds()) + absl::Nanoseconds(timings.queue_time().nanos());
  result.run_time = absl::Seconds(timings.run_time().seconds()) + absl::Nanoseconds(timings.run_time().nanos());
  result.device = response.device();
  return result;
}

absl::StatusOr<ExplainResult> Client::Explain(const CompileSpec& spec, const ExplainOptions& options) {
  v1::ExplainRequest request;
  request.set_include_stages(options.stages);
  request.set_include_key(options.key);
  v1::ExplainResponse response;
  bool graph_sent = true;
  if ((options.stages || options.key) && spec.graph != nullptr) {
    // Stages and key fields need the graph.
    SpecFieldsToProto(spec, request.mutable_spec());
    GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    FUSELINE_RETURN_IF_ERROR(impl_->Call(impl_->compile(), &v1::CompileService::Stub::Explain, request, response));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(graph_sent, impl_->CallBySpec(impl_->compile(), &v1::CompileService::Stub::Explain, spec,
                                                            {}, request, response));
  }
  ExplainResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  result.report = ReportFromProto(response.report());
  // The server knows the graph's names only where it got the graph.
  if (!graph_sent && spec.graph != nullptr) RenameReportValues(CanonicalNames(*spec.graph), result.report);
  for (const v1::Stage& stage : response.stages()) result.stages.emplace_back(stage.name(), stage.text());
  for (const v1::KeyField& field : response.key_fields())
    result.key_fields.push_back({field.name(), field.value(), field.digest()});
  return result;
}

absl::StatusOr<VerifyResult> Client::Verify(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                            const std::vector<NamedTensor>& expected, const Tolerance& tolerance) {
  if (spec.graph == nullptr)
    return InvalidArgument(ErrorReason::kOptionInvalid, "spec.graph", "Verify needs the graph");
  v1::VerifyRequest request;
  SpecFieldsToProto(spec, request.mutable_spec());
  GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
  const auto add = [](const NamedTensor& tensor, v1::NamedTensor* proto) {
    proto->set_name(tensor.name);
    TensorToProto(tensor.tensor, proto->mutable_tensor());
  };
  for (const NamedTensor& tensor : inputs) add(tensor, request.add_inputs());
  for (const NamedTensor& tensor : expected) add(tensor, request.add_expected());
  request.mutable_tolerance()->set_rtol(tolerance.rtol);
  request.mutable_tolerance()->set_atol(tolerance.atol);
  request.mutable_tolerance()->set_negative_zero_matters(tolerance.negative_zero_matters);
  v1::VerifyResponse response;
  FUSELINE_RETURN_IF_ERROR(impl_->Call(impl_->compile(), &v1::CompileService::Stub::Verify, request, response));
  VerifyResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.passed = response.passed();
  for (const v1::OutputComparison& output : response.outputs()) result.outputs.push_back(ComparisonFromProto(output));
  return result;
}

absl::StatusOr<BenchmarkResult> Client::Benchmark(const CompileSpec& spec, const BenchmarkOptions& options) {
  v1::BenchmarkRequest request;
  request.set_seed(options.seed);
  request.set_warmup_count(options.warmup_count);
  request.set_iteration_count(options.iteration_count);
  v1::BenchmarkResponse response;
  FUSELINE_ASSIGN_OR_RETURN(
      const bool graph_sent,
      impl_->CallBySpec(impl_->execute(), &v1::ExecuteService::Stub::Benchmark, spec, {}, request, response));
  BenchmarkResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  result.report = ReportFromProto(response.report());
  result.micros.assign(response.iteration_micros().begin(), response.iteration_micros().end());
  result.copy_bytes_per_second = response.copy_bytes_per_second();
  result.moved_bytes = response.moved_bytes();
  result.device = response.device();
  result.device_name = response.device_name();
  return result;
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  v1::GetServerInfoResponse response;
  FUSELINE_RETURN_IF_ERROR(
      impl_->Call(impl_->admin(), &v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest(), response));
  return ServerInfoFromProto(response);
}

absl::StatusOr<CacheStats> Client::GetCacheStats() {
  v1::GetCacheStatsResponse response;
  FUSELINE_RETURN_IF_ERROR(
      impl_->Call(impl_->admin(), &v1::AdminService::Stub::GetCacheStats, v1::GetCacheStatsRequest(), response));
  return CacheStatsFromProto(response);
}

}  // namespace fuseline::client
