// fuseline.v1.ExecuteService: run graphs on tensors, and keep tensors for later runs.
// Pipeline: message -> ExecuteHandler -> Engine -> message. proto/fuseline/v1/execute_service.proto has the codes of
// each method. Thread-safety: thread-safe, as the engine is. Blocking: all but DeleteTensor and ListTensors. Tested by
// tests/unit/service/execute_service_test.cc and tests/unit/service/tensor_service_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/launch/block_pool.h"
#include "fuseline/v1/execute_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"
#include "server/service/inflight_bytes.h"
#include "server/service/tensor_stream.h"

namespace grpc {
class Service;
}

namespace fuseline::service {

class CallRunner;

class ExecuteHandler {
 public:
  using HoldBytes = std::function<absl::StatusOr<InflightBytes::Hold>(int64_t)>;

  // The engine outlives it. `hold_bytes` grants the memory for the inputs of streams; empty: there is no bound.
  explicit ExecuteHandler(Engine& engine, HoldBytes hold_bytes = nullptr)
      : engine_(engine), hold_bytes_(std::move(hold_bytes)) {}

  // `request` is shared, since tensors are borrowed from it.
  absl::StatusOr<v1::ExecuteResponse> Execute(const std::shared_ptr<const v1::ExecuteRequest>& request,
                                              const CallContext& context) const;
  absl::StatusOr<v1::BenchmarkResponse> Benchmark(const v1::BenchmarkRequest& request,
                                                  const CallContext& context) const;
  absl::Status ExecuteStream(BufferReader& reader, BufferWriter& writer, const CallContext& context) const;
  absl::StatusOr<v1::PutTensorResponse> PutTensor(BufferReader& reader, const CallContext& context) const;
  absl::Status GetTensor(const v1::GetTensorRequest& request, BufferWriter& writer, const CallContext& context) const;
  absl::StatusOr<v1::DeleteTensorResponse> DeleteTensor(const v1::DeleteTensorRequest& request,
                                                        const CallContext& context) const;
  absl::StatusOr<v1::ListTensorsResponse> ListTensors(const v1::ListTensorsRequest& request,
                                                      const CallContext& context) const;

 private:
  Engine& engine_;
  const HoldBytes hold_bytes_;
  // Memory of uploaded tensors, for those that come after them.
  static constexpr int64_t kMostIdleBytes = 512ll << 20;
  const std::shared_ptr<launch::BlockPool> pool_ = launch::BlockPool::Create(kMostIdleBytes);
  // Host bytes of the inputs of the benchmarks that are running.
  mutable std::atomic<int64_t> benchmark_bytes_{0};
};

// The service for grpc::ServerBuilder; engine and runner outlive it.
std::unique_ptr<grpc::Service> MakeExecuteService(Engine& engine, CallRunner& runner);

}  // namespace fuseline::service
