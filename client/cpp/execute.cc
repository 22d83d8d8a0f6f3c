// Client::Execute, in one message or as a stream. Tested by tests/unit/client/client_test.cc and
// tests/unit/client/client_tensors_test.cc
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/stream_call.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/tensor/stream/chunk_assembler.h"
#include "common/tensor/stream/chunk_buffers.h"

namespace fuseline::client {
namespace {

// From here on inputs travel in chunks: below, a stream's extra messages cost more than the copies that it saves.
constexpr int64_t kStreamBytes = 4 << 20;
// In a stream, inputs up to this size travel in the header.
constexpr int64_t kInlineBytes = 16 << 10;

absl::Status InputError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("input '", name, "' ", message));
}

// The inputs in the graph's order. Checked here too, since a request by fingerprint no longer carries the graph's
// names.
absl::StatusOr<std::vector<const NamedTensor*>> InGraphOrder(const Graph& graph,
                                                             const std::vector<NamedTensor>& inputs) {
  std::vector<const NamedTensor*> ordered;
  ordered.reserve(inputs.size());
  const bool unnamed = std::all_of(inputs.begin(), inputs.end(), [](const NamedTensor& t) { return t.name.empty(); });
  if (unnamed) {
    if (inputs.size() != graph.inputs.size()) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, "inputs",
          absl::StrCat("the graph has ", graph.inputs.size(), " inputs, ", inputs.size(), " tensors were given"));
    }
    for (const NamedTensor& input : inputs) ordered.push_back(&input);
    return ordered;
  }
  absl::flat_hash_map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& input : inputs) {
    if (!by_name.emplace(input.name, &input).second) return InputError(input.name, "is given twice");
  }
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    const auto it = by_name.find(name);
    if (it == by_name.end()) return InputError(name, "has no tensor");
    ordered.push_back(it->second);
    by_name.erase(it);
  }
  if (!by_name.empty()) return InputError(by_name.begin()->first, "is not an input of the graph");
  return ordered;
}

// The shapes bind symbolic dims, and so are part of what is compiled. Of a kept tensor the handle stands for its shape:
// where that changes, the server refuses the fingerprint.
std::string InputKey(const std::vector<const NamedTensor*>& inputs) {
  std::string key;
  for (const NamedTensor* input : inputs) {
    if (!input->handle.empty()) {
      absl::StrAppend(&key, "@", input->handle, ";");
      continue;
    }
    for (const int64_t size : input->tensor.shape()) absl::StrAppend(&key, size, ",");
    key += ';';
  }
  return key;
}

// One run, whatever way its tensors travel.
class ExecuteCall {
 public:
  ExecuteCall(const CompileSpec& spec, const ExecuteOptions& options) : spec_(spec), options_(options) {}

  // First of all. Errors: INVALID_ARGUMENT for inputs and outputs that do not fit the graph.
  absl::Status Prepare(const std::vector<NamedTensor>& inputs);
  v1::ExecuteRequest& request() { return request_; }
  std::string input_key() const { return spec_.graph != nullptr ? InputKey(inputs_) : ""; }
  int64_t input_bytes() const { return input_bytes_; }

  void AddInputs(bool stream);
  // Names of outputs are the graph's, or canonical where it is asked for by fingerprint.
  void NameOutputs(bool by_fingerprint);
  // The attempts of the two ways. Both fill in response() and outputs().
  grpc::Status Stream(const std::shared_ptr<grpc::Channel>& channel, launch::BlockPool& pool,
                      grpc::ClientContext& context, absl::Status& received);
  absl::Status TakeOutputs();

  v1::ExecuteResponse& response() { return response_; }
  absl::StatusOr<ExecuteResult> Result();

 private:
  absl::StatusOr<size_t> OutputIndex(const std::string& name) const;
  absl::Status Receive(StreamCall& call, launch::BlockPool& pool);

  const CompileSpec& spec_;
  const ExecuteOptions& options_;
  std::vector<const NamedTensor*> inputs_;
  int64_t input_bytes_ = 0;
  std::vector<size_t> kept_outputs_;      // of the graph, by ExecuteOptions::keep
  std::vector<size_t> returned_outputs_;  // of the graph
  v1::ExecuteRequest request_;
  std::vector<const NamedTensor*> streamed_;  // of inputs_
  v1::ExecuteResponse response_;
  std::vector<Tensor> outputs_;
};

absl::StatusOr<size_t> ExecuteCall::OutputIndex(const std::string& name) const {
  const std::vector<GraphOutput>& outputs = spec_.graph->outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == name) return i;
  }
  return InvalidArgument(ErrorReason::kOptionInvalid, name, absl::StrCat("the graph has no output '", name, "'"));
}

absl::Status ExecuteCall::Prepare(const std::vector<NamedTensor>& inputs) {
  if (spec_.graph != nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(inputs_, InGraphOrder(*spec_.graph, inputs));
  } else {
    for (const NamedTensor& input : inputs) inputs_.push_back(&input);
  }
  for (const NamedTensor* input : inputs_) {
    if (input->handle.empty()) input_bytes_ += input->tensor.size_bytes();
  }
  if (options_.device.has_value()) request_.set_device(*options_.device);
  for (const KeptOutput& keep : options_.keep) {
    v1::KeptOutput* proto = request_.add_kept_outputs();
    proto->set_handle(keep.options.handle);
    if (keep.options.lease != absl::ZeroDuration()) DurationToProto(keep.options.lease, proto->mutable_lease());
  }
  if (spec_.graph == nullptr) return absl::OkStatus();
  const size_t output_count = spec_.graph->outputs.size();
  std::vector<bool> returned(output_count, options_.outputs.empty());
  for (const KeptOutput& keep : options_.keep) {
    FUSELINE_ASSIGN_OR_RETURN(const size_t index, OutputIndex(keep.name));
    kept_outputs_.push_back(index);
    returned[index] = false;
  }
  for (const std::string& name : options_.outputs) {
    FUSELINE_ASSIGN_OR_RETURN(const size_t index, OutputIndex(name));
    returned[index] = true;
  }
  for (size_t i = 0; i < output_count; ++i) {
    if (returned[i]) returned_outputs_.push_back(i);
  }
  return absl::OkStatus();
}

void ExecuteCall::AddInputs(bool stream) {
  request_.clear_inputs();
  streamed_.clear();
  for (const NamedTensor* input : inputs_) {
    v1::InputTensor* proto = request_.add_inputs();
    // With a graph by position, so that the request is the same by fingerprint.
    if (spec_.graph == nullptr) proto->set_name(input->name);
    if (!input->handle.empty()) {
      proto->set_handle(input->handle);
    } else if (stream && input->tensor.size_bytes() > kInlineBytes) {
      proto->mutable_tensor()->set_dtype(static_cast<v1::DataType>(input->tensor.dtype()));
      proto->mutable_tensor()->mutable_shape()->Add(input->tensor.shape().begin(), input->tensor.shape().end());
      streamed_.push_back(input);
    } else {
      TensorToProto(input->tensor, proto->mutable_tensor());
    }
  }
}

void ExecuteCall::NameOutputs(bool by_fingerprint) {
  const auto name = [&](size_t index) {
    return by_fingerprint ? absl::StrCat("out", index) : spec_.graph->outputs[index].name;
  };
  request_.clear_output_names();
  if (spec_.graph == nullptr) {
    for (const std::string& output : options_.outputs) request_.add_output_names(output);
  } else if (!options_.outputs.empty()) {
    for (const size_t output : returned_outputs_) request_.add_output_names(name(output));
  }
  for (size_t i = 0; i < options_.keep.size(); ++i) {
    request_.mutable_kept_outputs(static_cast<int>(i))
        ->set_name(spec_.graph == nullptr ? options_.keep[i].name : name(kept_outputs_[i]));
  }
}

grpc::Status ExecuteCall::Stream(const std::shared_ptr<grpc::Channel>& channel, launch::BlockPool& pool,
                                 grpc::ClientContext& context, absl::Status& received) {
  received = absl::OkStatus();
  response_.Clear();
  outputs_.clear();
  StreamCall call(channel, context, "/fuseline.v1.ExecuteService/ExecuteStream");
  v1::ExecuteStreamRequest header;
  header.mutable_header()->Swap(&request_);
  const grpc::ByteBuffer message = ToByteBuffer(header);
  header.mutable_header()->Swap(&request_);
  bool ok = call.Write(message);
  for (size_t i = 0; i < streamed_.size() && ok; ++i)
    ok = call.WriteTensor(spec_.graph == nullptr ? streamed_[i]->name : "", streamed_[i]->tensor);
  if (ok && call.WritesDone()) received = Receive(call, pool);
  return call.FinishReceived(received);
}

absl::Status ExecuteCall::Receive(StreamCall& call, launch::BlockPool& pool) {
  grpc::ByteBuffer buffer;
  if (!call.Read(buffer)) return absl::OkStatus();  // the call's status says why
  StreamMessage<v1::ExecuteStreamResponse> message;
  FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
  if (message.is_chunk || !message.message.has_header()) return Internal("the server sent no header");
  response_.Swap(message.message.mutable_header());
  std::vector<StreamedTensor> parts;
  for (const v1::NamedTensor& output : response_.outputs()) {
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, AllocateFromProto(output.tensor(), pool));
    outputs_.push_back(tensor);
    parts.push_back({output.name(), std::move(tensor)});
  }
  ChunkAssembler assembler("output", std::move(parts));
  while (!assembler.complete() && call.Read(buffer)) {
    FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
    if (!message.is_chunk) return Internal("the server sent two headers");
    FUSELINE_RETURN_IF_ERROR(assembler.Add(message.chunk));
  }
  return assembler.CheckComplete();
}

absl::Status ExecuteCall::TakeOutputs() {
  outputs_.clear();
  for (const v1::NamedTensor& output : response_.outputs()) {
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(output.tensor()));
    outputs_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExecuteResult> ExecuteCall::Result() {
  ExecuteResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response_.summary()));
  if (spec_.graph != nullptr && outputs_.size() != returned_outputs_.size())
    return Internal(absl::StrCat("the server sent ", outputs_.size(), " outputs of ", returned_outputs_.size()));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const std::string& name = spec_.graph != nullptr ? spec_.graph->outputs[returned_outputs_[i]].name
                                                     : response_.outputs(static_cast<int>(i)).name();
    result.outputs.push_back({name, std::move(outputs_[i])});
  }
  if (response_.kept_size() != static_cast<int>(options_.keep.size()))
    return Internal(absl::StrCat("the server kept ", response_.kept_size(), " outputs of ", options_.keep.size()));
  for (int i = 0; i < response_.kept_size(); ++i) {
    FUSELINE_ASSIGN_OR_RETURN(KeptTensor kept, KeptTensorFromProto(response_.kept(i)));
    kept.name = options_.keep[static_cast<size_t>(i)].name;
    result.kept.push_back(std::move(kept));
  }
  result.queue_time = DurationFromProto(response_.timings().queue_time());
  result.run_time = DurationFromProto(response_.timings().run_time());
  result.device = response_.device();
  return result;
}

}  // namespace

absl::StatusOr<ExecuteResult> Client::Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                              const ExecuteOptions& options) {
  ExecuteCall execute(spec, options);
  FUSELINE_RETURN_IF_ERROR(execute.Prepare(inputs));
  bool stream = execute.input_bytes() >= std::min(kStreamBytes, impl_->options().max_message_bytes);
  execute.AddInputs(stream);
  const bool uses_kept = !options.keep.empty() || std::any_of(inputs.begin(), inputs.end(),
                                                              [](const NamedTensor& t) { return !t.handle.empty(); });
  const auto run = [&](bool by_fingerprint, const Route& route) -> absl::Status {
    execute.NameOutputs(by_fingerprint);
    if (!stream) {
      const absl::Status status =
          impl_->Call(&v1::ExecuteService::Stub::Execute, execute.request(), execute.response(), route);
      if (status.ok()) return execute.TakeOutputs();
      // Of gRPC itself, and not of the server: a message is over a bound. Kept outputs may be kept by now.
      const bool too_large = absl::IsResourceExhausted(status) &&
                             absl::StrContains(std::string(status.message()), "message larger than max");
      if (!too_large || !options.keep.empty()) return status;
      stream = true;
      execute.AddInputs(stream);
    }
    absl::Status received;
    FUSELINE_RETURN_IF_ERROR(impl_->WithRetries(route, [&](PooledServer& server, grpc::ClientContext& context) {
      return execute.Stream(server.channel(), impl_->pool(), context, received);
    }));
    if (received.ok()) return absl::OkStatus();
    return Internal(absl::StrCat("the server's answer makes no sense: ", std::string(received.message())));
  };
  const auto call = [&](bool by_fingerprint, const Route& by_graph) {
    const absl::Status status = run(by_fingerprint, uses_kept ? impl_->RouteOfTensors() : by_graph);
    // The server knows the graph's names only where it got the graph.
    return by_fingerprint && spec.graph != nullptr ? RenameIndexError(CanonicalNames(*spec.graph), status) : status;
  };
  FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent, impl_->BySpec(spec, Route::Need::kExecute, execute.input_key(),
                                                                 execute.request(), execute.response(), call));
  FUSELINE_ASSIGN_OR_RETURN(ExecuteResult result, execute.Result());
  result.summary.graph_sent = graph_sent;
  if (!impl_->pinned().empty() && !impl_->pinned().WasAccepted(result.summary.fingerprint)) {
    const absl::Status accepted = Compile({.fingerprint = result.summary.fingerprint}).status();
    if (!accepted.ok()) return Wrap(accepted, "the results are withheld");
  }
  return result;
}

}  // namespace fuseline::client
