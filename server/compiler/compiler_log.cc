#include "server/compiler/compiler_log.h"

#include <charconv>

#include "common/status/str_cat.h"

namespace fuseline::compiler {
namespace {

constexpr int kMaxLines = 20;
constexpr size_t kMaxBytes = 4000;

// The next line of `text`, which it is cut from.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The integer that stands before `unit` in `line`, or 0.
int64_t NumberBefore(std::string_view line, std::string_view unit) {
  const size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

KernelResources ParsePtxasLog(std::string_view log, std::string_view entry) {
  KernelResources resources;
  const std::string quoted = StrCat("'", entry, "'");
  const std::string properties = StrCat("Function properties for ", entry);
  bool in_entry = false;    // between the entry's "Compiling" line and the next one's
  bool stack_next = false;  // the line after "Function properties for <entry>"
  while (!log.empty()) {
    const std::string_view line = TakeLine(log);
    if (Contains(line, "Compiling entry function")) {
      in_entry = Contains(line, quoted);
    } else if (Contains(line, "Function properties for ")) {
      stack_next = in_entry && line.ends_with(properties);
    } else if (stack_next && Contains(line, " bytes stack frame")) {
      resources.stack_bytes = NumberBefore(line, " bytes stack frame");
      resources.spill_store_bytes = NumberBefore(line, " bytes spill stores");
      resources.spill_load_bytes = NumberBefore(line, " bytes spill loads");
      stack_next = false;
    } else if (in_entry && Contains(line, "Used ") && Contains(line, " registers")) {
      resources.registers = static_cast<int32_t>(NumberBefore(line, " registers"));
      resources.static_shared_bytes = NumberBefore(line, " bytes smem");
    }
  }
  return resources;
}

std::string FirstLogLines(std::string_view log) {
  std::string text;
  for (int lines = 0; !log.empty() && lines < kMaxLines;) {
    const std::string_view line = TakeLine(log);
    if (line.empty() || line.starts_with("ptxas info") || line.find_first_not_of('\0') == std::string_view::npos)
      continue;
    if (!text.empty()) text += '\n';
    text += line;
    ++lines;
    if (text.size() > kMaxBytes) {
      text.resize(kMaxBytes);
      text += "…";
      break;
    }
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text.empty() ? "no log" : text;
}

}  // namespace fuseline::compiler
