#include "server/service/compile_service.h"

#include <string>
#include <utility>
#include <vector>

#include "common/artifact/codec/artifact_codec.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "server/service/call_runner.h"
#include "server/service/message_codec.h"

namespace fuseline::service {
namespace {

std::vector<TensorArgument> Arguments(const google::protobuf::RepeatedPtrField<v1::NamedTensor>& tensors) {
  std::vector<TensorArgument> arguments;
  arguments.reserve(static_cast<size_t>(tensors.size()));
  for (const v1::NamedTensor& tensor : tensors)
    arguments.push_back({tensor.name(), tensor.has_tensor() ? &tensor.tensor() : nullptr});
  return arguments;
}

}  // namespace

absl::StatusOr<v1::CompileResponse> CompileHandler::Compile(const v1::CompileRequest& request,
                                                            const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, FindOrCompile(request.spec(), engine_));
  v1::CompileResponse response;
  EncodeSummary(result, response.mutable_summary());
  ReportToProto(result.artifact->report, response.mutable_report());
  if (!request.omit_artifact()) {
    v1::Artifact* artifact = response.mutable_artifact();
    ArtifactToProto(*result.artifact, artifact);
    artifact->clear_report();  // it is in the response already
    if (!request.include_source()) {
      for (v1::KernelImage& kernel : *artifact->mutable_kernels()) kernel.clear_source();
    }
  }
  return response;
}

absl::StatusOr<v1::ExplainResponse> CompileHandler::Explain(const v1::ExplainRequest& request,
                                                            const CallContext& context) const {
  v1::ExplainResponse response;
  if (request.spec().source_case() == v1::CompileSpec::kFingerprint && !request.include_stages() &&
      !request.include_key()) {
    FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, FindOrCompile(request.spec(), engine_));
    EncodeSummary(result, response.mutable_summary());
    ReportToProto(result.artifact->report, response.mutable_report());
    return response;
  }
  FUSELINE_ASSIGN_OR_RETURN(const CompileRequest compile, DecodeGraphSpec(request.spec(), engine_));
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, engine_.Compile(compile));
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
  FUSELINE_ASSIGN_OR_RETURN(const VerifyResult result, engine_.Verify(compile, inputs, expected, tolerance));
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

class CompileServiceImpl final : public v1::CompileService::CallbackService {
 public:
  CompileServiceImpl(Engine& engine, CallRunner& runner) : handler_(engine), runner_(runner) {}

  grpc::ServerUnaryReactor* Compile(grpc::CallbackServerContext* context, const v1::CompileRequest* request,
                                    v1::CompileResponse* response) override {
    return runner_.Run<v1::CompileRequest, v1::CompileResponse>(
        context, "CompileService/Compile", Lane::kCompile, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.Compile(*owned, call); });
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
    return runner_.Refuse<grpc::ServerWriteReactor<v1::BatchCompileResponse>>(
        context, "CompileService/BatchCompile",
        Unimplemented("BatchCompile", "method 'BatchCompile' comes in a later version: call Compile for each graph"));
  }

 private:
  const CompileHandler handler_;
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCompileService(Engine& engine, CallRunner& runner) {
  return std::make_unique<CompileServiceImpl>(engine, runner);
}

}  // namespace fuseline::service
