// Bytes as a request to compile, through the handler and the real engine, with stand-ins for the compilers alone: the
// request is answered or blamed in words that help, the service goes on, and no answer is INTERNAL.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "fuseline/v1/compile_service.pb.h"
#include "server/compiler/kernel_compiler.h"
#include "server/engine/engine.h"
#include "server/service/compile_service.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/graph_words.h"
#include "tests/fuzz/message_fuzzer.h"

namespace fuseline::fuzz {
namespace {

// Every source is "compiled" to the digest-sized beginning of itself.
class StandInCompiler : public compiler::KernelCompiler {
 public:
  absl::Status Available() const override { return absl::OkStatus(); }
  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    KernelImage image;
    image.format = source.target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
    image.entry = source.entry;
    image.bytes = source.text.substr(0, 64);
    image.source = source.text;
    return image;
  }
  absl::StatusOr<std::string> CompileToPtx(const KernelSource& source) override { return "ptx"; }
  std::string Identity() const override { return "stand-in"; }
};

std::unique_ptr<Engine> MakeEngine() {
  EngineOptions options;
  options.limits = SmallLimits();
  options.cache_memory_bytes = 4 << 20;
  options.compile_threads = 1;
  options.executor.cpu_devices = 0;
  options.executor.use_cuda = false;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(options, std::make_unique<StandInCompiler>(), std::make_unique<StandInCompiler>());
  RequireOk(engine.status(), "create the engine");
  return *std::move(engine);
}

v1::CompileRequest GoodRequest() {
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text("graph g(x: f32[4, 3]) {\n  %t = sum(x) {dims = [1]}\n  return y = %t\n}\n");
  request.mutable_spec()->set_target("cpu");
  return request;
}

// An error that a client can act on.
void RequireHelps(const absl::Status& status, std::string_view what) {
  if (status.ok()) return;
  if (status.message().empty()) ReportFinding(what, StrCat("no message: ", status.ToString()));
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      // It names the field, node, input or place; in quotes where the client's own name of it is empty.
      if (GetErrorSubject(status).empty() && status.message().find("line ") == absl::string_view::npos &&
          status.message().find('\'') == absl::string_view::npos)
        ReportFinding(what, StrCat("names nothing: ", status.ToString()));
      break;
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      break;
    default:
      ReportFinding(what, status.ToString());
  }
  if (GetErrorReason(status) == ErrorReason::kUnspecified)
    ReportFinding(what, StrCat("no reason: ", status.ToString()));
}

[[maybe_unused]] std::vector<std::string> RequestWords() {
  std::vector<std::string> words = GraphWords();
  for (const char* word : {"cpu", "cuda:sm_90", "cuda:sm_90a", "cuda:sm_20", "cuda", "batch"}) words.emplace_back(word);
  return words;
}

}  // namespace
}  // namespace fuseline::fuzz

FUSELINE_MESSAGE_FUZZER(fuseline::v1::CompileRequest, fuseline::fuzz::RequestWords)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  static const std::unique_ptr<Engine> engine = MakeEngine();
  static const v1::CompileRequest good = GoodRequest();
  const service::CompileHandler handler(*engine);
  const service::CallContext context;

  v1::CompileRequest request;
  if (!ParseMessage(AsText(data, size), &request)) return 0;
  const absl::StatusOr<v1::CompileResponse> response = handler.Compile(request, context);
  RequireHelps(response.status(), "compile");
  if (response.ok()) {
    if (response->summary().fingerprint().size() != 32) ReportFinding("compile", "the response has no fingerprint");
    if (response->has_artifact() == request.omit_artifact())
      ReportFinding("compile", "artifact there, or not, unasked");
    if (request.include_source()) {
      v1::ExplainRequest explain;
      *explain.mutable_spec() = request.spec();
      explain.set_include_key(true);
      explain.set_include_stages(true);
      const absl::StatusOr<v1::ExplainResponse> explained = handler.Explain(explain, context);
      if (request.spec().source_case() == v1::CompileSpec::kFingerprint) {
        RequireHelps(explained.status(), "explain");
      } else {
        RequireOk(explained.status(), "explain what was compiled");
        if (!request.spec().bypass_cache())
          RequireEqual(explained->summary().fingerprint(), response->summary().fingerprint(), "fingerprint, explained");
      }
    }
  }
  RequireOk(handler.Compile(good, context).status(), "a good request afterwards");
  return 0;
}
