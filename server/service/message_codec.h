// The parts of messages that several services share: what to compile, tensors and summaries.
// Pipeline: message -> engine's types, and back.
// Errors: INVALID_ARGUMENT naming the field, input or node. Thread-safety: pure functions, save what they ask of the
// engine. Tested by tests/unit/service/message_codec_test.cc
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fingerprint/fingerprint.h"
#include "common/ir/graph.h"
#include "common/tensor/tensor.h"
#include "fuseline/v1/compile_service.pb.h"
#include "fuseline/v1/tensor.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"

namespace fuseline::service {

// A spec that gives a graph (as a message or as text), ready for the engine. An empty target becomes DefaultTarget.
absl::StatusOr<CompileRequest> DecodeGraphSpec(const v1::CompileSpec& spec, const Engine& engine);
// The fingerprint of a spec that gives one.
absl::StatusOr<Fingerprint> DecodeFingerprint(const v1::CompileSpec& spec);
// The artifact of a spec of either kind: looked up, or compiled where it is not there, waiting as long as the call
// does.
absl::StatusOr<CompileResult> FindOrCompile(const v1::CompileSpec& spec, Engine& engine,
                                            const CallContext& context = {});
// Until the call's deadline, and as long as its client wants it.
cache::WaitOptions WaitFor(const CallContext& context);
// Tells the call's notes what came of compiling.
void NoteCompiled(const CompileResult& result, const CallContext& context);
// The first target that the server can execute, else the first that it can compile for. FAILED_PRECONDITION where there
// is none.
absl::StatusOr<Target> DefaultTarget(const EngineInfo& info);

void EncodeSummary(const CompileResult& result, v1::CompileSummary* proto);
v1::CacheOutcome EncodeOutcome(cache::Outcome outcome);

// `owner` keeps the message alive: large tensors are borrowed from it, not copied. `name` is for messages.
absl::StatusOr<Tensor> DecodeTensor(const v1::Tensor& proto, const std::string& name, const GraphLimits& limits,
                                    const std::shared_ptr<const void>& owner);
void EncodeTensor(const Tensor& tensor, v1::Tensor* proto);
// A tensor's type within the limits; its data is not looked at.
struct TensorHeader {
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t size_bytes = 0;
};
absl::StatusOr<TensorHeader> DecodeTensorHeader(v1::DataType dtype,
                                                const google::protobuf::RepeatedField<int64_t>& shape,
                                                const std::string& name, const GraphLimits& limits);
void EncodeTensorHeader(const Tensor& tensor, v1::Tensor* proto);
void EncodeDuration(absl::Duration duration, google::protobuf::Duration* proto);
absl::Duration DecodeDuration(const google::protobuf::Duration& proto);

// A named tensor of a request, still in the message. `tensor` is null where the message has none.
struct TensorArgument {
  std::string name;
  const v1::Tensor* tensor = nullptr;
};
// The tensors in the order of `names`: `arguments` are all named, in any order, or all unnamed, by position; each
// exactly once. `what` is "input" or "expected output", for messages.
absl::StatusOr<std::vector<Tensor>> BindTensors(const std::vector<std::string>& names,
                                                const std::vector<TensorArgument>& arguments, const std::string& what,
                                                const GraphLimits& limits, const std::shared_ptr<const void>& owner);

// Of the above, without the tensors: for each of `names` the position of its argument in `given`.
absl::StatusOr<std::vector<size_t>> BindNames(const std::vector<std::string>& names,
                                              const std::vector<std::string>& given, const std::string& what);

std::vector<std::string> InputNames(const Graph& graph);
std::vector<std::string> OutputNames(const Graph& graph);

}  // namespace fuseline::service
