// Tensors that do not fit the graph, or that are malformed.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/bad_inputs.h"

namespace fuseline::testing {
namespace {

constexpr char kSymbolic[] = R"(graph_text: "graph g(x: f32[n], y: f32[n]) {\n  %a = add(x, y)\n  return %a\n}")";
constexpr char kTensor[] = R"(tensor { dtype: DATA_TYPE_F32 shape: 4 data: "0123456789abcdef" })";

}  // namespace

std::vector<BadInput> BadTensors() {
  return {
      Request("no tensor", "ExecuteService.Execute", {absl::StrCat("spec { ", GoodText(), " } ")},
              ErrorReason::kTensorMismatch, "0 input tensors, the graph has 1"),
      Request("a tensor too many", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), " } inputs { ", kTensor, " } inputs { ", kTensor, " }")},
              ErrorReason::kTensorMismatch, "2 input tensors, the graph has 1"),
      Request("unknown input", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "z" )", kTensor, " }")},
              ErrorReason::kTensorMismatch, "the graph has no input 'z'"),
      Request("input given twice", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, R"( } inputs { name: "x" )",
                            kTensor, " }")},
              ErrorReason::kTensorMismatch, "input 'x' is given twice"),
      Request(
          "missing input", "ExecuteService.Execute",
          {absl::StrCat(
              R"(spec { graph_text: "graph g(x: f32[4], y: f32[4]) {\n  %a = add(x, y)\n  return %a\n}" } inputs { name: "x" )",
              kTensor, " }")},
          ErrorReason::kTensorMismatch, "input 'y' is missing"),
      Request(
          "one with a name and one without", "ExecuteService.Execute",
          {absl::StrCat(
              R"(spec { graph_text: "graph g(x: f32[4], y: f32[4]) {\n  %a = add(x, y)\n  return %a\n}" } inputs { name: "x" )",
              kTensor, " } inputs { ", kTensor, " }")},
          ErrorReason::kTensorMismatch, "some input tensors have names and some do not"),
      Request("input without a tensor", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" })")}, ErrorReason::kTensorMismatch,
              "input 'x' has no tensor"),
      Request("tensor of another dtype", "ExecuteService.Execute",
              {absl::StrCat(
                  "spec { ", GoodText(),
                  R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_I32 shape: 4 data: "0123456789abcdef" } })")},
              ErrorReason::kTensorMismatch, "input 'x' is f32[4], the tensor given is i32[4]"),
      Request(
          "tensor of another shape", "ExecuteService.Execute",
          {absl::StrCat(
              "spec { ", GoodText(),
              R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 2 shape: 2 data: "0123456789abcdef" } })")},
          ErrorReason::kTensorMismatch, "input 'x' is f32[4], the tensor given is f32[2, 2]"),
      Request(
          "tensor of another size", "ExecuteService.Execute",
          {absl::StrCat("spec { ", GoodText(),
                        R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 3 data: "0123456789ab" } })")},
          ErrorReason::kTensorMismatch, "input 'x' is f32[4], the tensor given is f32[3]"),
      Request(
          "a byte too few", "ExecuteService.Execute",
          {absl::StrCat("spec { ", GoodText(),
                        R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 4 data: "0123456789abcde" } })")},
          ErrorReason::kTensorMismatch, "tensor 'x': 15 bytes of data, not 16 as dtype and shape ask for"),
      Request("a byte too many", "ExecuteService.Execute",
              {absl::StrCat(
                  "spec { ", GoodText(),
                  R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 4 data: "0123456789abcdef0" } })")},
              ErrorReason::kTensorMismatch, "tensor 'x': 17 bytes of data, not 16 as dtype and shape ask for"),
      Request(
          "no bytes", "ExecuteService.Execute",
          {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 4 } })")},
          ErrorReason::kTensorMismatch, "tensor 'x': 0 bytes of data, not 16 as dtype and shape ask for"),
      Request("tensor without a dtype", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(),
                            R"( } inputs { name: "x" tensor { shape: 4 data: "0123456789abcdef" } })")},
              ErrorReason::kTensorMismatch, "tensor 'x': dtype 0 is not known"),
      Request("tensor of an unknown dtype", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(),
                            R"( } inputs { name: "x" tensor { dtype: 50 shape: 4 data: "0123456789abcdef" } })")},
              ErrorReason::kTensorMismatch, "tensor 'x': dtype 50 is not known"),
      Request("negative size", "ExecuteService.Execute",
              {absl::StrCat(
                  "spec { ", GoodText(),
                  R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: -4 data: "0123456789abcdef" } })")},
              ErrorReason::kTensorMismatch, "tensor 'x': dim -4 is negative"),
      Request(
          "two negative sizes", "ExecuteService.Execute",
          {absl::StrCat(
              "spec { ", GoodText(),
              R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: -2 shape: -2 data: "0123456789abcdef" } })")},
          ErrorReason::kTensorMismatch, "tensor 'x': dim -2 is negative"),
      Request(
          "sizes that overflow", "ExecuteService.Execute",
          {absl::StrCat(
              "spec { ", GoodText(),
              R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 4294967296 shape: 4294967296 data: "" } })")},
          ErrorReason::kLimitExceeded, "tensor 'x': more elements than the limit of 1048576"),
      Request(
          "sizes that overflow beside a zero", "ExecuteService.Execute",
          {absl::StrCat(
              "spec { ", GoodText(),
              R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 9223372036854775807 shape: 9223372036854775807 shape: 0 } })")},
          ErrorReason::kLimitExceeded, "tensor 'x': more elements than the limit of 1048576"),
      Request(
          "rank over the limit", "ExecuteService.Execute",
          {absl::StrCat(
              "spec { ", GoodText(),
              R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 shape: 1 shape: 1 shape: 1 shape: 1 shape: 1 shape: 1 shape: 1 shape: 1 shape: 1 data: "0123" } })")},
          ErrorReason::kLimitExceeded, "tensor 'x': rank 9 is over the limit of 8"),
      Request(
          "bool that is neither", "ExecuteService.Execute",
          {R"(spec { graph_text: "graph g(x: bool[2]) {\n  %a = logical_not(x)\n  return %a\n}" } inputs { name: "x" tensor { dtype: DATA_TYPE_BOOL shape: 2 data: "\000\002" } })"},
          ErrorReason::kTensorMismatch, "tensor 'x': a bool is neither 0 nor 1"),
      Request(
          "sizes that contradict each other", "ExecuteService.Execute",
          {absl::StrCat("spec { ", kSymbolic, R"( } inputs { name: "x" )", kTensor,
                        R"( } inputs { name: "y" tensor { dtype: DATA_TYPE_F32 shape: 3 data: "0123456789ab" } })")},
          ErrorReason::kTensorMismatch, "input 'y': shape [3] does not fit f32[n]: symbol 'n' is 4 elsewhere"),
      Request(
          "tensor of another rank than its symbols", "ExecuteService.Execute",
          {absl::StrCat("spec { ", kSymbolic,
                        R"( } inputs { name: "x" tensor { dtype: DATA_TYPE_F32 data: "0123" } } inputs { name: "y" )",
                        kTensor, " }")},
          ErrorReason::kTensorMismatch, "input 'x': shape [] does not fit f32[n]"),
      Request("size that contradicts the symbol", "ExecuteService.Execute",
              {absl::StrCat("spec { ", kSymbolic, R"( symbol_sizes { key: "n" value: 5 } } inputs { name: "x" )",
                            kTensor, R"( } inputs { name: "y" )", kTensor, " }")},
              ErrorReason::kTensorMismatch, "input 'x' is f32[5], the tensor given is f32[4]"),
      Request("output that the graph lacks", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, R"( } output_names: "z")")},
              ErrorReason::kOptionInvalid, "the graph has no output 'z'"),
      Request("negative device", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, " } device: -1")},
              ErrorReason::kOptionInvalid, "'device' is negative: leave it unset for any device"),
      Request("device that is not there", "ExecuteService.Execute",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, " } device: 99")},
              ErrorReason::kTargetNotAvailable, "there is no device 99"),
      Request("nothing to verify with", "CompileService.Verify", {absl::StrCat("spec { ", GoodText(), " } ")},
              ErrorReason::kTensorMismatch, "0 input tensors, the graph has 1"),
      Request("expected output of an unknown name", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, R"( } expected { name: "z" )",
                            kTensor, " }")},
              ErrorReason::kTensorMismatch, "the graph has no expected output 'z'"),
      Request("an expected output too many", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, " } expected { ", kTensor,
                            " } expected { ", kTensor, " }")},
              ErrorReason::kTensorMismatch, "2 expected output tensors, the graph has 1"),
      Request("expected output given twice", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, R"( } expected { name: "y" )",
                            kTensor, R"( } expected { name: "y" )", kTensor, " }")},
              ErrorReason::kTensorMismatch, "expected output 'y' is given twice"),
      Request(
          "expected output without a tensor", "CompileService.Verify",
          {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, R"( } expected { name: "y" })")},
          ErrorReason::kTensorMismatch, "expected output 'y' has no tensor"),
      Request("expected output with a byte too few", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor,
                            R"( } expected { name: "y" tensor { dtype: DATA_TYPE_F32 shape: 4 data: "012" } })")},
              ErrorReason::kTensorMismatch, "tensor 'y': 3 bytes of data, not 16 as dtype and shape ask for"),
      Request("negative tolerance", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, " } tolerance { rtol: -1 }")},
              ErrorReason::kOptionInvalid, "'tolerance' must not be negative"),
      Request("tolerance that is no number", "CompileService.Verify",
              {absl::StrCat("spec { ", GoodText(), R"( } inputs { name: "x" )", kTensor, " } tolerance { atol: nan }")},
              ErrorReason::kOptionInvalid, "'tolerance' must not be negative"),
  };
}

}  // namespace fuseline::testing
