// Requests whose target, options, fingerprint, symbols or counts are wrong.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/bad_inputs.h"

namespace fuseline::testing {
namespace {

constexpr char kSymbolic[] = R"(graph_text: "graph g(x: f32[n], y: f32[n]) {\n  %a = add(x, y)\n  return %a\n}")";
constexpr char kUnknown[] = R"(spec { fingerprint: "01234567890123456789012345678901" })";
constexpr char kTensor[] = R"(tensor { dtype: DATA_TYPE_F32 shape: 4 data: "0123456789abcdef" })";

std::string ManyRequests(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += "requests { } ";
  return all;
}

}  // namespace

std::vector<BadInput> BadRequests() {
  return {
      Request("no graph and no fingerprint", "CompileService.Compile", {R"(spec { target: "cpu" })"},
              ErrorReason::kOptionInvalid, "the request has neither graph nor fingerprint"),
      Request("no spec", "CompileService.Compile", {""}, ErrorReason::kOptionInvalid,
              "the request has neither graph nor fingerprint"),
      Request("no spec to explain", "CompileService.Explain", {""}, ErrorReason::kOptionInvalid,
              "the request has neither graph nor fingerprint"),
      Request("no spec to verify", "CompileService.Verify", {""}, ErrorReason::kOptionInvalid,
              "the request has neither graph nor fingerprint"),
      Request("no spec to execute", "ExecuteService.Execute", {""}, ErrorReason::kOptionInvalid,
              "the request has neither graph nor fingerprint"),
      Request("no spec to benchmark", "ExecuteService.Benchmark", {""}, ErrorReason::kOptionInvalid,
              "the request has neither graph nor fingerprint"),
      Request("target that does not exist", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "tpu" })")}, ErrorReason::kOptionInvalid,
              "target 'tpu' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("target in capitals", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "CPU" })")}, ErrorReason::kOptionInvalid,
              "target 'CPU' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("target with a space", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cpu " })")}, ErrorReason::kOptionInvalid,
              "target 'cpu ' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("target without an architecture", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:" })")}, ErrorReason::kOptionInvalid,
              "target 'cuda:' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("architecture of one digit", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:sm_9" })")}, ErrorReason::kOptionInvalid,
              "target 'cuda:sm_9' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("architecture with another suffix", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:sm_90b" })")}, ErrorReason::kOptionInvalid,
              "target 'cuda:sm_90b' is neither 'cpu' nor 'cuda:sm_XX'"),
      Request("very long target", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), " target: '", std::string(4000, 'c'), "' }")},
              ErrorReason::kOptionInvalid, "target 'cccccccccccccccccccc"),
      Request("architecture that no compiler knows", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:sm_999" })")}, ErrorReason::kTargetNotAvailable,
              "target 'cuda"),
      Request("device that the server lacks", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:sm_90" } inputs { )", kTensor, " }")},
              ErrorReason::kTargetNotAvailable,
              "no device here runs target 'cuda:sm_90': CUDA devices are switched off"),
      Request("verify on a device that the server lacks", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( target: "cuda:sm_90" } inputs { )", kTensor, " }")},
              ErrorReason::kTargetNotAvailable,
              "no device here runs target 'cuda:sm_90': CUDA devices are switched off"),
      Request("numerics that are not known", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), " options { numerics: 7 } }")}, ErrorReason::kOptionInvalid,
              "option 'numerics': 7 is not known"),
      Request("negative numerics", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), " options { numerics: -1 } }")}, ErrorReason::kOptionInvalid,
              "option 'numerics': -1 is not known"),
      Request("empty fingerprint", "CompileService.Compile", {R"(spec { fingerprint: "" })"},
              ErrorReason::kOptionInvalid, "a fingerprint has 32 bytes, not 0"),
      Request("fingerprint of 31 bytes", "CompileService.Compile",
              {R"(spec { fingerprint: "0123456789012345678901234567890" })"}, ErrorReason::kOptionInvalid,
              "a fingerprint has 32 bytes, not 31"),
      Request("fingerprint in hexadecimal", "CompileService.Compile",
              {R"(spec { fingerprint: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" })"},
              ErrorReason::kOptionInvalid, "a fingerprint has 32 bytes, not 64"),
      Request("fingerprint of nothing", "CompileService.Compile", {kUnknown}, ErrorReason::kFingerprintUnknown,
              "no artifact with this fingerprint: send the graph"),
      Request("fingerprint of nothing to explain", "CompileService.Explain", {kUnknown},
              ErrorReason::kFingerprintUnknown, "no artifact with this fingerprint: send the graph"),
      Request("fingerprint of nothing to execute", "ExecuteService.Execute", {kUnknown},
              ErrorReason::kFingerprintUnknown, "no artifact with this fingerprint: send the graph"),
      Request("fingerprint of nothing to benchmark", "ExecuteService.Benchmark", {kUnknown},
              ErrorReason::kFingerprintUnknown, "no artifact with this fingerprint: send the graph"),
      Request("fingerprint to verify", "CompileService.Verify", {kUnknown}, ErrorReason::kOptionInvalid,
              "a fingerprint is not enough for this call: send the graph"),
      Request("stages of a fingerprint", "CompileService.Explain", {absl::StrCat(kUnknown, " include_stages: true")},
              ErrorReason::kOptionInvalid, "a fingerprint is not enough for this call: send the graph"),
      Request("key fields of a fingerprint", "CompileService.Explain", {absl::StrCat(kUnknown, " include_key: true")},
              ErrorReason::kOptionInvalid, "a fingerprint is not enough for this call: send the graph"),
      Request("symbol without a size", "CompileService.Compile", {absl::StrCat("spec { ", kSymbolic, " }")},
              ErrorReason::kUnsupported,
              "compiling for every size of 'n' is not implemented in this version: give the symbol a size"),
      Request("symbol without a size to benchmark", "ExecuteService.Benchmark",
              {absl::StrCat("spec { ", kSymbolic, " }")}, ErrorReason::kUnsupported,
              "compiling for every size of 'n' is not implemented in this version: give the symbol a size"),
      Request("symbol of negative size", "CompileService.Compile",
              {absl::StrCat("spec { ", kSymbolic, R"( symbol_sizes { key: "n" value: -1 } })")},
              ErrorReason::kTensorMismatch, "symbol 'n': size -1 is negative"),
      Request("symbol that the graph lacks", "CompileService.Compile",
              {absl::StrCat("spec { ", kSymbolic,
                            R"( symbol_sizes { key: "n" value: 4 } symbol_sizes { key: "m" value: 4 } })")},
              ErrorReason::kTensorMismatch, "symbol 'm' is in no input's type"),
      Request("symbol for a graph without symbols", "CompileService.Compile",
              {absl::StrCat("spec { ", GoodText(), R"( symbol_sizes { key: "n" value: 4 } })")},
              ErrorReason::kGraphStructure, "the graph has no symbol 'n'"),
      Request("symbol over the limit", "CompileService.Compile",
              {absl::StrCat("spec { ", kSymbolic, R"( symbol_sizes { key: "n" value: 9223372036854775807 } })")},
              ErrorReason::kLimitExceeded, "input 'x': f32[9223372036854775807] has more than 1048576 elements"),
      Request(
          "type error that a size makes", "CompileService.Compile",
          {R"(spec { graph_text: "graph g(x: f32[n], y: f32[4]) {\n  %a = add(x, y)\n  return %a\n}" symbol_sizes { key: "n" value: 3 } })"},
          ErrorReason::kGraphTypeMismatch, "node '%a': add: shapes [3] and [4] do not broadcast"),
      Request("negative count of warm-up runs", "ExecuteService.Benchmark",
              {absl::StrCat("spec { ", GoodText(), " } warmup_count: -1")}, ErrorReason::kOptionInvalid,
              "'warmup_count' is -1, not 0 to 10000"),
      Request("too many warm-up runs", "ExecuteService.Benchmark",
              {absl::StrCat("spec { ", GoodText(), " } warmup_count: 10001")}, ErrorReason::kOptionInvalid,
              "'warmup_count' is 10001, not 0 to 10000"),
      Request("negative count of runs", "ExecuteService.Benchmark",
              {absl::StrCat("spec { ", GoodText(), " } iteration_count: -1")}, ErrorReason::kOptionInvalid,
              "'iteration_count' is -1, not 0 to 10000"),
      Request("too many runs", "ExecuteService.Benchmark",
              {absl::StrCat("spec { ", GoodText(), " } iteration_count: 2147483647")}, ErrorReason::kOptionInvalid,
              "'iteration_count' is 2147483647, not 0 to 10000"),
      Request("eviction, which comes later", "AdminService.EvictCache", {"all: true"}, ErrorReason::kUnsupported,
              "method 'EvictCache' comes in a later version: stop the server and empty its cache's folder"),
      Request("export, which comes later", "AdminService.ExportCache", {""}, ErrorReason::kUnsupported,
              "method 'ExportCache' comes in a later version: copy the cache's folder while the server is stopped"),
      Request("import, which comes later", "AdminService.ImportCache", {R"(chunk: "abc")"}, ErrorReason::kUnsupported,
              "method 'ImportCache' comes in a later version: compile the graphs instead"),
      Request("batch of too many", "CompileService.BatchCompile", {ManyRequests(1001)}, ErrorReason::kLimitExceeded,
              "a batch of 1001 requests is over the limit of 1000"),
      Request("stream of a bad graph", "CompileService.CompileStream", {R"(spec { graph_text: "graph" })"},
              ErrorReason::kGraphSyntax, "line 1, column 6: expected '(' before the inputs, got the end of the text"),
  };
}

}  // namespace fuseline::testing
