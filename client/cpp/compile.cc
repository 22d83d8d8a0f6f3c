// Client's calls that compile: one graph, with or without word of how far it is, and many.
// Tested by tests/unit/client/compile_calls_test.cc
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/error_details.h"
#include "client/cpp/message_codec.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::client {
namespace {

// The server's bound on a batch.
constexpr size_t kMaxBatch = 1000;

absl::StatusOr<CompileResult> ResultFromProto(const v1::CompileResponse& response, bool graph_sent) {
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

absl::Status StatusFromFailure(const v1::BatchCompileFailure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  if (failure.code() < 1 || failure.code() > 16) return Internal("the server's answer has no code");
  return MakeError(code, ErrorReasonFromName(failure.reason()), failure.subject(), failure.message());
}

}  // namespace

absl::StatusOr<CompileResult> Client::Compile(const CompileSpec& spec, bool include_source,
                                              const StageListener& on_stage) {
  v1::CompileRequest request;
  request.set_include_source(include_source);
  v1::CompileResponse response;
  if (!on_stage) {
    FUSELINE_ASSIGN_OR_RETURN(
        const bool graph_sent,
        impl_->CallBySpec(impl_->compile(), &v1::CompileService::Stub::Compile, spec, request, response));
    return ResultFromProto(response, graph_sent);
  }
  const auto stream = [&](bool) {
    FUSELINE_RETURN_IF_ERROR(impl_->CheckMessageSize(request));
    return impl_->WithRetries([&](grpc::ClientContext& context) {
      response.Clear();
      const auto reader = impl_->compile().CompileStream(&context, request);
      v1::CompileStreamResponse message;
      while (reader->Read(&message)) {
        if (message.has_response()) {
          response.Swap(message.mutable_response());
        } else if (message.stage() >= v1::COMPILE_STAGE_CACHE_CHECK && message.stage() <= v1::COMPILE_STAGE_DONE) {
          on_stage(static_cast<CompileStage>(message.stage()));  // the same numbers
        }
      }
      return reader->Finish();
    });
  };
  FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent, impl_->BySpec(spec, "", request, response, stream));
  return ResultFromProto(response, graph_sent);
}

absl::Status Client::CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result,
                                  bool include_source) {
  std::vector<v1::CompileRequest> requests;
  for (const CompileSpec& spec : specs) {
    if (spec.graph == nullptr && !spec.fingerprint.has_value())
      return InvalidArgument(ErrorReason::kOptionInvalid, "spec", "neither a graph nor a fingerprint is given");
    v1::CompileRequest& request = requests.emplace_back();
    request.set_include_source(include_source);
    if (spec.graph != nullptr) {
      SpecFieldsToProto(spec, request.mutable_spec());
      GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    } else {
      request.mutable_spec()->set_fingerprint(spec.fingerprint->bytes.data(), spec.fingerprint->bytes.size());
    }
  }
  for (size_t first = 0; first < requests.size(); first += kMaxBatch) {
    // What is not answered yet. A broken call is made again for these alone.
    std::map<int, size_t> open;
    for (size_t i = first; i < std::min(first + kMaxBatch, requests.size()); ++i)
      open.emplace(static_cast<int>(open.size()), i);
    FUSELINE_RETURN_IF_ERROR(impl_->WithRetries([&](grpc::ClientContext& context) {
      v1::BatchCompileRequest batch;
      std::map<int, size_t> positions;
      for (const auto& [position, i] : open) {
        positions.emplace(batch.requests_size(), i);
        *batch.add_requests() = requests[i];
      }
      open.swap(positions);
      const auto reader = impl_->compile().BatchCompile(&context, batch);
      v1::BatchCompileResponse answer;
      while (reader->Read(&answer)) {
        const auto it = open.find(answer.index());
        if (it == open.end()) continue;
        const size_t i = it->second;
        open.erase(it);
        on_result(i, answer.has_response() ? ResultFromProto(answer.response(), specs[i].graph != nullptr)
                                           : absl::StatusOr<CompileResult>(StatusFromFailure(answer.failure())));
      }
      return reader->Finish();
    }));
    if (!open.empty()) return Internal(absl::StrCat("the server left ", open.size(), " graphs of a batch unanswered"));
  }
  return absl::OkStatus();
}

}  // namespace fuseline::client
