// Client::Execute. Tested by tests/unit/client/client_test.cc
#include "absl/container/flat_hash_map.h"
#include "client/cpp/client_impl.h"

namespace fuseline::client {
namespace {

absl::Status InputError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("input '", name, "' ", message));
}

// The inputs in the graph's order. Checked here too, since a request by fingerprint no longer carries the graph's
// names.
absl::StatusOr<std::vector<Tensor>> InGraphOrder(const Graph& graph, const std::vector<NamedTensor>& inputs) {
  std::vector<Tensor> ordered;
  ordered.reserve(inputs.size());
  const bool unnamed = std::all_of(inputs.begin(), inputs.end(), [](const NamedTensor& t) { return t.name.empty(); });
  if (unnamed) {
    if (inputs.size() != graph.inputs.size()) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, "inputs",
          absl::StrCat("the graph has ", graph.inputs.size(), " inputs, ", inputs.size(), " tensors were given"));
    }
    for (const NamedTensor& input : inputs) ordered.push_back(input.tensor);
    return ordered;
  }
  absl::flat_hash_map<std::string, const Tensor*> by_name;
  for (const NamedTensor& input : inputs) {
    if (!by_name.emplace(input.name, &input.tensor).second) return InputError(input.name, "is given twice");
  }
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    const auto it = by_name.find(name);
    if (it == by_name.end()) return InputError(name, "has no tensor");
    ordered.push_back(*it->second);
    by_name.erase(it);
  }
  if (!by_name.empty()) return InputError(by_name.begin()->first, "is not an input of the graph");
  return ordered;
}

// The shapes bind symbolic dims, and so are part of what is compiled.
std::string InputKey(const std::vector<Tensor>& inputs) {
  std::string key;
  for (const Tensor& input : inputs) {
    for (const int64_t size : input.shape()) absl::StrAppend(&key, size, ",");
    key += ';';
  }
  return key;
}

}  // namespace

absl::StatusOr<ExecuteResult> Client::Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs) {
  v1::ExecuteRequest request;
  std::vector<Tensor> ordered;
  if (spec.graph != nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(ordered, InGraphOrder(*spec.graph, inputs));
    for (const Tensor& tensor : ordered) TensorToProto(tensor, request.add_inputs()->mutable_tensor());
  } else {
    for (const NamedTensor& input : inputs) {
      v1::InputTensor* proto = request.add_inputs();
      proto->set_name(input.name);
      TensorToProto(input.tensor, proto->mutable_tensor());
    }
  }
  v1::ExecuteResponse response;
  FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent, impl_->BySpec(spec, InputKey(ordered), request, response, [&](bool) {
    return impl_->Call(impl_->execute(), &v1::ExecuteService::Stub::Execute, request, response);
  }));
  ExecuteResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  if (spec.graph != nullptr && response.outputs_size() != static_cast<int>(spec.graph->outputs.size())) {
    return Internal(
        absl::StrCat("the server sent ", response.outputs_size(), " outputs of ", spec.graph->outputs.size()));
  }
  for (int i = 0; i < response.outputs_size(); ++i) {
    FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(response.outputs(i).tensor()));
    const std::string& name =
        spec.graph != nullptr ? spec.graph->outputs[static_cast<size_t>(i)].name : response.outputs(i).name();
    result.outputs.push_back({name, std::move(tensor)});
  }
  const v1::ExecuteTimings& timings = response.timings();
  result.queue_time = absl::Seconds(timings.queue_time().seconds()) + absl::Nanoseconds(timings.queue_time().nanos());
  result.run_time = absl::Seconds(timings.run_time().seconds()) + absl::Nanoseconds(timings.run_time().nanos());
  result.device = response.device();
  return result;
}

}  // namespace fuseline::client
