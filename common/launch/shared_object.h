// A shared object loaded from memory.
// Ownership: code and data stay mapped while the object lives. Errors: INTERNAL (kInternalInvariant) with the loader's
// message. Thread-safety: thread-safe. Tested by tests/unit/server/shared_object_test.cc
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fuseline::launch {

class SharedObject {
 public:
  static absl::StatusOr<std::unique_ptr<SharedObject>> Load(std::string_view bytes);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  // Null where there is no such symbol.
  void* FindSymbol(const std::string& name) const;

 private:
  explicit SharedObject(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace fuseline::launch
