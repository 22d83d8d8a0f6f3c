// One run that a client asks for: its inputs and outputs resolved against the graph, then run, its results kept.
// Pipeline: ExecuteRequest -> Prepare -> (streamed inputs filled by the caller) -> Run -> ExecuteResponse.
// Everything that can be known before inputs arrive is checked by Prepare, and everything but the run itself before it.
// Errors: INVALID_ARGUMENT naming input, output or option; NOT_FOUND for a fingerprint or a handle; ALREADY_EXISTS and
// RESOURCE_EXHAUSTED for outputs that can't be kept; those of the engine. A run that fails keeps nothing.
// Thread-safety: thread-compatible. Blocking: Run. Tested by tests/unit/service/execute_service_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/launch/block_pool.h"
#include "common/tensor/stream/chunk_assembler.h"
#include "fuseline/v1/execute_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"

namespace fuseline::service {

class RunRequest {
 public:
  // Engine and context outlive it; tensors are borrowed from `request`. `streamed`: inputs without data come in chunks.
  RunRequest(Engine& engine, const CallContext& context, std::shared_ptr<const v1::ExecuteRequest> request,
             bool streamed)
      : engine_(engine), context_(context), request_(std::move(request)), streamed_(streamed) {}

  absl::Status Prepare();
  // The bytes of the inputs that come in chunks, and uninitialised tensors for them in the request's order. The caller
  // has to fill them before Run.
  int64_t streamed_bytes() const { return streamed_bytes_; }
  // Errors: RESOURCE_EXHAUSTED (kDeviceMemory).
  absl::StatusOr<std::vector<StreamedTensor>> AllocateStreamed(launch::BlockPool& pool);

  absl::Status Run();
  // After Run. Everything but the outputs' data.
  v1::ExecuteResponse Response() const;
  // The outputs to return, in the response's order.
  const std::vector<Tensor>& outputs() const { return outputs_; }

 private:
  // An input of the graph, in its order.
  struct Input {
    std::string name;
    TensorType want;           // may have symbolic dims
    size_t position = 0;       // in the request
    bool is_streamed = false;  // then the dtype and shape of `tensor` alone are set until the data is there
    Tensor tensor;
    executor::StoredTensorPtr stored;
  };
  struct Kept {
    size_t output = 0;  // of the graph
    executor::KeepOptions options;
    executor::StoredTensorInfo info;  // after Run
  };

  absl::Status ResolveSignature();
  absl::Status ResolveInput(Input& input);
  absl::Status ResolveOutputs();
  absl::Status CheckType(const Input& input, DType dtype, const Shape& shape, const std::string& handle) const;
  // Compiles without running, so that the sizes of the outputs are known.
  absl::Status Compile();
  absl::StatusOr<std::vector<std::unique_ptr<executor::TensorStore::Reservation>>> ReserveKept();
  absl::Status Keep(std::vector<std::unique_ptr<executor::TensorStore::Reservation>> reservations);

  Engine& engine_;
  const CallContext& context_;
  const std::shared_ptr<const v1::ExecuteRequest> request_;
  const bool streamed_;
  std::optional<CompileRequest> compile_;  // where the request has a graph
  CompileResult compiled_;                 // without an artifact until it is known
  std::vector<Input> inputs_;
  int64_t streamed_bytes_ = 0;
  std::vector<std::string> output_names_;
  std::vector<bool> returned_;  // by output
  std::vector<Kept> kept_;
  executor::Execution execution_;
  std::vector<Tensor> outputs_;
};

// A kept tensor, without an output's name and the rest of its lease.
void EncodeKeptTensor(const executor::StoredTensorInfo& info, v1::KeptTensor* proto);

}  // namespace fuseline::service
