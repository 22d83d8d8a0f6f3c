#include "server/service/execute_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/case_file/random_inputs.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "server/service/call_runner.h"
#include "server/service/message_codec.h"

namespace fuseline::service {
namespace {

constexpr int32_t kMaxBenchmarkRuns = 10'000;  // a few seconds of a kernel that takes a tenth of a millisecond
constexpr int32_t kDefaultBenchmarkRuns = 20;

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

absl::Status CheckCount(const std::string& field, int32_t count) {
  if (count >= 0 && count <= kMaxBenchmarkRuns) return absl::OkStatus();
  return InvalidArgument(ErrorReason::kOptionInvalid, field,
                         absl::StrCat("'", field, "' is ", count, ", not 0 to ", kMaxBenchmarkRuns));
}

// Bytes taken from a bound that several calls share, for as long as it lives.
class Reservation {
 public:
  Reservation(std::atomic<int64_t>& taken, int64_t bytes, int64_t bound) : taken_(taken), bytes_(bytes) {
    granted_ = taken_.fetch_add(bytes_) <= bound - bytes_;
  }
  ~Reservation() { taken_.fetch_sub(bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  bool granted() const { return granted_; }

 private:
  std::atomic<int64_t>& taken_;
  const int64_t bytes_;
  bool granted_;
};

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
    FUSELINE_ASSIGN_OR_RETURN(result.execution, engine_.ExecuteArtifact(result.compiled.artifact, executor::Arguments(inputs), options));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request->spec(), engine_));
    output_names = OutputNames(compile.graph);
    FUSELINE_ASSIGN_OR_RETURN(selected, SelectOutputs(output_names, *request));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                              BindTensors(InputNames(compile.graph), arguments, "input", engine_.limits(), request));
    FUSELINE_ASSIGN_OR_RETURN(result, engine_.Execute(compile, executor::Arguments(inputs), options));
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

absl::StatusOr<v1::BenchmarkResponse> ExecuteHandler::Benchmark(const v1::BenchmarkRequest& request,
                                                                const CallContext& context) const {
  FUSELINE_RETURN_IF_ERROR(CheckCount("warmup_count", request.warmup_count()));
  FUSELINE_RETURN_IF_ERROR(CheckCount("iteration_count", request.iteration_count()));
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult compiled, FindOrCompile(request.spec(), engine_));
  std::vector<TensorType> types;
  for (const PlanTensor& input : compiled.artifact->plan.inputs) types.push_back(input.type());
  FUSELINE_ASSIGN_OR_RETURN(const int64_t input_bytes, BenchmarkInputBytes(types));
  const Reservation reservation(benchmark_bytes_, input_bytes, kMaxBenchmarkInputBytes);
  if (!reservation.granted()) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                     "the inputs of other benchmarks fill the memory that the server has for them");
  }
  FUSELINE_RETURN_IF_ERROR(context.CheckAlive());
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, MakeBenchmarkInputs(types, request.seed()));
  FUSELINE_RETURN_IF_ERROR(context.CheckAlive());
  const int32_t iterations = request.iteration_count() > 0 ? request.iteration_count() : kDefaultBenchmarkRuns;
  FUSELINE_ASSIGN_OR_RETURN(const executor::BenchResult result,
                            engine_.Bench(compiled.artifact, inputs, request.warmup_count(), iterations));
  v1::BenchmarkResponse response;
  EncodeSummary(compiled, response.mutable_summary());
  ReportToProto(compiled.artifact->report, response.mutable_report());
  response.mutable_iteration_micros()->Add(result.micros.begin(), result.micros.end());
  response.set_copy_bytes_per_second(result.copy_bytes_per_second);
  response.set_moved_bytes(compiled.artifact->report.bytes_after());
  response.set_device(result.device);
  for (const executor::DeviceInfo& device : engine_.Info().devices) {
    if (device.ordinal == result.device) response.set_device_name(device.name);
  }
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
  grpc::ServerUnaryReactor* Benchmark(grpc::CallbackServerContext* context, const v1::BenchmarkRequest* request,
                                      v1::BenchmarkResponse* response) override {
    return runner_.Run<v1::BenchmarkRequest, v1::BenchmarkResponse>(
        context, "ExecuteService/Benchmark", Lane::kExecute, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.Benchmark(*owned, call); });
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
