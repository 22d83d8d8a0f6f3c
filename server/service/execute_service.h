// fuseline.v1.ExecuteService: run graphs on tensors.
// Pipeline: message -> ExecuteHandler -> Engine -> message. proto/fuseline/v1/execute_service.proto has the codes of
// each method. Thread-safety: thread-safe, as the engine is. Blocking: Execute, Benchmark. Tested by
// tests/unit/service/execute_service_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "fuseline/v1/execute_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"

namespace grpc {
class Service;
}

namespace fuseline::service {

class CallRunner;

class ExecuteHandler {
 public:
  // The engine outlives it.
  explicit ExecuteHandler(Engine& engine) : engine_(engine) {}

  // `request` is shared, since tensors are borrowed from it.
  absl::StatusOr<v1::ExecuteResponse> Execute(const std::shared_ptr<const v1::ExecuteRequest>& request,
                                              const CallContext& context) const;
  absl::StatusOr<v1::BenchmarkResponse> Benchmark(const v1::BenchmarkRequest& request,
                                                  const CallContext& context) const;

 private:
  Engine& engine_;
  // Host bytes of the inputs of the benchmarks that are running.
  mutable std::atomic<int64_t> benchmark_bytes_{0};
};

// The service for grpc::ServerBuilder; engine and runner outlive it.
std::unique_ptr<grpc::Service> MakeExecuteService(Engine& engine, CallRunner& runner);

}  // namespace fuseline::service
