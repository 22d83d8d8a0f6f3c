// Bytes as a case file: it is read or blamed, and what is read is written so that it reads back equal.
#include <string>

#include "common/case_file/case_file.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  CaseFileLimits limits;
  limits.max_text_bytes = 64 << 10;
  limits.max_tensor_bytes = 64 << 10;
  const absl::StatusOr<CaseFile> file = ParseCaseFile(AsText(data, size), limits);
  RequireBlamesInput(file.status(), "parse");
  if (!file.ok()) return 0;
  const std::string text = WriteCaseFile(*file);
  limits.max_text_bytes = 64 << 20;  // values that were a word before are spelled out
  const absl::StatusOr<CaseFile> again = ParseCaseFile(text, limits);
  RequireOk(again.status(), "parse what was written");
  RequireEqual(WriteCaseFile(*again), text, "written a second time");
  return 0;
}
