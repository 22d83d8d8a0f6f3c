// Stands in for Abseil where libfuseline_launch.so is built. Debian's static Abseil is not position-independent, so it
// can't go into a shared object, and a shared one would have to lie beside it on every machine. This folder, first on
// the include path of that one target, has of Abseil what common/launch and below it use and what is not in headers
// alone: Status, StatusOr, Mutex, Cord, StrCat, by their documented behaviour. All else is compiled as it is.
// Thread-safety: thread-compatible. Tested by tests/unit/client/launch/launch_api_test.cc, which runs the library.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace absl {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, absl::string_view message) {
    if (code == StatusCode::kOk) return;
    error_ = std::make_shared<Error>();
    error_->code = code;
    error_->message.assign(message.data(), message.size());
  }

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : error_->code; }
  absl::string_view message() const { return ok() ? absl::string_view() : absl::string_view(error_->message); }

  void SetPayload(absl::string_view url, Cord payload) {
    if (ok()) return;
    if (error_.use_count() > 1) error_ = std::make_shared<Error>(*error_);
    for (auto& [key, value] : error_->payloads) {
      if (absl::string_view(key) != url) continue;
      value = std::move(payload);
      return;
    }
    error_->payloads.emplace_back(std::string(url.data(), url.size()), std::move(payload));
  }
  std::optional<Cord> GetPayload(absl::string_view url) const {
    if (ok()) return std::nullopt;
    for (const auto& [key, value] : error_->payloads) {
      if (absl::string_view(key) == url) return value;
    }
    return std::nullopt;
  }
  template <typename Visitor>
  void ForEachPayload(const Visitor& visitor) const {
    if (ok()) return;
    for (const auto& [key, value] : error_->payloads) visitor(absl::string_view(key), value);
  }

 private:
  struct Error {
    StatusCode code = StatusCode::kOk;
    std::string message;
    std::vector<std::pair<std::string, Cord>> payloads;
  };

  std::shared_ptr<Error> error_;  // null: OK; shared by copies
};

inline Status OkStatus() { return Status(); }

}  // namespace absl
