// docs/ir.md names every op of the op table, and no other.
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "common/ir/op_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline {
namespace {

using ::testing::ContainerEq;
using ::testing::IsEmpty;
using ::testing::Not;

std::string ReadPage() {
  std::ifstream file(FUSELINE_SOURCE_DIR "/docs/ir.md");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The text from the line `heading` to the next heading of the same or a higher level.
std::string Section(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("\n" + heading + "\n");
  if (begin == std::string::npos) return "";
  const size_t end = page.find("\n## ", begin + heading.size());
  return page.substr(begin, end == std::string::npos ? end : end - begin);
}

// Adds the names in backticks of `text`.
void AddNames(const std::string& text, std::set<std::string>& names) {
  for (size_t begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
    const size_t end = text.find('`', begin + 1);
    if (end == std::string::npos) return;
    names.insert(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
}

// The names in backticks in the first column of the tables of `text`.
std::set<std::string> NamesOfFirstColumn(const std::string& text) {
  std::set<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    if (line.rfind("| `", 0) == 0) AddNames(line.substr(0, line.find('|', 1)), names);
    begin = end + 1;
  }
  return names;
}

TEST(OpListTest, OpsAreInTheTables) {
  const std::set<std::string> listed = NamesOfFirstColumn(Section(ReadPage(), "## Ops"));
  ASSERT_THAT(listed, Not(IsEmpty()));
  std::set<std::string> expected;
  for (const OpDef* op : AllOps()) expected.insert(op->name);
  // The compiler's own, described below the table.
  expected.erase("widen");
  expected.erase("narrow");
  expected.erase("philox");
  EXPECT_THAT(listed, ContainerEq(expected));
}

}  // namespace
}  // namespace fuseline
