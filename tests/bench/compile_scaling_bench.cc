// How the time outside the compilers grows with the graph: a chain of 10,000 and of 20,000 ops, through every stage.
//   compile_scaling_bench [OPS …] [--target=cpu] [--layers]      default: 10000 20000
// With --layers the numbers are layers of a transformer, each with parameters of its own; default: 1 48.
// Prints seconds for each stage, the best of five runs, and, from the second size on, the ratio to the size before;
// linear stages double with the size.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "common/target/target.h"
#include "server/codegen/generate_kernels.h"
#include "server/fuser/fuse.h"
#include "server/lowering/lower_graph.h"

namespace fuseline {
namespace {

struct Stage {
  const char* name;
  double seconds;
};

class Stopwatch {
 public:
  void Lap(const char* name) {
    const auto now = std::chrono::steady_clock::now();
    stages_.push_back({name, std::chrono::duration<double>(now - last_).count()});
    last_ = std::chrono::steady_clock::now();
  }
  const std::vector<Stage>& stages() const { return stages_; }

 private:
  std::vector<Stage> stages_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::string ChainText(int64_t ops) {
  std::string text = "graph chain(x: f32[1024], w: f32[1024]) {\n";
  std::string value = "x";
  for (int64_t k = 0; k < ops; ++k) {
    static constexpr const char* kOps[] = {"add", "mul", "maximum", "sub"};
    const std::string next = StrCat("%t", k);
    StrAppend(&text, "  ", next, " = ", kOps[k % 4], "(", value, ", ", k % 3 == 0 ? "w" : "0.5", ")\n");
    value = next;
  }
  return StrCat(text, "  return y = ", value, "\n}\n");
}

// Normalisation, attention over 8 heads, and a gated block; no two layers share a parameter.
std::string LayersText(int64_t layers) {
  std::string inputs = "x: bf16[4, 128, 512]";
  std::string body;
  std::string value = "x";
  for (int64_t k = 0; k < layers; ++k) {
    for (const char* name : {"n", "m"}) StrAppend(&inputs, ", w", name, k, ": bf16[512]");
    for (const char* name : {"q", "k", "v", "o"}) StrAppend(&inputs, ", w", name, k, ": bf16[512, 512]");
    StrAppend(&inputs, ", wg", k, ": bf16[2048, 512], wu", k, ": bf16[2048, 512], wd", k, ": bf16[512, 2048]");
    const auto line = [&](const std::string& name, const std::string& text) {
      StrAppend(&body, "  %", name, k, " = ", text, "\n");
    };
    const auto at = [&](const char* name) { return StrCat("%", name, k); };
    line("a", StrCat("rms_norm(", value, ", wn", k, ") {dims = [-1]}"));
    for (const char* name : {"q", "k", "v"}) {
      line(StrCat("l", name), StrCat("linear(", at("a"), ", w", name, k, ")"));
      line(StrCat("r", name), StrCat("reshape(", at(StrCat("l", name).c_str()), ") {shape = [4, 128, 8, 64]}"));
      line(StrCat("p", name), StrCat("permute(", at(StrCat("r", name).c_str()), ") {dims = [0, 2, 1, 3]}"));
    }
    line("s", StrCat("attention(", at("pq"), ", ", at("pk"), ", ", at("pv"), ") {causal = true}"));
    line("t", StrCat("permute(", at("s"), ") {dims = [0, 2, 1, 3]}"));
    line("c", StrCat("reshape(", at("t"), ") {shape = [4, 128, 512]}"));
    line("e", StrCat("linear(", at("c"), ", wo", k, ")"));
    line("h", StrCat("add(", value, ", ", at("e"), ")"));
    line("b", StrCat("rms_norm(", at("h"), ", wm", k, ") {dims = [-1]}"));
    line("g", StrCat("linear(", at("b"), ", wg", k, ")"));
    line("u", StrCat("linear(", at("b"), ", wu", k, ")"));
    line("w", StrCat("silu(", at("g"), ")"));
    line("z", StrCat("mul(", at("w"), ", ", at("u"), ")"));
    line("d", StrCat("linear(", at("z"), ", wd", k, ")"));
    line("y", StrCat("add(", at("h"), ", ", at("d"), ")"));
    value = at("y");
  }
  return StrCat("graph layers(", inputs, ") {\n", body, "  return y = ", value, "\n}\n");
}

absl::Status RunStages(const std::string& text, const Target& target, std::vector<Stage>* stages, size_t* kernels) {
  Stopwatch watch;
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(text));
  watch.Lap("parse");
  FUSELINE_RETURN_IF_ERROR(VerifyGraph(graph));
  watch.Lap("verify");
  const Graph canonical = Canonicalize(graph);
  watch.Lap("canonicalize");
  const std::string bytes = CanonicalBytes(canonical);
  watch.Lap("canonical bytes");
  const CompileOptions options;
  FUSELINE_ASSIGN_OR_RETURN(const lowering::LoopProgram loops, lowering::LowerGraph(canonical, options));
  watch.Lap("lower");
  fuser::FuseOptions fuse;
  fuse.cost = fuser::CostModelFor(target);
  FUSELINE_ASSIGN_OR_RETURN(const fuser::FusionPlan plan, fuser::Fuse(loops, fuse));
  watch.Lap("fuse");
  FUSELINE_ASSIGN_OR_RETURN(const codegen::GeneratedKernels generated,
                            codegen::GenerateKernels(loops, plan, target, options));
  watch.Lap("generate");
  *kernels = generated.sources.size();
  *stages = watch.stages();
  return bytes.empty() ? absl::InternalError("no canonical bytes") : absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::vector<int64_t> sizes;
  Target target = Target::Cpu();
  bool layers = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.rfind("--target=", 0) == 0) {
      const absl::StatusOr<Target> parsed = ParseTarget(argument.substr(9));
      if (!parsed.ok()) {
        std::cerr << parsed.status() << "\n";
        return 2;
      }
      target = *parsed;
    } else if (argument == "--layers") {
      layers = true;
    } else if (std::atoll(argv[i]) > 0) {
      sizes.push_back(std::atoll(argv[i]));
    } else {
      std::cerr << "usage: compile_scaling_bench [OPS ...] [--target=cpu] [--layers]\n";
      return 2;
    }
  }
  if (sizes.empty()) sizes = layers ? std::vector<int64_t>{1, 48} : std::vector<int64_t>{10'000, 20'000};
  std::vector<Stage> before;
  for (const int64_t ops : sizes) {
    std::vector<Stage> stages;
    size_t kernels = 0;
    for (int run = 0; run < 5; ++run) {
      std::vector<Stage> again;
      const absl::Status status = RunStages(layers ? LayersText(ops) : ChainText(ops), target, &again, &kernels);
      if (!status.ok()) {
        std::cerr << ops << " ops: " << status << "\n";
        return 1;
      }
      if (run == 0) stages = again;
      for (size_t s = 0; s < stages.size(); ++s) stages[s].seconds = std::min(stages[s].seconds, again[s].seconds);
    }
    double total = 0, total_before = 0;
    std::cout << ops << (layers ? " layers, " : " ops, ") << target.ToString() << ", " << kernels << " kernels\n"
              << std::fixed;
    for (size_t s = 0; s < stages.size(); ++s) {
      total += stages[s].seconds;
      std::cout << "  " << std::left << std::setw(16) << stages[s].name << std::right << std::setprecision(4)
                << std::setw(9) << stages[s].seconds << " s";
      if (!before.empty()) {
        total_before += before[s].seconds;
        std::cout << std::setprecision(2) << std::setw(8) << stages[s].seconds / before[s].seconds << "x";
      }
      std::cout << "\n";
    }
    std::cout << "  " << std::left << std::setw(16) << "all" << std::right << std::setprecision(4) << std::setw(9)
              << total << " s";
    if (!before.empty()) std::cout << std::setprecision(2) << std::setw(8) << total / total_before << "x";
    std::cout << "\n";
    before = stages;
  }
  return 0;
}

}  // namespace
}  // namespace fuseline

int main(int argc, char** argv) { return fuseline::Main(argc, argv); }
