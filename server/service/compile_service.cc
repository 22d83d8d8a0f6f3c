#include "server/service/compile_service.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <atomic>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "server/service/call_runner.h"
#include "server/service/encoded_artifacts.h"
#include "server/service/message_codec.h"
#include "server/service/status_codec.h"

namespace fuseline::service {
namespace {

std::vector<TensorArgument> Arguments(const google::protobuf::RepeatedPtrField<v1::NamedTensor>& tensors) {
  std::vector<TensorArgument> arguments;
  arguments.reserve(static_cast<size_t>(tensors.size()));
  for (const v1::NamedTensor& tensor : tensors)
    arguments.push_back({tensor.name(), tensor.has_tensor() ? &tensor.tensor() : nullptr});
  return arguments;
}

ArtifactParts PartsOf(const v1::CompileRequest& request) { return {request.omit_artifact(), request.include_source()}; }

v1::CompileStage EncodeStage(cache::BuildStage stage) {
  switch (stage) {
    case cache::BuildStage::kCacheCheck:
      return v1::COMPILE_STAGE_CACHE_CHECK;
    case cache::BuildStage::kQueued:
      return v1::COMPILE_STAGE_QUEUED;
    case cache::BuildStage::kBuilding:
      return v1::COMPILE_STAGE_COMPILING;
    case cache::BuildStage::kDone:
      return v1::COMPILE_STAGE_DONE;
  }
  return v1::COMPILE_STAGE_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<v1::CompileResponse> CompileHandler::Compile(const v1::CompileRequest& request,
                                                            const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, FindOrCompile(request.spec(), engine_, context));
  v1::CompileResponse response;
  EncodeCompileResponse(result, PartsOf(request), &response);
  return response;
}

std::optional<CompileResult> CompileHandler::FindFast(const v1::CompileRequest& request,
                                                      const CallContext& context) const {
  if (request.spec().source_case() != v1::CompileSpec::kFingerprint) return std::nullopt;
  const absl::StatusOr<Fingerprint> fingerprint = DecodeFingerprint(request.spec());
  if (!fingerprint.ok()) return std::nullopt;
  std::optional<CompileResult> found = engine_.FindInMemory(*fingerprint);
  if (found.has_value()) NoteCompiled(*found, context);
  return found;
}

absl::Status CompileHandler::CompileStream(const v1::CompileRequest& request,
                                           MessageWriter<v1::CompileStreamResponse>& writer,
                                           const CallContext& context) const {
  int last = v1::COMPILE_STAGE_UNSPECIFIED;
  absl::Status broken;  // why no stage can be told any more
  const auto tell = [&](v1::CompileStage stage) {
    if (!broken.ok() || stage <= last) return;
    last = stage;
    v1::CompileStreamResponse message;
    message.set_stage(stage);
    broken = writer.Write(std::move(message));
  };
  CompileResult result;
  if (request.spec().source_case() == v1::CompileSpec::kFingerprint) {
    tell(v1::COMPILE_STAGE_CACHE_CHECK);
    FUSELINE_ASSIGN_OR_RETURN(result, FindOrCompile(request.spec(), engine_, context));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request.spec(), engine_));
    cache::WaitOptions wait = WaitFor(context);
    wait.stop = [&] { return broken.ok() ? context.CheckAlive() : broken; };
    wait.on_stage = [&](cache::BuildStage stage) { tell(EncodeStage(stage)); };
    FUSELINE_ASSIGN_OR_RETURN(result, engine_.Compile(compile, wait));
    NoteCompiled(result, context);
  }
  tell(v1::COMPILE_STAGE_DONE);
  FUSELINE_RETURN_IF_ERROR(broken);
  v1::CompileStreamResponse message;
  EncodeCompileResponse(result, PartsOf(request), message.mutable_response());
  return writer.Write(std::move(message));
}

namespace {

// What the call's thread and those that compile share.
struct Batch {
  absl::Mutex mutex;
  absl::CondVar news;
  std::deque<v1::BatchCompileResponse> done ABSL_GUARDED_BY(mutex);
  int running ABSL_GUARDED_BY(mutex) = 0;
  std::atomic<bool> stopped{false};

  void Done(v1::BatchCompileResponse answer) {
    absl::MutexLock lock(&mutex);
    done.push_back(std::move(answer));
    --running;
    news.Signal();  // under the lock: the batch ends once its call has seen the last answer
  }
};

v1::BatchCompileResponse Failure(int index, const absl::Status& status) {
  ErrorParts parts = DescribeError(status);
  v1::BatchCompileResponse answer;
  answer.set_index(index);
  answer.mutable_failure()->set_code(parts.code);
  answer.mutable_failure()->set_message(std::move(parts.message));
  answer.mutable_failure()->set_reason(std::move(parts.reason));
  answer.mutable_failure()->set_subject(std::move(parts.subject));
  return answer;
}

}  // namespace

absl::Status CompileHandler::BatchCompile(const v1::BatchCompileRequest& request,
                                          MessageWriter<v1::BatchCompileResponse>& writer, const Submit& submit,
                                          const CallContext& context) const {
  if (request.requests_size() > kMaxBatch) {
    return InvalidArgument(
        ErrorReason::kLimitExceeded, "requests",
        absl::StrCat("a batch of ", request.requests_size(), " requests is over the limit of ", kMaxBatch));
  }
  Batch batch;
  CallContext item_context = context;
  item_context.notes = nullptr;  // one call's, and here are many
  item_context.is_cancelled = [&batch, &context] {
    return batch.stopped.load() || (context.is_cancelled && context.is_cancelled());
  };
  const auto compile = [&](int index) {
    v1::BatchCompileResponse answer;
    const absl::Status status = CallRunner::Guard([&]() -> absl::Status {
      FUSELINE_RETURN_IF_ERROR(item_context.CheckAlive());
      FUSELINE_ASSIGN_OR_RETURN(*answer.mutable_response(), Compile(request.requests(index), item_context));
      answer.set_index(index);
      return absl::OkStatus();
    });
    batch.Done(status.ok() ? std::move(answer) : Failure(index, status));
  };
  absl::Status status;
  int next = 0;
  while (true) {
    v1::BatchCompileResponse answer;
    {
      absl::MutexLock lock(&batch.mutex);
      while (status.ok() && next < request.requests_size() &&
             batch.running + static_cast<int>(batch.done.size()) < kBatchWindow) {
        const int index = next++;
        if (absl::Status refused = submit([&compile, index] { compile(index); }); refused.ok()) {
          ++batch.running;
        } else {
          batch.done.push_back(Failure(index, refused));
        }
      }
      while (batch.done.empty() && batch.running > 0) batch.news.Wait(&batch.mutex);
      if (batch.done.empty()) return status;  // none runs, and none is left to submit
      answer = std::move(batch.done.front());
      batch.done.pop_front();
    }
    if (status.ok()) status = writer.Write(std::move(answer));
    // What was submitted uses this call's request, so it is waited for, but it need not be done any more.
    if (!status.ok()) batch.stopped.store(true);
  }
}

absl::StatusOr<v1::ExplainResponse> CompileHandler::Explain(const v1::ExplainRequest& request,
                                                            const CallContext& context) const {
  v1::ExplainResponse response;
  if (request.spec().source_case() == v1::CompileSpec::kFingerprint && !request.include_stages() &&
      !request.include_key() && !request.include_miss()) {
    FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, FindOrCompile(request.spec(), engine_, context));
    EncodeSummary(result, response.mutable_summary());
    ReportToProto(result.artifact->report, response.mutable_report());
    return response;
  }
  FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request.spec(), engine_));
  if (request.include_miss()) {
    FUSELINE_ASSIGN_OR_RETURN(const MissReport miss, engine_.ExplainMiss(compile));
    v1::MissReport* out = response.mutable_miss();
    out->set_is_there(miss.is_there);
    if (miss.nearest.has_value()) out->set_nearest_fingerprint(miss.nearest->bytes.data(), miss.nearest->bytes.size());
    out->set_compared_count(miss.compared);
    for (const KeyDifference& difference : miss.differences) {
      v1::KeyDifference* to = out->add_differences();
      to->set_field(difference.field);
      to->set_wanted(difference.wanted);
      to->set_found(difference.found);
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, engine_.Compile(compile, WaitFor(context)));
  NoteCompiled(result, context);
  EncodeSummary(result, response.mutable_summary());
  ArtifactReport report = result.artifact->report;
  RenameReportValues(CanonicalNames(compile.graph), report);
  ReportToProto(report, response.mutable_report());
  if (request.include_stages()) {
    FUSELINE_RETURN_IF_ERROR(context.CheckAlive());
    FUSELINE_ASSIGN_OR_RETURN(const StageDump dump, engine_.DumpStages(compile));
    for (const auto& [name, text] : dump.stages) {
      v1::Stage* stage = response.add_stages();
      stage->set_name(name);
      stage->set_text(text);
    }
  }
  if (request.include_key()) {
    Fingerprint fingerprint;
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<KeyField> fields, engine_.ExplainKey(compile, &fingerprint));
    for (const KeyField& field : fields) {
      v1::KeyField* out = response.add_key_fields();
      out->set_name(field.name);
      out->set_value(field.value);
      out->set_digest(field.digest);
    }
  }
  return response;
}

absl::StatusOr<v1::VerifyResponse> CompileHandler::Verify(const std::shared_ptr<const v1::VerifyRequest>& request,
                                                          const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request->spec(), engine_));
  FUSELINE_ASSIGN_OR_RETURN(
      const std::vector<Tensor> inputs,
      BindTensors(InputNames(compile.graph), Arguments(request->inputs()), "input", engine_.limits(), request));
  std::vector<Tensor> expected;
  if (request->expected_size() > 0) {
    FUSELINE_ASSIGN_OR_RETURN(expected, BindTensors(OutputNames(compile.graph), Arguments(request->expected()),
                                                    "expected output", engine_.limits(), request));
  }
  Tolerance tolerance;
  tolerance.rtol = request->tolerance().rtol();
  tolerance.atol = request->tolerance().atol();
  tolerance.negative_zero_matters = request->tolerance().negative_zero_matters();
  // Written so that NaN is refused too.
  if (!(tolerance.rtol >= 0 && tolerance.atol >= 0)) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "tolerance", "'tolerance' must not be negative");
  }
  executor::ExecuteOptions options;
  options.deadline = context.deadline;
  options.cancelled = [context] { return context.CheckAlive(); };
  FUSELINE_ASSIGN_OR_RETURN(const VerifyResult result, engine_.Verify(compile, inputs, expected, tolerance, options));
  NoteCompiled(result.compiled, context);
  v1::VerifyResponse response;
  EncodeSummary(result.compiled, response.mutable_summary());
  response.set_passed(result.passed);
  for (const OutputComparison& comparison : result.outputs) {
    v1::OutputComparison* out = response.add_outputs();
    out->set_name(comparison.name);
    out->set_element_count(comparison.elements);
    out->set_mismatch_count(comparison.mismatches);
    out->set_max_abs_error(comparison.max_abs_error);
    out->set_max_rel_error(comparison.max_rel_error);
    out->set_first_mismatch(comparison.first_mismatch);
  }
  return response;
}

namespace {

// Compile takes and gives bytes, so that the answer to a hit is put together from what is encoded already.
class CompileServiceImpl final
    : public v1::CompileService::WithRawCallbackMethod_Compile<v1::CompileService::CallbackService> {
 public:
  CompileServiceImpl(Engine& engine, CallRunner& runner) : handler_(engine), runner_(runner) {}

  grpc::ServerUnaryReactor* Compile(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    return runner_.Run<grpc::ByteBuffer, grpc::ByteBuffer>(
        context, "CompileService/Compile", Lane::kCompile, request, response,
        [this](const auto& owned, const CallContext& call) { return SlowCompile(*owned, call); },
        [this](const grpc::ByteBuffer& owned, const CallContext& call, grpc::ByteBuffer& answer) {
          return FastCompile(owned, call, answer);
        });
  }
  grpc::ServerWriteReactor<v1::CompileStreamResponse>* CompileStream(grpc::CallbackServerContext* context,
                                                                     const v1::CompileRequest* request) override {
    return runner_.RunServerStream<v1::CompileRequest, v1::CompileStreamResponse>(
        context, "CompileService/CompileStream", Lane::kStream, request,
        [this](const auto& owned, MessageWriter<v1::CompileStreamResponse>& writer, const CallContext& call) {
          return handler_.CompileStream(*owned, writer, call);
        });
  }
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override {
    return runner_.Run<v1::ExplainRequest, v1::ExplainResponse>(
        context, "CompileService/Explain", Lane::kCompile, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.Explain(*owned, call); });
  }
  grpc::ServerUnaryReactor* Verify(grpc::CallbackServerContext* context, const v1::VerifyRequest* request,
                                   v1::VerifyResponse* response) override {
    return runner_.Run<v1::VerifyRequest, v1::VerifyResponse>(
        context, "CompileService/Verify", Lane::kCompile, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.Verify(owned, call); });
  }
  grpc::ServerWriteReactor<v1::BatchCompileResponse>* BatchCompile(grpc::CallbackServerContext* context,
                                                                   const v1::BatchCompileRequest* request) override {
    return runner_.RunServerStream<v1::BatchCompileRequest, v1::BatchCompileResponse>(
        context, "CompileService/BatchCompile", Lane::kStream, request,
        [this](const auto& owned, MessageWriter<v1::BatchCompileResponse>& writer, const CallContext& call) {
          return handler_.BatchCompile(
              *owned, writer,
              [this](std::function<void()> task) { return runner_.Submit(Lane::kCompile, std::move(task)); }, call);
        });
  }

 private:
  // A request by fingerprint is about 40 bytes; parsing what can't be one is left to the slow path.
  static constexpr size_t kMaxFastRequestBytes = 256;
  // About the artifacts of a thousand graphs.
  static constexpr int64_t kEncodedBytes = 64 << 20;

  static absl::StatusOr<v1::CompileRequest> Parse(const grpc::ByteBuffer& message) {
    v1::CompileRequest request;
    grpc::ByteBuffer bytes = message;  // shares them; parsing empties it
    if (!grpc::SerializationTraits<v1::CompileRequest>::Deserialize(&bytes, &request).ok()) {
      return InvalidArgument(ErrorReason::kGraphSyntax, "", "the message can't be decoded");
    }
    return request;
  }
  bool FastCompile(const grpc::ByteBuffer& message, const CallContext& context, grpc::ByteBuffer& response) {
    if (message.Length() > kMaxFastRequestBytes) return false;
    const absl::StatusOr<v1::CompileRequest> request = Parse(message);
    if (!request.ok()) return false;
    const std::optional<CompileResult> found = handler_.FindFast(*request, context);
    if (!found.has_value()) return false;
    response = encoded_.Response(*found, PartsOf(*request));
    return true;
  }
  absl::StatusOr<grpc::ByteBuffer> SlowCompile(const grpc::ByteBuffer& message, const CallContext& context) {
    FUSELINE_ASSIGN_OR_RETURN(const v1::CompileRequest request, Parse(message));
    FUSELINE_ASSIGN_OR_RETURN(const v1::CompileResponse response, handler_.Compile(request, context));
    grpc::ByteBuffer bytes;
    bool own = false;
    const grpc::Status status = grpc::SerializationTraits<v1::CompileResponse>::Serialize(response, &bytes, &own);
    if (!status.ok()) return Internal(absl::StrCat("the response can't be encoded: ", status.error_message()));
    return bytes;
  }

  const CompileHandler handler_;
  EncodedArtifacts encoded_{kEncodedBytes};
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCompileService(Engine& engine, CallRunner& runner) {
  return std::make_unique<CompileServiceImpl>(engine, runner);
}

}  // namespace fuseline::service
