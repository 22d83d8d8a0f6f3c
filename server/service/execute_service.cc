#include "server/service/execute_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/case_file/random_inputs.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/stream/pooled_tensor.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "server/service/call_runner.h"
#include "server/service/message_codec.h"
#include "server/service/run_request.h"

namespace fuseline::service {
namespace {

constexpr int32_t kMaxBenchmarkRuns = 10'000;  // a few seconds of a kernel that takes a tenth of a millisecond
constexpr int32_t kDefaultBenchmarkRuns = 20;

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

}  // namespace

absl::StatusOr<v1::ExecuteResponse> ExecuteHandler::Execute(const std::shared_ptr<const v1::ExecuteRequest>& request,
                                                            const CallContext& context) const {
  RunRequest run(engine_, context, request, /*streamed=*/false);
  FUSELINE_RETURN_IF_ERROR(run.Prepare());
  FUSELINE_RETURN_IF_ERROR(run.Run());
  v1::ExecuteResponse response = run.Response();
  for (size_t i = 0; i < run.outputs().size(); ++i) {
    const Tensor& output = run.outputs()[i];
    response.mutable_outputs(static_cast<int>(i))
        ->mutable_tensor()
        ->set_data(output.data(), static_cast<size_t>(output.size_bytes()));
  }
  return response;
}

absl::Status ExecuteHandler::ExecuteStream(BufferReader& reader, BufferWriter& writer,
                                           const CallContext& context) const {
  InflightBytes::Hold held;
  std::optional<RunRequest> run;
  {
    FUSELINE_ASSIGN_OR_RETURN(v1::ExecuteStreamRequest message, ReceiveHeader<v1::ExecuteStreamRequest>(reader));
    // Aliased, since tensors that came in the header are borrowed from it.
    const auto owner = std::make_shared<v1::ExecuteStreamRequest>(std::move(message));
    run.emplace(engine_, context, std::shared_ptr<const v1::ExecuteRequest>(owner, &owner->header()),
                /*streamed=*/true);
    FUSELINE_RETURN_IF_ERROR(run->Prepare());
    if (hold_bytes_) {
      FUSELINE_ASSIGN_OR_RETURN(held, hold_bytes_(run->streamed_bytes()));
    }
    FUSELINE_ASSIGN_OR_RETURN(std::vector<StreamedTensor> streamed, run->AllocateStreamed(*pool_));
    ChunkAssembler assembler("input", std::move(streamed));
    FUSELINE_RETURN_IF_ERROR(ReceiveChunks<v1::ExecuteStreamRequest>(reader, assembler));
  }
  FUSELINE_RETURN_IF_ERROR(run->Run());
  v1::ExecuteStreamResponse header;
  *header.mutable_header() = run->Response();
  const v1::ExecuteResponse& response = header.header();
  FUSELINE_RETURN_IF_ERROR(writer.Write(ToByteBuffer(header)));
  for (size_t i = 0; i < run->outputs().size(); ++i)
    FUSELINE_RETURN_IF_ERROR(SendTensor(response.outputs(static_cast<int>(i)).name(), run->outputs()[i], writer));
  return absl::OkStatus();
}

absl::StatusOr<v1::PutTensorResponse> ExecuteHandler::PutTensor(BufferReader& reader,
                                                                const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const v1::PutTensorRequest request, ReceiveHeader<v1::PutTensorRequest>(reader));
  const v1::PutTensorHeader& header = request.header();
  FUSELINE_ASSIGN_OR_RETURN(TensorHeader type,
                            DecodeTensorHeader(header.dtype(), header.shape(), header.handle(), engine_.limits()));
  executor::KeepOptions options;
  options.handle = header.handle();
  options.owner = context.owner;
  options.lease = DecodeDuration(header.lease());
  // Before anything is allocated: the quota bounds what a client can make the server allocate.
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<executor::TensorStore::Reservation> reservation,
                            engine_.tensors().Reserve(options, type.size_bytes));
  FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, AllocatePooled(*pool_, type.dtype, std::move(type.shape)));
  ChunkAssembler assembler("tensor", {{header.handle(), tensor}});
  FUSELINE_RETURN_IF_ERROR(ReceiveChunks<v1::PutTensorRequest>(reader, assembler));
  FUSELINE_ASSIGN_OR_RETURN(const executor::StoredTensorInfo info,
                            engine_.tensors().Put(std::move(reservation), executor::StoreOnHost(std::move(tensor))));
  v1::PutTensorResponse response;
  response.set_handle(info.handle);
  response.set_size_bytes(info.size_bytes);
  EncodeDuration(info.lease, response.mutable_lease());
  return response;
}

absl::Status ExecuteHandler::GetTensor(const v1::GetTensorRequest& request, BufferWriter& writer,
                                       const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const executor::StoredTensorPtr stored,
                            engine_.tensors().Get(request.handle(), context.owner));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor tensor, engine_.FetchTensor(stored));
  v1::GetTensorResponse header;
  EncodeTensorHeader(tensor, header.mutable_header());
  FUSELINE_RETURN_IF_ERROR(writer.Write(ToByteBuffer(header)));
  return SendTensor("", tensor, writer);
}

absl::StatusOr<v1::DeleteTensorResponse> ExecuteHandler::DeleteTensor(const v1::DeleteTensorRequest& request,
                                                                      const CallContext& context) const {
  FUSELINE_RETURN_IF_ERROR(engine_.tensors().Delete(request.handle(), context.owner));
  return v1::DeleteTensorResponse();
}

absl::StatusOr<v1::ListTensorsResponse> ExecuteHandler::ListTensors(const v1::ListTensorsRequest&,
                                                                    const CallContext& context) const {
  v1::ListTensorsResponse response;
  const absl::Time now = absl::Now();
  int64_t size_bytes = 0;
  for (const executor::StoredTensorInfo& info : engine_.tensors().List(context.owner)) {
    v1::KeptTensor* tensor = response.add_tensors();
    EncodeKeptTensor(info, tensor);
    EncodeDuration(std::max(info.expires - now, absl::ZeroDuration()), tensor->mutable_remaining());
    size_bytes += info.size_bytes;
  }
  response.set_size_bytes(size_bytes);
  response.set_quota_bytes(engine_.tensors().options().owner_quota_bytes);
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

// The methods whose messages carry chunks get and give byte buffers.
using ExecuteServiceBase =
    v1::ExecuteService::WithCallbackMethod_Execute<v1::ExecuteService::WithCallbackMethod_Benchmark<
        v1::ExecuteService::WithRawCallbackMethod_ExecuteStream<v1::ExecuteService::WithRawCallbackMethod_PutTensor<
            v1::ExecuteService::WithRawCallbackMethod_GetTensor<v1::ExecuteService::WithCallbackMethod_DeleteTensor<
                v1::ExecuteService::WithCallbackMethod_ListTensors<v1::ExecuteService::Service>>>>>>>;

class ExecuteServiceImpl final : public ExecuteServiceBase {
 public:
  using Buffer = grpc::ByteBuffer;

  ExecuteServiceImpl(Engine& engine, CallRunner& runner)
      : handler_(engine, [&runner](int64_t bytes) { return runner.HoldBytes(bytes); }), runner_(runner) {}

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
  grpc::ServerBidiReactor<Buffer, Buffer>* ExecuteStream(grpc::CallbackServerContext* context) override {
    return runner_.RunBidi<Buffer, Buffer>(context, "ExecuteService/ExecuteStream", Lane::kStream,
                                           [this](auto& reader, auto& writer, const CallContext& call) {
                                             return handler_.ExecuteStream(reader, writer, call);
                                           });
  }
  grpc::ServerReadReactor<Buffer>* PutTensor(grpc::CallbackServerContext* context, Buffer* response) override {
    return runner_.RunClientStream<Buffer, Buffer>(
        context, "ExecuteService/PutTensor", Lane::kStream, response,
        [this](auto& reader, const CallContext& call) -> absl::StatusOr<Buffer> {
          FUSELINE_ASSIGN_OR_RETURN(const v1::PutTensorResponse answer, handler_.PutTensor(reader, call));
          return ToByteBuffer(answer);
        });
  }
  grpc::ServerWriteReactor<Buffer>* GetTensor(grpc::CallbackServerContext* context, const Buffer* request) override {
    return runner_.RunServerStream<Buffer, Buffer>(
        context, "ExecuteService/GetTensor", Lane::kStream, request,
        [this](const auto& owned, auto& writer, const CallContext& call) -> absl::Status {
          v1::GetTensorRequest message;
          Buffer buffer(*owned);
          grpc::ProtoBufferReader reader(&buffer);
          if (!message.ParseFromZeroCopyStream(&reader))
            return InvalidArgument(ErrorReason::kOptionInvalid, "", "the request can't be decoded");
          return handler_.GetTensor(message, writer, call);
        });
  }
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context, const v1::DeleteTensorRequest* request,
                                         v1::DeleteTensorResponse* response) override {
    return runner_.Run<v1::DeleteTensorRequest, v1::DeleteTensorResponse>(
        context, "ExecuteService/DeleteTensor", Lane::kExecute, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.DeleteTensor(*owned, call); });
  }
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context, const v1::ListTensorsRequest* request,
                                        v1::ListTensorsResponse* response) override {
    return runner_.Run<v1::ListTensorsRequest, v1::ListTensorsResponse>(
        context, "ExecuteService/ListTensors", Lane::kExecute, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.ListTensors(*owned, call); });
  }

 private:
  const ExecuteHandler handler_;
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExecuteService(Engine& engine, CallRunner& runner) {
  return std::make_unique<ExecuteServiceImpl>(engine, runner);
}

}  // namespace fuseline::service
