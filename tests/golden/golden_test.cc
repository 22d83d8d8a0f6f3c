// Golden text of each stage: tests/golden/<stage>/<case>.in is a graph, <case>.out what the stage makes of it.
// A first line "# --target cuda:sm_90 --numerics eager --no-fuse" in the graph sets what is not the default (cpu,
// fused, fusing). Several targets, with commas between them, must give the same text; "--kernels 2" is the number of
// kernels that the graph must become, whatever the .out file says. Rewrite the .out files with `golden_test
// --update_golden`, or the build target update_golden, and read the difference.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/engine/build_artifact.h"

namespace fuseline {
namespace {

namespace fs = std::filesystem;

bool update_golden = false;
constexpr const char* kUpdateFlag = "--update_golden";

const fs::path& GoldenFolder() {
  static const fs::path folder = fs::path(FUSELINE_SOURCE_DIR) / "tests" / "golden";
  return folder;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct CaseOptions {
  std::vector<Target> targets;
  CompileOptions compile;
  std::optional<size_t> kernels;
};

// The options of the first line, if it is a comment that begins with an option.
absl::StatusOr<CaseOptions> ParseOptions(const std::string& text) {
  CaseOptions out;
  std::istringstream line(text.substr(0, text.find('\n')));
  std::string word;
  line >> word;
  std::string targets = "cpu";
  const bool has_options = word == "#";
  while (has_options && line >> word) {
    std::string value;
    if (word == "--target" && line >> value) {
      targets = value;
    } else if (word == "--kernels" && line >> value) {
      out.kernels = std::stoul(value);
    } else if (word == "--numerics" && line >> value) {
      FUSELINE_ASSIGN_OR_RETURN(out.compile.numerics, ParseNumerics(value));
    } else if (word == "--no-fuse") {
      out.compile.fuse = false;
    } else {
      return InvalidArgument(ErrorReason::kOptionInvalid, word, StrCat("unknown option '", word, "'"));
    }
  }
  for (const absl::string_view name : absl::StrSplit(targets, ',')) {
    FUSELINE_ASSIGN_OR_RETURN(const Target target, ParseTarget(std::string(name)));
    out.targets.push_back(target);
  }
  return out;
}

// A kernel's text from the comment that describes it: what stands before is the prelude, the same for every kernel that
// needs it.
std::string WithoutPrelude(const std::string& text) {
  size_t begin = text.find("; loops [");
  if (begin == std::string::npos) return text;
  begin = text.rfind('\n', begin);
  return text.substr(begin == std::string::npos ? 0 : begin + 1);
}

absl::StatusOr<std::string> RunStage(const std::string& stage, const Graph& graph, const CaseOptions& options,
                                     const Target& target) {
  FUSELINE_ASSIGN_OR_RETURN(const GeneratedCode code, GenerateCode(Canonicalize(graph), target, options.compile));
  if (options.kernels.has_value() && code.kernels.sources.size() != *options.kernels) {
    return Internal(StrCat(target.ToString(), ": ", code.kernels.sources.size(), " kernels, want ", *options.kernels,
                           ":\n", fuser::PrintFusionPlan(code.loops, code.fusion)));
  }
  if (stage == "loops") return lowering::PrintLoopProgram(code.loops);
  if (stage == "fusion") return fuser::PrintFusionPlan(code.loops, code.fusion);
  if (stage == "bodies") return code.kernels.bodies;
  if (stage == "plan") return PrintLaunchPlan(code.kernels.plan, code.kernels.sources);
  if (stage != "source") return InvalidArgument(ErrorReason::kOptionInvalid, stage, StrCat("no stage '", stage, "'"));
  std::string out;
  for (const KernelSource& s : code.kernels.sources) StrAppend(&out, out.empty() ? "" : "\n", WithoutPrelude(s.text));
  return out;
}

absl::StatusOr<std::string> RunCase(const std::string& stage, const std::string& input) {
  FUSELINE_ASSIGN_OR_RETURN(const CaseOptions options, ParseOptions(input));
  FUSELINE_ASSIGN_OR_RETURN(const Graph graph, ParseGraph(input));
  std::optional<std::string> text;
  for (const Target& target : options.targets) {
    FUSELINE_ASSIGN_OR_RETURN(std::string here, RunStage(stage, graph, options, target));
    if (text.has_value() && here != *text) {
      return Internal(StrCat(target.ToString(), " gives another text:\n", here, "\nthan ",
                             options.targets[0].ToString(), ":\n", *text));
    }
    text = std::move(here);
  }
  return *std::move(text);
}

// "stage/case", sorted.
std::vector<std::string> Cases(const char* extension) {
  std::vector<std::string> out;
  for (const fs::directory_entry& stage : fs::directory_iterator(GoldenFolder())) {
    if (!stage.is_directory()) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(stage.path())) {
      if (file.path().extension() == extension)
        out.push_back(stage.path().filename().string() + "/" + file.path().stem().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, StageGivesTheExpectedText) {
  const fs::path in = GoldenFolder() / (GetParam() + ".in");
  const fs::path out = GoldenFolder() / (GetParam() + ".out");
  const absl::StatusOr<std::string> text = RunCase(in.parent_path().filename().string(), ReadFile(in));
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  if (update_golden) {
    std::ofstream(out, std::ios::binary) << *text;
    return;
  }
  ASSERT_TRUE(fs::exists(out)) << out << " is missing: run golden_test " << kUpdateFlag;
  EXPECT_EQ(*text, ReadFile(out)) << in << "\nif this is what is wanted: golden_test " << kUpdateFlag;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(Cases(".in")),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

TEST(GoldenFilesTest, EveryOutputHasItsInput) {
  EXPECT_GE(Cases(".in").size(), 20u);
  if (!update_golden) {
    EXPECT_EQ(Cases(".out"), Cases(".in"));
  }
}

TEST(GoldenFilesTest, FilesAreSmallEnoughToRead) {
  for (const std::string& name : Cases(".out")) {
    EXPECT_LE(fs::file_size(GoldenFolder() / (name + ".out")), 8u << 10) << name;
  }
}

}  // namespace
}  // namespace fuseline

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != fuseline::kUpdateFlag) {
      std::cerr << "unknown argument " << argv[i] << "\n";
      return 2;
    }
    fuseline::update_golden = true;
  }
  return RUN_ALL_TESTS();
}
