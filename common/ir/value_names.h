// What a name may look like in the graph IR. Thread-safety: pure functions.
#pragma once

#include <string_view>

namespace fuseline {

inline bool IsNameStart(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
inline bool IsNameChar(char c) { return IsNameStart(c) || (c >= '0' && c <= '9') || c == '.'; }

// [A-Za-z_][A-Za-z0-9_.]*
inline bool IsValidName(std::string_view name) {
  if (name.empty() || !IsNameStart(name[0])) return false;
  for (char c : name) {
    if (!IsNameChar(c)) return false;
  }
  return true;
}

// The words that are literals, which no name without a '%' may be.
inline bool IsLiteralWord(std::string_view name) {
  return name == "inf" || name == "nan" || name == "true" || name == "false";
}

}  // namespace fuseline
