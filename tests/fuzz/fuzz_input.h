// What a fuzzer's functions look like, and how it reports a finding.
// Pipeline: corpus, libFuzzer's mutations -> LLVMFuzzerTestOneInput -> nothing, or the end of the process.
// Errors: a finding is printed and aborts: libFuzzer, CTest and the sanitizers all take that as a failure.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "common/ir/graph.h"

// Each fuzzer defines it; the fuzzing engine or replay_main.cc calls it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fuseline::fuzz {

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return std::string_view(reinterpret_cast<const char*>(data), size);
}

// Prints "finding: WHAT: DETAIL" and aborts.
[[noreturn]] void ReportFinding(std::string_view what, std::string_view detail);

// A finding unless the status is OK.
void RequireOk(const absl::Status& status, std::string_view what);
// A finding unless the status blames the input, and says what is wrong with it: INVALID_ARGUMENT or UNIMPLEMENTED with
// a message and a reason.
void RequireBlamesInput(const absl::Status& status, std::string_view what);
// A finding unless the two are equal; prints where they differ.
void RequireEqual(std::string_view got, std::string_view want, std::string_view what);

// Small enough for thousands of runs a second, large enough for every kind of kernel.
GraphLimits SmallLimits();

}  // namespace fuseline::fuzz
