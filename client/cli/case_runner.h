// Runs one case file on a backend and judges it.
// Pipeline: path -> RunCase (Backend) -> CaseOutcome -> `fuseline verify`.
// Thread-safety: RunCase may be called from several threads with one backend.
// Tested by tests/unit/client/cli_test.cc
#pragma once

#include <string>
#include <vector>

#include "client/cli/command.h"
#include "common/case_file/compare_tensors.h"

namespace fuseline::cli {

struct CaseOutcome {
  enum class Verdict { kPass, kFail, kSkip } verdict = Verdict::kFail;
  std::string path;
  std::string name;
  std::string detail;                     // the first mismatch, the error, or what is not supported
  std::string skipped_for;                // kSkip, what the server can't compile: the subject of its error
  std::vector<OutputComparison> outputs;  // where the case ran
};

// `target`: resolved. `flags`: its numerics and options override the file's. Never fails: what goes wrong is the
// outcome's.
CaseOutcome RunCase(Backend& backend, const std::string& path, const Target& target, const CompileFlags& flags);

}  // namespace fuseline::cli
