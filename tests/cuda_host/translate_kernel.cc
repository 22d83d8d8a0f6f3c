#include "tests/cuda_host/translate_kernel.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/cuda_host/host_cuda_prelude.h"

namespace fuseline::cuda_host {
namespace {

bool IsWordCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where `word` stands in `text` as a word of its own, from `from` on.
size_t FindWord(std::string_view text, std::string_view word, size_t from) {
  for (size_t at = text.find(word, from); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsWordCharacter(text[at - 1])) && (end == text.size() || !IsWordCharacter(text[end]))) return at;
  }
  return std::string_view::npos;
}

std::string Trimmed(std::string_view text) {
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
}

// The expressions of `"=r"(r)` or `"f"(high), "f"(low)`.
std::optional<std::vector<std::string>> Operands(std::string_view text) {
  std::vector<std::string> out;
  size_t at = 0;
  while (true) {
    while (at < text.size() && (text[at] == ' ' || text[at] == ',')) ++at;
    if (at == text.size()) return out;
    if (text[at] != '"') return std::nullopt;
    const size_t open = text.find("\"(", at + 1);
    if (open == std::string_view::npos) return std::nullopt;
    size_t end = open + 2;
    for (int depth = 1; end < text.size(); ++end) {
      if (text[end] == '(') ++depth;
      if (text[end] == ')' && --depth == 0) break;
    }
    if (end == text.size()) return std::nullopt;
    out.push_back(Trimmed(text.substr(open + 2, end - open - 2)));
    at = end + 1;
  }
}

// `"cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a)`, what stands between asm's parentheses, as `r = fl_ptx_…(a)`. The
// instruction takes its operands in the order in which they are listed.
std::optional<std::string> Instruction(std::string_view text) {
  if (text.empty() || text[0] != '"') return std::nullopt;
  const size_t quote = text.find('"', 1);
  if (quote == std::string_view::npos) return std::nullopt;
  const std::string_view body = text.substr(1, quote - 1);
  std::vector<std::string> lists;
  size_t begin = std::string_view::npos;
  for (size_t i = quote + 1; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != ':') continue;
    if (begin != std::string_view::npos) lists.push_back(Trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (lists.size() != 2) return std::nullopt;
  const auto outputs = Operands(lists[0]), inputs = Operands(lists[1]);
  if (!outputs || !inputs || outputs->size() != 1 || body.empty() || body.back() != ';') return std::nullopt;
  const size_t space = body.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::vector<std::string> numbers;
  for (size_t i = 0; i <= inputs->size(); ++i) numbers.push_back(StrCat("%", i));
  if (Trimmed(body.substr(space, body.size() - space - 1)) != absl::StrJoin(numbers, ", ")) return std::nullopt;
  std::string name(body.substr(0, space));
  std::replace(name.begin(), name.end(), '.', '_');
  return StrCat((*outputs)[0], " = fl_ptx_", name, "(", absl::StrJoin(*inputs, ", "), ")");
}

// `float partial[4][32]`, a __shared__ array, as a reference to storage of the block.
std::optional<std::string> SharedArray(std::string_view declaration) {
  const size_t bracket = declaration.find('[');
  if (bracket == std::string_view::npos) return std::nullopt;
  size_t name_begin = bracket;
  while (name_begin > 0 && IsWordCharacter(declaration[name_begin - 1])) --name_begin;
  const std::string type = Trimmed(declaration.substr(0, name_begin));
  const std::string name(declaration.substr(name_begin, bracket - name_begin));
  const std::string dims(declaration.substr(bracket));
  if (type.empty() || name.empty()) return std::nullopt;
  return StrCat("static const char ", name, "_key = 0; typedef ", type, " ", name, "_type", dims, "; ", name, "_type& ",
                name, " = fl_host_shared<", name, "_type>(&", name, "_key, \"", name, "\")");
}

absl::Status NotUnderstood(const KernelSource& source, std::string_view statement) {
  return Internal(
      StrCat("kernel '", source.entry, "': the host build does not understand '", statement.substr(0, 120), "'"));
}

// Replaces every statement `before` … `after` of `text` by what `translate` makes of what stands between.
template <typename Translate>
absl::Status ReplaceStatements(const KernelSource& source, std::string_view word, std::string_view before,
                               std::string_view after, const Translate& translate, std::string& text) {
  for (size_t at = FindWord(text, word, 0); at != std::string::npos; at = FindWord(text, word, at + 1)) {
    const std::string_view rest = std::string_view(text).substr(at);
    const size_t end = rest.find(after);
    if (rest.substr(0, before.size()) != before || end == std::string_view::npos) {
      return NotUnderstood(source, rest.substr(0, rest.find('\n')));
    }
    const std::optional<std::string> replaced = translate(rest.substr(before.size(), end - before.size()));
    if (!replaced.has_value()) return NotUnderstood(source, rest.substr(0, end + after.size()));
    text.replace(at, end + after.size(), *replaced + ";");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> TranslateKernel(const KernelSource& source) {
  std::string text = absl::StrReplaceAll(source.text, {{"extern \"C\" ", ""}, {"#define FL_SHARED __shared__", ""}});
  const auto instruction = [](std::string_view statement) -> std::optional<std::string> {
    // An empty statement that hides a value from the compiler is g++'s as well.
    if (statement.substr(0, 4) == "\"\" :") return StrCat("__asm__(", statement, ")");
    return Instruction(statement);
  };
  FUSELINE_RETURN_IF_ERROR(ReplaceStatements(source, "asm", "asm(", ");", instruction, text));
  FUSELINE_RETURN_IF_ERROR(ReplaceStatements(source, "FL_SHARED", "FL_SHARED ", ";", SharedArray, text));
  FUSELINE_RETURN_IF_ERROR(ReplaceStatements(source, "__shared__", "__shared__ ", ";", SharedArray, text));
  return text;
}

std::string HostEntryName(size_t n) { return StrCat("fl_host_entry_", n); }
std::string HostParamsName(size_t n) { return StrCat("fl_host_params_", n); }
std::string HostFileName(size_t n) { return StrCat("fl_kernel_", n); }

absl::StatusOr<std::string> TranslateKernels(const std::vector<const KernelSource*>& sources) {
  std::string text = HostCudaPrelude(sources.empty() ? 0 : sources[0]->target.sm);
  for (size_t n = 0; n < sources.size(); ++n) {
    if (!sources[n]->target.is_cuda() || sources[n]->target.sm != sources[0]->target.sm) {
      return Internal(StrCat("kernel '", sources[n]->entry, "' is for ", sources[n]->target.ToString()));
    }
    FUSELINE_ASSIGN_OR_RETURN(const std::string kernel, TranslateKernel(*sources[n]));
    StrAppend(&text, "namespace fl_kernel_", n, " {\n#line 1 \"", HostFileName(n), "\"\n", kernel,
              "\n}\n#line 1 \"glue\"\nextern \"C\" __attribute__((no_sanitize(\"thread\"))) void ", HostEntryName(n),
              "(void* const* arguments) {\n  fl_host_call(&fl_kernel_", n, "::", sources[n]->entry,
              ", arguments);\n}\nextern \"C\" const auto ", HostParamsName(n), " = fl_host_params(&fl_kernel_", n,
              "::", sources[n]->entry, ");\n");
  }
  return text;
}

int LaunchBound(std::string_view text) {
  // The first one with digits; the macro's definition has a name there.
  for (size_t at = text.find("FL_KERNEL("); at != std::string_view::npos; at = text.find("FL_KERNEL(", at + 1)) {
    const std::string_view rest = text.substr(at + 10);
    const std::string_view digits = rest.substr(0, rest.find(')'));
    int threads = 0;
    if (absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &threads)) return threads;
  }
  return 0;
}

}  // namespace fuseline::cuda_host
