// Tested by tests/unit/prelude/prelude_test.cc.
#include "server/codegen/prelude_template.h"

#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace fuseline::codegen {
namespace {

struct TypeNames {
  uint32_t type;
  const char* suffix;
  const char* c_type;
  const char* unsigned_type;  // for arithmetic: small integers are promoted anyway
  const char* width;
  const char* math_suffix;
  const char* least;
  const char* greatest;
};

constexpr TypeNames kTypes[] = {
    {kF32, "f32", "float", "unsigned", "32", "f", "", ""},
    {kF64, "f64", "double", "unsigned long long", "64", "", "", ""},
    {kI64, "i64", "long long", "unsigned long long", "64", "", "(-9223372036854775807ll - 1)", "9223372036854775807ll"},
    {kI32, "i32", "int", "unsigned", "32", "", "(-2147483647 - 1)", "2147483647"},
    {kI16, "i16", "short", "unsigned", "16", "", "(-32768)", "32767"},
    {kI8, "i8", "signed char", "unsigned", "8", "", "(-128)", "127"},
    {kU8, "u8", "unsigned char", "unsigned", "8", "", "0", "255"},
    {kBool, "bool", "bool", "unsigned", "1", "", "0", "1"},
    {kF16, "f16", "float", "unsigned", "16", "f", "", ""},
    {kBf16, "bf16", "float", "unsigned", "16", "f", "", ""},
    {kF8e4m3, "f8e4m3", "float", "unsigned", "8", "f", "", ""},
    {kF8e5m2, "f8e5m2", "float", "unsigned", "8", "f", "", ""},
};

std::string Expand(absl::string_view text, const TypeNames& type, const TypeNames* to) {
  std::vector<std::pair<absl::string_view, absl::string_view>> tokens = {
      {"@S", type.suffix},        {"@T", type.c_type}, {"@U", type.unsigned_type},
      {"@B", type.unsigned_type}, {"@W", type.width},  {"@L", type.math_suffix}};
  if (to != nullptr) {
    tokens.insert(tokens.end(), {{"@s", to->suffix}, {"@t", to->c_type}, {"@lo", to->least}, {"@hi", to->greatest}});
  }
  return absl::StrReplaceAll(text, tokens);
}

// The identifiers in `text` that begin with fl_ or FL_, in order, without `self` and the structs and unions that `text`
// itself defines.
std::string FindNeeds(absl::string_view text, absl::string_view self) {
  std::vector<absl::string_view> used;
  std::set<absl::string_view> seen = {self};
  absl::string_view previous;
  for (size_t i = 0; i < text.size();) {
    if (!absl::ascii_isalnum(text[i]) && text[i] != '_') {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '_')) ++end;
    const absl::string_view word = text.substr(i, end - i);
    i = end;
    if (previous == "struct" || previous == "union") seen.insert(word);
    if (word.substr(0, 3) == "fl_" || word.substr(0, 3) == "FL_") used.push_back(word);
    previous = word;
  }
  std::string needs;
  for (absl::string_view word : used) {
    if (seen.insert(word).second) absl::StrAppend(&needs, needs.empty() ? "" : " ", word);
  }
  return needs;
}

}  // namespace

PreludeTable::PreludeTable(std::vector<absl::Span<const PreludeTemplate>> templates) {
  for (const auto& table : templates) {
    for (const PreludeTemplate& row : table) {
      if (row.types == kNoType) Add(row.name, row.text);
      for (const TypeNames& type : kTypes) {
        if ((row.types & type.type) == 0) continue;
        if (row.to_types == kNoType) Add(Expand(row.name, type, nullptr), Expand(row.text, type, nullptr));
        for (const TypeNames& to : kTypes) {
          if ((row.to_types & to.type) != 0) Add(Expand(row.name, type, &to), Expand(row.text, type, &to));
        }
      }
    }
  }
}

void PreludeTable::Add(std::string name, std::string text) {
  std::string needs = FindNeeds(text, name);
  strings_.push_back(std::move(name));
  const char* stored_name = strings_.back().c_str();
  strings_.push_back(std::move(needs));
  const char* stored_needs = strings_.back().c_str();
  strings_.push_back(std::move(text));
  functions_.push_back({stored_name, stored_needs, strings_.back().c_str()});
}

}  // namespace fuseline::codegen
