#include "server/service/execute_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "server/service/call_runner.h"
#include "server/service/message_codec.h"

namespace fuseline::service {
namespace {

absl::StatusOr<std::vector<TensorArgument>> Arguments(const v1::ExecuteRequest& request) {
  std::vector<TensorArgument> arguments;
  arguments.reserve(static_cast<size_t>(request.inputs_size()));
  for (const v1::InputTensor& input : request.inputs()) {
    if (input.source_case() == v1::InputTensor::kHandle) {
      return Unimplemented(input.name(), absl::StrCat("input '", input.name(),
                                                      "': tensors by handle come in a later version: send the tensor"));
    }
    arguments.push_back({input.name(), input.has_tensor() ? &input.tensor() : nullptr});
  }
  return arguments;
}

// Which outputs to return, in the graph's order.
absl::StatusOr<std::vector<bool>> SelectOutputs(const std::vector<std::string>& names,
                                                const v1::ExecuteRequest& request) {
  std::vector<bool> selected(names.size(), request.output_names_size() == 0);
  for (const std::string& name : request.output_names()) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "output_names",
                             absl::StrCat("the graph has no output '", name, "'"));
    }
    selected[static_cast<size_t>(it - names.begin())] = true;
  }
  return selected;
}

void EncodeMicros(double micros, google::protobuf::Duration* proto) {
  const int64_t nanos = absl::ToInt64Nanoseconds(absl::Microseconds(micros));
  proto->set_seconds(nanos / 1'000'000'000);
  proto->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

std::vector<std::string> Names(const std::vector<PlanTensor>& tensors) {
  std::vector<std::string> names;
  for (const PlanTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

executor::ExecuteOptions Options(const v1::ExecuteRequest& request, const CallContext& context) {
  executor::ExecuteOptions options;
  options.deadline = context.deadline;
  options.cancelled = [context] { return context.CheckAlive(); };
  if (request.has_device()) options.device = request.device();
  return options;
}

}  // namespace

absl::StatusOr<v1::ExecuteResponse> ExecuteHandler::Execute(const std::shared_ptr<const v1::ExecuteRequest>& request,
                                                            const CallContext& context) const {
  const executor::ExecuteOptions options = Options(*request, context);
  if (request->has_device() && request->device() < 0) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "device",
                           "'device' is negative: leave it unset for any device");
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<TensorArgument> arguments, Arguments(*request));
  ExecuteResult result;
  std::vector<std::string> output_names;
  std::vector<bool> selected;
  if (request->spec().source_case() == v1::CompileSpec::kFingerprint) {
    FUSELINE_ASSIGN_OR_RETURN(result.compiled, FindOrCompile(request->spec(), engine_));
    const LaunchPlan& plan = result.compiled.artifact->plan;
    output_names = Names(plan.outputs);
    FUSELINE_ASSIGN_OR_RETURN(selected, SelectOutputs(output_names, *request));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                              BindTensors(Names(plan.inputs), arguments, "input", engine_.limits(), request));
    FUSELINE_ASSIGN_OR_RETURN(result.execution, engine_.ExecuteArtifact(result.compiled.artifact, inputs, options));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request->spec(), engine_));
    output_names = OutputNames(compile.graph);
    FUSELINE_ASSIGN_OR_RETURN(selected, SelectOutputs(output_names, *request));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                              BindTensors(InputNames(compile.graph), arguments, "input", engine_.limits(), request));
    FUSELINE_ASSIGN_OR_RETURN(result, engine_.Execute(compile, inputs, options));
  }
  if (result.execution.outputs.size() != output_names.size()) {
    return Internal(
        absl::StrCat("a run gave ", result.execution.outputs.size(), " outputs, not ", output_names.size()));
  }
  v1::ExecuteResponse response;
  EncodeSummary(result.compiled, response.mutable_summary());
  for (size_t i = 0; i < output_names.size(); ++i) {
    if (!selected[i]) continue;
    v1::NamedTensor* output = response.add_outputs();
    output->set_name(output_names[i]);
    EncodeTensor(result.execution.outputs[i], output->mutable_tensor());
  }
  EncodeMicros(result.execution.queue_micros, response.mutable_timings()->mutable_queue_time());
  EncodeMicros(result.execution.run_micros, response.mutable_timings()->mutable_run_time());
  response.set_device(result.execution.device);
  return response;
}

namespace {

class ExecuteServiceImpl final : public v1::ExecuteService::CallbackService {
 public:
  ExecuteServiceImpl(Engine& engine, CallRunner& runner) : handler_(engine), runner_(runner) {}

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context, const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override {
    return runner_.Run<v1::ExecuteRequest, v1::ExecuteResponse>(
        context, "ExecuteService/Execute", Lane::kExecute, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.Execute(owned, call); });
  }
  grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>* ExecuteStream(
      grpc::CallbackServerContext* context) override {
    return runner_.Refuse<grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>(
        context, "ExecuteService/ExecuteStream", Later("ExecuteStream", "use Execute"));
  }
  grpc::ServerReadReactor<v1::PutTensorRequest>* PutTensor(grpc::CallbackServerContext* context,
                                                           v1::PutTensorResponse*) override {
    return runner_.Refuse<grpc::ServerReadReactor<v1::PutTensorRequest>>(
        context, "ExecuteService/PutTensor", Later("PutTensor", "send tensors with each call"));
  }
  grpc::ServerWriteReactor<v1::GetTensorResponse>* GetTensor(grpc::CallbackServerContext* context,
                                                             const v1::GetTensorRequest*) override {
    return runner_.Refuse<grpc::ServerWriteReactor<v1::GetTensorResponse>>(
        context, "ExecuteService/GetTensor", Later("GetTensor", "take tensors from Execute"));
  }
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context, const v1::DeleteTensorRequest*,
                                         v1::DeleteTensorResponse*) override {
    return runner_.Refuse<grpc::ServerUnaryReactor>(context, "ExecuteService/DeleteTensor",
                                                    Later("DeleteTensor", "this version keeps no tensors"));
  }

 private:
  static absl::Status Later(const std::string& method, const std::string& instead) {
    return Unimplemented(method, absl::StrCat("method '", method, "' comes in a later version: ", instead));
  }

  const ExecuteHandler handler_;
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExecuteService(Engine& engine, CallRunner& runner) {
  return std::make_unique<ExecuteServiceImpl>(engine, runner);
}

}  // namespace fuseline::service
