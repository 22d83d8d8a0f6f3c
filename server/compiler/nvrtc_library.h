// libnvrtc, opened at run time: the few functions that are used, declared here so that building needs no CUDA header.
// Ownership: the library stays loaded for the process's life. Thread-safety: immutable after loading; NVRTC itself is
// thread-safe. Errors: FAILED_PRECONDITION (kTargetNotAvailable) saying where it was looked for and what to install.
// Tested by tests/unit/compiler/nvrtc_compiler_test.cc
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fuseline::compiler {

struct NvrtcProgram;  // opaque

struct NvrtcLibrary {
  // The result codes that are told apart; any other but 0 is an error as well.
  static constexpr int kSuccess = 0;
  static constexpr int kCompilationFailed = 6;
  static constexpr int kCancelled = 16;

  const char* (*GetErrorString)(int result) = nullptr;
  int (*Version)(int* major, int* minor) = nullptr;
  int (*GetNumSupportedArchs)(int* count) = nullptr;
  int (*GetSupportedArchs)(int* archs) = nullptr;
  int (*CreateProgram)(NvrtcProgram** program, const char* source, const char* name, int header_count,
                       const char* const* headers, const char* const* include_names) = nullptr;
  int (*DestroyProgram)(NvrtcProgram** program) = nullptr;
  int (*CompileProgram)(NvrtcProgram* program, int option_count, const char* const* options) = nullptr;
  int (*GetCUBINSize)(NvrtcProgram* program, size_t* size) = nullptr;
  int (*GetCUBIN)(NvrtcProgram* program, char* bytes) = nullptr;
  int (*GetPTXSize)(NvrtcProgram* program, size_t* size) = nullptr;
  int (*GetPTX)(NvrtcProgram* program, char* text) = nullptr;
  int (*GetProgramLogSize)(NvrtcProgram* program, size_t* size) = nullptr;
  int (*GetProgramLog)(NvrtcProgram* program, char* text) = nullptr;
  // Since 12.9; null before.
  int (*SetFlowCallback)(NvrtcProgram* program, int (*callback)(void* payload, void* reserved),
                         void* payload) = nullptr;

  std::string path;  // what was opened
  int major = 0;
  int minor = 0;
  std::vector<int> archs;  // compute capabilities x 10, ascending

  std::string version() const;
};

absl::StatusOr<std::unique_ptr<const NvrtcLibrary>> LoadNvrtcLibrary(const std::vector<std::string>& search_paths);

}  // namespace fuseline::compiler
