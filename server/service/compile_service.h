// fuseline.v1.CompileService: compile, explain, verify.
// Pipeline: message -> CompileHandler -> Engine -> message. proto/fuseline/v1/compile_service.proto has the codes of
// each method. Thread-safety: thread-safe, as the engine is. Blocking: every method but those that answer
// UNIMPLEMENTED. Tested by tests/unit/service/compile_service_test.cc
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "fuseline/v1/compile_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"

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
