// fuseline.v1.CompileService: compile, explain, verify.
// Pipeline: message -> CompileHandler -> Engine -> message. proto/fuseline/v1/compile_service.proto has the codes of
// each method. Thread-safety: thread-safe, as the engine is. Blocking: every method but FindFast.
// Tested by tests/unit/service/compile_service_test.cc and tests/unit/service/compile_stream_test.cc
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fuseline/v1/compile_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"
#include "server/service/message_stream.h"

namespace grpc {
class Service;
}

namespace fuseline::service {

class CallRunner;

class CompileHandler {
 public:
  // The engine outlives it.
  explicit CompileHandler(Engine& engine) : engine_(engine) {}

  absl::StatusOr<v1::CompileResponse> Compile(const v1::CompileRequest& request, const CallContext& context) const;
  // The artifact of a request by fingerprint that is in memory: microseconds. Nothing: ask Compile.
  std::optional<CompileResult> FindFast(const v1::CompileRequest& request, const CallContext& context) const;
  absl::Status CompileStream(const v1::CompileRequest& request, MessageWriter<v1::CompileStreamResponse>& writer,
                             const CallContext& context) const;
  // `submit` runs a task on another thread, or refuses it. At most kBatchWindow of a batch's requests are submitted, or
  // answered and not yet written, at a time.
  static constexpr int kMaxBatch = 1000;
  static constexpr int kBatchWindow = 64;
  using Submit = std::function<absl::Status(std::function<void()> task)>;
  absl::Status BatchCompile(const v1::BatchCompileRequest& request, MessageWriter<v1::BatchCompileResponse>& writer,
                            const Submit& submit, const CallContext& context) const;
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request, const CallContext& context) const;
  // `request` is shared, since tensors are borrowed from it.
  absl::StatusOr<v1::VerifyResponse> Verify(const std::shared_ptr<const v1::VerifyRequest>& request,
                                            const CallContext& context) const;

 private:
  Engine& engine_;
};

// The service for grpc::ServerBuilder; engine and runner outlive it.
std::unique_ptr<grpc::Service> MakeCompileService(Engine& engine, CallRunner& runner);

}  // namespace fuseline::service
