// Tested by tests/unit/prelude/prelude_test.cc.
#include "server/codegen/prelude.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace fuseline::codegen {
namespace {

// `functions` is sorted by name.
const PreludeFunction* Find(const std::vector<PreludeFunction>& functions, absl::string_view name) {
  auto it = std::lower_bound(functions.begin(), functions.end(), name,
                             [](const PreludeFunction& f, absl::string_view n) { return f.name < n; });
  return it != functions.end() && it->name == name ? &*it : nullptr;
}

}  // namespace

PreludeLibrary::PreludeLibrary(std::vector<absl::Span<const PreludeFunction>> tables) {
  for (const auto& table : tables) functions_.insert(functions_.end(), table.begin(), table.end());
  // A stable sort keeps the earlier table's definition first, so that a target may override a shared definition.
  std::stable_sort(functions_.begin(), functions_.end(),
                   [](const PreludeFunction& a, const PreludeFunction& b) { return std::strcmp(a.name, b.name) < 0; });
  functions_.erase(
      std::unique(functions_.begin(), functions_.end(),
                  [](const PreludeFunction& a, const PreludeFunction& b) { return std::strcmp(a.name, b.name) == 0; }),
      functions_.end());
}

bool PreludeLibrary::Has(const std::string& name) const { return Find(functions_, name) != nullptr; }

std::string PreludeLibrary::Render(const std::set<std::string>& names) const {
  struct Visit {
    absl::string_view name;
    bool needs_done;
  };
  std::string out;
  std::set<absl::string_view> seen;
  std::vector<Visit> stack;
  for (auto it = names.rbegin(); it != names.rend(); ++it) stack.push_back({*it, false});
  while (!stack.empty()) {
    const Visit visit = stack.back();
    stack.pop_back();
    const PreludeFunction* function = Find(functions_, visit.name);
    if (visit.needs_done) {
      absl::StrAppend(&out, function->text, "\n");
      continue;
    }
    // Marked when first reached, so that a cycle (a bug in a table) ends rather than loops.
    if (!seen.insert(visit.name).second) continue;
    if (function == nullptr) {
      absl::StrAppend(&out, "#error \"no prelude function '", visit.name, "'\"\n");
      continue;
    }
    stack.push_back({visit.name, true});
    std::vector<absl::string_view> needs = absl::StrSplit(function->needs, ' ', absl::SkipEmpty());
    for (auto need = needs.rbegin(); need != needs.rend(); ++need) stack.push_back({*need, false});
  }
  return out;
}

}  // namespace fuseline::codegen
