// Prints a libFuzzer dictionary: the words of graph text, and with --case-file also those of case files.
#include <cstdio>
#include <string_view>

#include "tests/fuzz/graph_words.h"

namespace {

constexpr std::string_view kGraphSigns[] = {"graph ", "return ", "%",   " = ", "(",    ")",    "{",
                                            "}",      "[",       "]",   ": ",  ", ",   "true", "nan",
                                            "inf",    "-inf",    "1.5", "-1",  "1e38", "#",    "false"};
constexpr std::string_view kCaseFileWords[] = {"name",
                                               "source",
                                               "why",
                                               "graph",
                                               "inputs",
                                               "outputs",
                                               "tolerance",
                                               "options",
                                               "symbols",
                                               "error",
                                               "code",
                                               "contains",
                                               "rtol",
                                               "atol",
                                               "dtype",
                                               "shape",
                                               "data",
                                               "fill",
                                               "random",
                                               "seed",
                                               "low",
                                               "high",
                                               "int",
                                               "normal",
                                               "uniform",
                                               "reference",
                                               "numerics",
                                               "fused",
                                               "eager",
                                               "fast_math",
                                               "allow_tf32",
                                               "fuse",
                                               "nan",
                                               "inf",
                                               "-inf",
                                               "-0.0",
                                               "INVALID_ARGUMENT"};

}  // namespace

int main(int argc, char** argv) {
  for (const std::string_view sign : kGraphSigns) std::printf("\"%.*s\"\n", static_cast<int>(sign.size()), sign.data());
  for (const std::string& word : fuseline::fuzz::GraphWords()) std::printf("\"%s\"\n", word.c_str());
  if (argc > 1 && std::string_view(argv[1]) == "--case-file") {
    for (const std::string_view word : kCaseFileWords)
      std::printf("\"\\\"%.*s\\\"\"\n", static_cast<int>(word.size()), word.data());
  }
  return 0;
}
