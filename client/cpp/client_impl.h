// What Client's calls share: the servers, retries on them, and asking by fingerprint before sending a graph.
// Pipeline: Client's methods (client.cc, execute.cc, …) -> Impl -> ServerPool, gRPC. Included only by those files.
// Thread-safety: thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/fingerprint_memory.h"
#include "client/cpp/message_codec.h"
#include "client/cpp/pinned_artifacts.h"
#include "client/cpp/server_pool.h"
#include "common/ir/codec/graph_codec.h"
#include "common/launch/block_pool.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace fuseline::client {

class Client::Impl {
 public:
  Impl(std::unique_ptr<ServerPool> servers, const ClientOptions& options);

  // One call: tried on the route's servers in turn, and again after a wait, while they answer UNAVAILABLE and the
  // deadline allows. `attempt` must start from the beginning each time. Errors: the last server's; where several were
  // asked and none of them can serve the route, FAILED_PRECONDITION (kTargetNotAvailable) with the reason of each.
  using Attempt = absl::FunctionRef<grpc::Status(PooledServer&, grpc::ClientContext&)>;
  absl::Status WithRetries(const Route& route, Attempt attempt);
  // Deadline and metadata of a call.
  void Prepare(grpc::ClientContext& context, absl::Time deadline, const Route& route) const;

  // Where a call about the spec goes: by the graph's canonical form, so that its spelling does not matter. `request`:
  // by which the answer is remembered; may be null.
  Route RouteOf(const CompileSpec& spec, Route::Need need, const Digest* request = nullptr);
  // Where the owner's kept tensors are.
  Route RouteOfTensors() const;

  // A unary call with its retries. `method`: of a stub.
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response, const Route& route) {
    FUSELINE_RETURN_IF_ERROR(CheckMessageSize(request));
    return WithRetries(route, [&](PooledServer& server, grpc::ClientContext& context) {
      response.Clear();
      return (server.stub<Stub>().*method)(&context, request, &response);
    });
  }

  // Makes a call by fingerprint where one is known, else by graph; falls back to the graph. Fills in
  // request.mutable_spec(). `input_key`: what of the inputs binds symbols, and so is part of what is compiled.
  // `call(by_fingerprint, route)` sends `request`, whose names of inputs and outputs are then canonical, and fills
  // `response`. Returns whether the graph was sent.
  template <typename Request, typename Response>
  absl::StatusOr<bool> BySpec(const CompileSpec& spec, Route::Need need, const std::string& input_key, Request& request,
                              const Response& response,
                              absl::FunctionRef<absl::Status(bool by_fingerprint, const Route&)> call) {
    if (spec.graph == nullptr) {
      if (!spec.fingerprint.has_value())
        return InvalidArgument(ErrorReason::kOptionInvalid, "spec", "neither a graph nor a fingerprint is given");
      request.mutable_spec()->set_fingerprint(FingerprintBytes(*spec.fingerprint));
      FUSELINE_RETURN_IF_ERROR(call(true, RouteOf(spec, need)));
      return false;
    }
    SpecFieldsToProto(spec, request.mutable_spec());
    GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    if (spec.bypass_cache) {
      FUSELINE_RETURN_IF_ERROR(call(false, RouteOf(spec, need)));
      return true;
    }
    const Digest digest = RequestDigest(request.spec(), input_key);
    const Route route = RouteOf(spec, need, &digest);
    // Where the inputs' shapes alone say how large the symbols are, the server may know the graph at other sizes.
    std::optional<Digest> every_size;
    if (!input_key.empty() && spec.symbols.empty() && !spec.graph->is_static())
      every_size = RequestDigest(request.spec(), kEverySize);
    std::optional<Fingerprint> known = spec.fingerprint;
    if (!known.has_value()) known = memory_.Find(digest);
    if (!known.has_value() && every_size.has_value()) known = memory_.Find(*every_size);
    const auto remember = [&]() -> absl::Status {
      FUSELINE_ASSIGN_OR_RETURN(const CompileSummary summary, SummaryFromProto(response.summary()));
      memory_.Remember(digest, summary.fingerprint);
      if (every_size.has_value() && summary.symbolic_fingerprint.has_value())
        memory_.Remember(*every_size, *summary.symbolic_fingerprint);
      return absl::OkStatus();
    };
    if (known.has_value()) {
      v1::CompileSpec by_graph;
      by_graph.Swap(request.mutable_spec());
      request.mutable_spec()->set_fingerprint(FingerprintBytes(*known));
      const absl::Status status = call(true, route);
      if (status.ok()) {
        FUSELINE_RETURN_IF_ERROR(remember());
        return false;
      }
      // Asked again with the graph where the artifact is gone, and where an input is at fault: so the message has the
      // user's names and not canonical ones. Nothing has run by then.
      if (!absl::IsNotFound(status) && !absl::IsInvalidArgument(status)) return status;
      request.mutable_spec()->Swap(&by_graph);
    }
    FUSELINE_RETURN_IF_ERROR(call(false, route));
    FUSELINE_RETURN_IF_ERROR(remember());
    return true;
  }

  // BySpec of a unary call whose inputs bind nothing.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<bool> CallBySpec(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                  const CompileSpec& spec, Route::Need need, Request& request, Response& response) {
    return BySpec(spec, need, "", request, response,
                  [&](bool, const Route& route) { return Call(method, request, response, route); });
  }

  // The address of the server that the route's calls go to first; with round robin, that one such call goes to.
  absl::StatusOr<std::string> FirstServer(const Route& route);
  // Another server for the route; null where there is none.
  PooledServerPtr Another(const PooledServer& than, const Route& route, absl::Time deadline);
  // Compile with ClientOptions::hedge_delay.
  absl::Status CallHedged(const v1::CompileRequest& request, v1::CompileResponse& response, const Route& route);
  PinnedArtifacts& pinned() { return pinned_; }

  // Said here, since gRPC's own message for it is unreadable.
  absl::Status CheckMessageSize(const google::protobuf::Message& request) const;

  const ClientOptions& options() const { return options_; }
  ServerPool& servers() { return *servers_; }
  // Memory of received tensors, for those that come after them.
  launch::BlockPool& pool() { return *pool_; }

 private:
  // In place of an input key, which begins with a digit, '@' or a separator.
  static constexpr const char* kEverySize = "*";
  static std::string FingerprintBytes(const Fingerprint& fingerprint);
  // What a request asks for, whatever its messages' field order in memory.
  static Digest RequestDigest(const v1::CompileSpec& spec, const std::string& input_key);

  // Fixed after construction.
  const ClientOptions options_;
  const std::unique_ptr<ServerPool> servers_;  // thread-safe
  // Own synchronisation.
  static constexpr int64_t kMostIdleBytes = 256ll << 20;
  const std::shared_ptr<launch::BlockPool> pool_ = launch::BlockPool::Create(kMostIdleBytes);
  FingerprintMemory memory_;
  FingerprintMemory affinities_;  // of canonical forms, by the request's digest
  PinnedArtifacts pinned_;
};

// The status that a server, or gRPC for it, has answered.
absl::Status ErrorOf(const grpc::Status& status);

}  // namespace fuseline::client
