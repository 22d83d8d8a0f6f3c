// Of Abseil's StrCat, what common/status/str_cat.h needs: text and numbers, appended. See status.h in this folder.
// Thread-safety: pure functions.
#pragma once

#include <charconv>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace absl {
namespace str_cat_internal {

inline void Append(std::string& text, absl::string_view piece) { text.append(piece.data(), piece.size()); }
template <typename Number>
requires std::is_arithmetic_v<Number>
void Append(std::string& text, Number number) {
  char digits[32];  // a double in six digits, or a 64-bit integer, is shorter
  std::to_chars_result written{};
  if constexpr (std::is_floating_point_v<Number>) {
    written = std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::general, 6);
  } else {
    // A sign, so that bool and the char types are numbers too.
    using Wide = std::conditional_t<std::is_signed_v<Number>, long long, unsigned long long>;  // NOLINT
    written = std::to_chars(digits, digits + sizeof(digits), static_cast<Wide>(number));
  }
  text.append(digits, written.ptr);
}

}  // namespace str_cat_internal

// Objects, so that looking up fuseline::StrCat by its arguments does not find these.
inline constexpr auto StrAppend = [](std::string* text, const auto&... pieces) {
  (str_cat_internal::Append(*text, pieces), ...);
};
inline constexpr auto StrCat = [](const auto&... pieces) {
  std::string text;
  StrAppend(&text, pieces...);
  return text;
};

}  // namespace absl
