// StrCat and StrAppend which also take std::string_view. This Abseil is built with a string_view of its own, whose
// StrCat does not. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace fuseline {
namespace str_cat_internal {

template <typename T>
const T& Piece(const T& value) {
  return value;
}
inline absl::string_view Piece(std::string_view value) { return absl::string_view(value.data(), value.size()); }
inline absl::string_view Piece(const std::string& value) { return value; }
inline absl::string_view Piece(const char* value) { return value; }

}  // namespace str_cat_internal

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(str_cat_internal::Piece(args)...);
}

template <typename... Args>
void StrAppend(std::string* text, const Args&... args) {
  absl::StrAppend(text, str_cat_internal::Piece(args)...);
}

}  // namespace fuseline
