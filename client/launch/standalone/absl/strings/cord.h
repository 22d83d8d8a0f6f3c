// Of Abseil's Cord, what common/status needs: text kept as a payload. See status.h beside it.
// Thread-safety: thread-compatible.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace absl {

class Cord {
 public:
  Cord() = default;
  explicit Cord(std::string text) : text_(std::move(text)) {}
  explicit Cord(absl::string_view text) : text_(text.data(), text.size()) {}
  explicit operator std::string() const { return text_; }

 private:
  std::string text_;
};

}  // namespace absl
