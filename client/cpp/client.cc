#include "client/cpp/client.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/message_codec.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

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
  const bool printable =
      std::all_of(options.owner.begin(), options.owner.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (options.owner.size() > 128 || !printable)
    return BadOption("owner", "must be up to 128 printable ASCII characters");
  if (options.hedge_delay <= absl::ZeroDuration()) return BadOption("hedge_delay", "must be above 0");
  return absl::OkStatus();
}

}  // namespace

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address, const ClientOptions& options) {
  FUSELINE_RETURN_IF_ERROR(CheckOptions(options));
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<ServerPool> servers, ServerPool::Create(address, options));
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(std::move(servers), options)));
}

absl::StatusOr<ExplainResult> Client::Explain(const CompileSpec& spec, const ExplainOptions& options) {
  v1::ExplainRequest request;
  request.set_include_stages(options.stages);
  request.set_include_key(options.key);
  request.set_include_miss(options.miss);
  v1::ExplainResponse response;
  bool graph_sent = true;
  if ((options.stages || options.key || options.miss) && spec.graph != nullptr) {
    // Stages, key fields and neighbours need the graph.
    SpecFieldsToProto(spec, request.mutable_spec());
    GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    FUSELINE_RETURN_IF_ERROR(impl_->Call(&v1::CompileService::Stub::Explain, request, response,
                                         impl_->RouteOf(spec, Route::Need::kCompile)));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(graph_sent, impl_->CallBySpec(&v1::CompileService::Stub::Explain, spec,
                                                            Route::Need::kCompile, request, response));
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
  if (response.has_miss()) result.miss = MissReportFromProto(response.miss());
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
  FUSELINE_RETURN_IF_ERROR(
      impl_->Call(&v1::CompileService::Stub::Verify, request, response, impl_->RouteOf(spec, Route::Need::kExecute)));
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
  FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent, impl_->CallBySpec(&v1::ExecuteService::Stub::Benchmark, spec,
                                                                     Route::Need::kExecute, request, response));
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
      impl_->Call(&v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest(), response, Route()));
  return ServerInfoFromProto(response);
}

absl::StatusOr<CacheStats> Client::GetCacheStats() {
  v1::GetCacheStatsResponse response;
  FUSELINE_RETURN_IF_ERROR(
      impl_->Call(&v1::AdminService::Stub::GetCacheStats, v1::GetCacheStatsRequest(), response, Route()));
  return CacheStatsFromProto(response);
}

absl::StatusOr<std::vector<ServerState>> Client::GetServerStates() {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<PooledServerPtr> servers, impl_->servers().Servers());
  std::vector<ServerState> states;
  for (const PooledServerPtr& server : servers) {
    grpc::ClientContext context;
    impl_->Prepare(context, absl::Now() + impl_->options().deadline, Route());
    v1::GetServerInfoResponse response;
    const grpc::Status status =
        server->stub<v1::AdminService::Stub>().GetServerInfo(&context, v1::GetServerInfoRequest(), &response);
    states.push_back({server->address(), status.ok() ? absl::StatusOr<ServerInfo>(ServerInfoFromProto(response))
                                                     : absl::StatusOr<ServerInfo>(ErrorOf(status))});
  }
  return states;
}

}  // namespace fuseline::client
