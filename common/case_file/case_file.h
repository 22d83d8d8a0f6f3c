// A case file (docs/ir.md, "A case file"): one graph, its inputs and the right results, in JSON. What `fuseline verify`
// runs and the form in which a user sends a bug report. Pipeline: JSON text -> ParseCaseFile -> CaseFile -> verify;
// CaseFile -> WriteCaseFile -> JSON text. The graph stays text: a case may be about a graph that is refused, so parsing
// and verifying it is the runner's work. Ownership: values; tensors share their storage. Thread-safety: pure functions.
// Errors: INVALID_ARGUMENT (kCaseFile), the subject and message naming the field ("inputs.x.data[3]").
// Tested by tests/unit/client/case_file_test.cc
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/case_file/compare_tensors.h"
#include "common/ir/verify_graph.h"
#include "common/target/compile_options.h"
#include "common/tensor/tensor.h"

namespace fuseline {

struct CaseInput {
  std::string name;
  Tensor tensor;  // `fill` and `random` are already spelled out
};

struct CaseOutput {
  std::string name;
  bool reference = false;  // whatever the reference interpreter gives; `tensor` is empty
  Tensor tensor;           // a -0.0 in it was spelled "-0.0"
};

// The case must be refused so.
struct ExpectedError {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string contains;  // in the message; empty: any
};

struct CaseFile {
  std::string name;
  std::string source;  // where the case comes from
  std::string why;     // one sentence
  std::string graph_text;
  std::vector<CaseInput> inputs;    // in the file's order, which need not be the graph's
  std::vector<CaseOutput> outputs;  // empty exactly when `error` is set
  Tolerance tolerance;              // negative_zero_matters is always set
  CompileOptions options;
  SymbolSizes symbols;
  std::optional<ExpectedError> error;
};

// Bounds on a file, so that a small text can't ask for a large tensor.
struct CaseFileLimits {
  int64_t max_text_bytes = 256ll << 20;
  int64_t max_tensor_bytes = 4ll << 30;  // of all tensors of the file together
  int64_t max_rank = 12;
  int64_t max_depth = 16;  // of nested JSON values
};

absl::StatusOr<CaseFile> ParseCaseFile(std::string_view json, const CaseFileLimits& limits = {});
// Reads and parses; errors name the path as well. Errors besides: NOT_FOUND (kInputOutput) where it can't be read.
absl::StatusOr<CaseFile> ReadCaseFile(const std::string& path, const CaseFileLimits& limits = {});

// JSON that ParseCaseFile reads back equal, bit for bit save NaN payloads; one line for each tensor.
std::string WriteCaseFile(const CaseFile& case_file);

}  // namespace fuseline
