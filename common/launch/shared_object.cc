#include "common/launch/shared_object.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

// A file descriptor that closes itself, and the file's name where it has one.
class TemporaryFile {
 public:
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  // In memory where the kernel can, since folders for temporary files may be mounted noexec.
  bool Open() {
    fd_ = memfd_create("fuseline-kernel", MFD_CLOEXEC);
    if (fd_ >= 0) return true;
    const char* folder = getenv("TMPDIR");
    path_ = StrCat(folder != nullptr && *folder != '\0' ? folder : "/tmp", "/fuseline-XXXXXX");
    fd_ = mkostemp(path_.data(), O_CLOEXEC);
    if (fd_ < 0) path_.clear();
    return fd_ >= 0;
  }
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  // The loader takes a name that it has seen for the same object, and descriptors are reused. So the name also spells
  // the inode, which no other loaded file has: one "." for a 0 bit, "/." for a 1, as path components that mean nothing.
  std::string LoaderPath() const {
    if (!path_.empty()) return path_;
    struct stat info;
    if (fstat(fd_, &info) != 0) return "";
    std::string path = "/proc/self/fd";
    for (uint64_t inode = info.st_ino; inode != 0; inode >>= 1) path += (inode & 1) != 0 ? "//." : "/.";
    return StrCat(path, "/", fd_);
  }

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SharedObject>> SharedObject::Load(std::string_view bytes) {
  TemporaryFile file;
  if (!file.Open() || !file.Write(bytes))
    return Internal(StrCat("can't keep a kernel in a temporary file: ", strerror(errno)));
  void* handle = dlopen(file.LoaderPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return Internal(StrCat("can't load a kernel: ", error == nullptr ? "no reason given" : error));
  }
  return std::unique_ptr<SharedObject>(new SharedObject(handle));
}

SharedObject::~SharedObject() { dlclose(handle_); }

void* SharedObject::FindSymbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

}  // namespace fuseline::launch
