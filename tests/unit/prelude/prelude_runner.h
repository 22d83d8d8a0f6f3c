// Runs prelude functions of one target over arrays, for tests: every function of the target's table is wrapped in a
// loop (on the GPU, a kernel) and all loops are compiled at once. Pipeline: table of PreludeFunction -> PreludeRunner
// -> arrays of results, which the tests compare with references of their own. Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {

// A function's signature, read from its text. Types are C types; bool counts as one byte.
struct PreludeSignature {
  std::string name;
  std::string result;
  std::vector<std::string> operands;
};
// The functions of `table` which take and return scalars or storage structs.
std::vector<PreludeSignature> ScalarSignatures(absl::Span<const PreludeFunction> table);
// The prelude with all of `signatures`' functions, then a loop fl_loop_<name> for each; `head` stands between a loop's
// parameters and its statement.
std::string RenderLoops(const PreludeLibrary& library, const std::vector<PreludeSignature>& signatures,
                        const char* qualifier, const char* head);

class PreludeRunner {
 public:
  virtual ~PreludeRunner() = default;
  // Null if the function was not compiled.
  virtual bool Has(const std::string& name) const = 0;
  virtual void Call(const std::string& name, const std::vector<const void*>& operands,
                    const std::vector<size_t>& operand_bytes, void* result, size_t result_bytes, int64_t n) = 0;
};

// kUnavailable if this machine lacks the compiler or the device, saying which.
absl::StatusOr<std::unique_ptr<PreludeRunner>> MakePreludeRunner();

}  // namespace fuseline::codegen
