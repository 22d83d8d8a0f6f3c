// Tested by tests/unit/compiler/host_compiler_test.cc
#include "server/compiler/scratch_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::compiler {
namespace {

absl::Status FileError(const std::string& path, std::string_view what, int error) {
  return MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, path,
                   StrCat("can't ", what, " '", path, "': ", strerror(error)));
}

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

}  // namespace

absl::StatusOr<ScratchFolder> ScratchFolder::Create(const std::string& parent) {
  const char* system_folder = getenv("TMPDIR");
  std::string path = parent;
  if (path.empty()) path = system_folder != nullptr && *system_folder != '\0' ? system_folder : "/tmp";
  path += "/fuseline-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return FileError(path, "make temporary folder", errno);
  return ScratchFolder(std::move(path));
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;  // what can't be removed is left for the system's own cleaning
  std::filesystem::remove_all(path_, ignored);
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  File file(fopen(path.c_str(), "wbe"), fclose);
  if (file == nullptr) return FileError(path, "write", errno);
  if (fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return FileError(path, "write", errno);
  if (fclose(file.release()) != 0) return FileError(path, "write", errno);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const File file(fopen(path.c_str(), "rbe"), fclose);
  struct stat info;
  if (file == nullptr || fstat(fileno(file.get()), &info) != 0) return FileError(path, "read", errno);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  if (fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return FileError(path, "read", errno);
  return bytes;
}

}  // namespace fuseline::compiler
