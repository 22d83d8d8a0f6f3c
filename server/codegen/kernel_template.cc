#include "server/codegen/kernel_template.h"

#include <cctype>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace fuseline::codegen {
namespace {

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// A word (identifier or number, suffix included) or a single other character.
std::string_view NextToken(std::string_view text) {
  size_t n = 1;
  if (IsWord(text[0])) {
    while (n < text.size() && IsWord(text[n])) ++n;
  }
  return text.substr(0, n);
}

struct IntegerToken {
  int64_t value = 0;
  bool wide = false;  // spelled with "ll"
};

std::optional<IntegerToken> ParseInteger(std::string_view token) {
  IntegerToken out;
  absl::string_view digits(token.data(), token.size());
  out.wide = absl::ConsumeSuffix(&digits, "ll");
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
  }
  if (!absl::SimpleAtoi(digits, &out.value)) return std::nullopt;
  return out;
}

// The part of its line that stands before `at`.
std::string_view LineBefore(std::string_view text, size_t at) {
  const size_t newline = text.rfind('\n', at == 0 ? 0 : at - 1);
  const size_t begin = newline == std::string_view::npos || at == 0 ? 0 : newline + 1;
  return text.substr(begin, at - begin);
}

// Whether `line` ends inside a list of template arguments: "name<" stands unclosed, where a comparison is " < ".
bool InTemplateArguments(std::string_view line) {
  int depth = 0;
  for (size_t i = line.size(); i-- > 0;) {
    if (line[i] == '>' && i > 0 && line[i - 1] != ' ' && line[i - 1] != '-') --depth;
    if (line[i] == '<' && i > 0 && IsWord(line[i - 1]) && ++depth > 0) return true;
  }
  return false;
}

// Whether an integer at this place may be a value that is known at run time only.
bool MayVary(std::string_view line, char next) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos) return false;
  if (line[first] == '#') return false;
  if (absl::StrContains(absl::string_view(line.data(), line.size()), "constexpr")) return false;
  const char before = line.back();
  if (before != ' ' && before != '(' && before != '[' && before != '-') return false;
  if (before == '[' && next == ']') return false;  // the length of an array
  if (absl::EndsWith(absl::string_view(line.data(), line.size()), "FL_KERNEL(")) return false;
  return !InTemplateArguments(line);
}

// Adds the parameters to the kernel's signature. False where it has none that is known.
bool AddParameters(std::string& text, const KernelSource& source, size_t pointers, size_t count) {
  const size_t name = text.find(absl::StrCat(" ", source.entry, "("));
  if (name == std::string::npos) return false;
  const size_t open = text.find(") {\n", name);
  if (open == std::string::npos || text.find('\n', name) < open) return false;
  std::string added;
  if (source.target.is_cuda()) {
    for (size_t i = 0; i < count; ++i)
      absl::StrAppend(&added, pointers + i > 0 ? ", " : "", "const long long size_", i);
    text.insert(open, added);
    return true;
  }
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&added, "  const long long size_", i, " = ((const long long*)buffers[", pointers, "])[", i, "];\n");
  }
  text.insert(open + 4, added);
  return true;
}

}  // namespace

std::optional<KernelTemplate> MakeKernelTemplate(const KernelSource& at, const KernelSource& elsewhere,
                                                 size_t pointers) {
  if (at.entry != elsewhere.entry || at.target != elsewhere.target || at.fast_math != elsewhere.fast_math)
    return std::nullopt;
  KernelTemplate out;
  std::map<std::pair<int64_t, int64_t>, size_t> parameters;  // by the values at both bindings
  std::string text;
  text.reserve(at.text.size());
  size_t i = 0;
  size_t j = 0;
  while (i < at.text.size() && j < elsewhere.text.size()) {
    const std::string_view a = NextToken(std::string_view(at.text).substr(i));
    const std::string_view b = NextToken(std::string_view(elsewhere.text).substr(j));
    const char next = i + a.size() < at.text.size() ? at.text[i + a.size()] : '\n';
    if (a == b) {
      text.append(a);
    } else {
      const std::optional<IntegerToken> x = ParseInteger(a);
      const std::optional<IntegerToken> y = ParseInteger(b);
      if (!x || !y || x->wide != y->wide || !MayVary(LineBefore(at.text, i), next)) return std::nullopt;
      const auto [it, is_new] = parameters.try_emplace({x->value, y->value}, out.sizes.size());
      if (is_new) out.sizes.push_back(x->value);
      if (out.sizes.size() > kMaxSizeParameters) return std::nullopt;
      // As wide as the literal was: 32-bit arithmetic stays that.
      const bool narrow = at.target.is_cuda() && !x->wide && x->value <= std::numeric_limits<int32_t>::max() &&
                          y->value <= std::numeric_limits<int32_t>::max();
      absl::StrAppend(&text, narrow ? "(int)size_" : "size_", it->second);
    }
    i += a.size();
    j += b.size();
  }
  if (i != at.text.size() || j != elsewhere.text.size()) return std::nullopt;
  if (!out.sizes.empty() && !AddParameters(text, at, pointers, out.sizes.size())) return std::nullopt;
  out.source = at;
  out.source.text = std::move(text);
  return out;
}

}  // namespace fuseline::codegen
