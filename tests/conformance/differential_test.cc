// Every engine against the reference interpreter on random graphs (tests/testing/random_graph.h), within bounds that a
// running error analysis gives for each element (tests/testing/error_bounds.h).
//   differential_test [--graphs=500] [--seed=1] [--engines=cpu,cpu_unfused] [--numerics=both|fused|eager]
//       [--unfused_every=4] [--symbolic_every=8] [--op_by_op_every=32] [--eager_bits=1] [--max_ops=40] [--threads=N]
//       [--stop_on_first] [--reduce=8] [--case_dir=DIR] [--print]
// seed: of the first graph; the others have the next ones. unfused_every: of how many graphs one also runs on the
// engines with a kernel for each op, which take long to compile. symbolic_every: of how many graphs one also runs with
// symbols for sizes of its inputs, at several sizes; 0: none. op_by_op_every: of how many graphs, counted from the
// second, the fused engines also run each op as a graph of its own; 0: none. eager_bits: under numerics = eager the
// fused engine must give the bits of the unfused one and of op-by-op execution. reduce: how many failing graphs are cut
// down and written as case files. FUSELINE_DIFF_GRAPHS and FUSELINE_DIFF_SEED in the environment stand in for the first
// two. An engine without a device is left out; where none is left, the test is skipped.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/case_file/reduce_graph.h"
#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/differential.h"
#include "tests/testing/error_bounds.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/symbolic_graph.h"

#ifndef FUSELINE_DIFF_ENGINES
#define FUSELINE_DIFF_ENGINES "cpu,cpu_unfused"
#endif
#ifndef FUSELINE_DIFF_GRAPHS
#define FUSELINE_DIFF_GRAPHS 500
#endif

namespace fuseline::testing {
namespace {

struct Flags {
  int64_t graphs = FUSELINE_DIFF_GRAPHS;
  uint64_t seed = 1;
  std::string engines = FUSELINE_DIFF_ENGINES;
  std::string numerics = "both";
  int64_t unfused_every = 4;
  int64_t symbolic_every = 8;
  int max_ops = RandomGraphOptions().max_ops;
  int threads = 0;
  int reduce = 8;
  bool stop_on_first = false;
  bool print = false;
  int64_t op_by_op_every = 32;
  bool eager_bits = true;
  std::string case_dir = ".";
  std::string program = "differential_test";
};

Flags& GlobalFlags() {
  static Flags flags;
  return flags;
}

struct Failure {
  uint64_t seed = 0;
  Mismatch mismatch;
  std::optional<SymbolicGraph>
      symbolic;  // where it fails with symbols only, with the binding that fails as the only one
};

absl::StatusOr<RandomGraph> MakeGraph(uint64_t seed) {
  RandomGraphOptions options;
  options.max_ops = GlobalFlags().max_ops;
  return MakeRandomGraph(seed, options);
}

std::optional<std::vector<Tensor>> ReferenceValues(const GraphWithInputs& graph) {
  absl::StatusOr<std::vector<Tensor>> values = reference::Interpret(graph.graph, graph.inputs);
  if (!values.ok()) return std::nullopt;
  return *std::move(values);
}

// The graph with symbols, at each of its bindings; `failing`: filled in where one fails.
std::optional<Mismatch> CheckSymbolic(EngineSet& engines, const RandomGraph& random, CheckOptions check,
                                      CheckCounts& counts, std::optional<SymbolicGraph>& failing) {
  std::optional<SymbolicGraph> symbolic =
      MakeSymbolic(random.graph, random.inputs, 4 * RandomGraphOptions().max_elements);
  if (!symbolic.has_value()) return std::nullopt;
  check.symbolic = &symbolic->graph;
  check.op_by_op = false;  // takes long, and knows no symbols
  for (SymbolicBinding& binding : symbolic->bindings) {
    // An index that was in range may not be at this size, in a node that no output needs too.
    if (!BoundErrors(binding.graph, binding.inputs, {}).ok()) continue;
    std::optional<Mismatch> mismatch = CheckGraph(engines, binding.graph, binding.inputs, check, &counts);
    ++counts.symbolic;
    if (!mismatch.has_value()) continue;
    failing = SymbolicGraph{symbolic->graph, {std::move(binding)}};
    return mismatch;
  }
  return std::nullopt;
}

// A failing graph with all that is needed to look into it.
std::string Describe(EngineSet& engines, const RandomGraph& random, const Failure& failure, bool reduce) {
  const Flags& flags = GlobalFlags();
  std::string text =
      StrCat("seed ", random.seed, ", ", failure.mismatch.text, "\n  rerun: ", flags.program,
             " --graphs=1 --seed=", random.seed, " --max_ops=", flags.max_ops, " --unfused_every=1",
             flags.eager_bits ? " --op_by_op_every=1" : " --eager_bits=0", " --engines=", flags.engines,
             " --numerics=", NumericsName(failure.mismatch.numerics), "\n", PrintGraph(random.graph), "\n");
  if (failure.symbolic.has_value()) {
    const SymbolicBinding& binding = failure.symbolic->bindings.front();
    StrAppend(&text, "with symbols:\n", PrintGraph(failure.symbolic->graph), "\nat\n", PrintGraph(binding.graph), "\n");
    return text;
  }
  if (!reduce) return text;
  CheckOptions check;
  check.engines = {failure.mismatch.engine};
  if (failure.mismatch.text.find("bit-equal") != std::string::npos) {
    check.engines.push_back(*ParseEngineKind(StrCat(EngineName(failure.mismatch.engine), "_unfused")));
  }
  check.numerics = {failure.mismatch.numerics};
  check.eager_bits = flags.eager_bits;
  check.op_by_op = failure.mismatch.text.find("op-by-op") != std::string::npos;
  check.run_twice = failure.mismatch.text.find("two runs") != std::string::npos;
  const auto fails = [&](const GraphWithInputs& candidate) {
    const std::optional<Mismatch> mismatch = CheckGraph(engines, candidate.graph, candidate.inputs, check);
    return mismatch.has_value() && mismatch->is_error == failure.mismatch.is_error &&
           (mismatch->engine == EngineKind::kReference) == (failure.mismatch.engine == EngineKind::kReference);
  };
  ReduceOptions reduce_options;
  reduce_options.max_tries = 300;
  reduce_options.max_time = absl::Minutes(2);
  reduce_options.values = ReferenceValues;
  const GraphWithInputs reduced = ReduceGraph({random.graph, random.inputs}, fails, reduce_options).smallest;
  const std::optional<Mismatch> mismatch = CheckGraph(engines, reduced.graph, reduced.inputs, check);
  StrAppend(&text, "reduced: ", mismatch.has_value() ? mismatch->text : "does not fail any more", "\n",
            PrintGraph(reduced.graph), "\n");
  const std::string name = StrCat("differential_seed_", random.seed);
  const std::string path = StrCat(flags.case_dir, "/", name, ".json");
  std::ofstream(path) << WriteCaseFile(MakeCaseFile(name, reduced, mismatch.value_or(failure.mismatch)));
  StrAppend(&text, "  case file: ", path, "\n");
  return text;
}

TEST(DifferentialTest, EveryEngineAgreesWithTheReferenceOnRandomGraphs) {
  const Flags& flags = GlobalFlags();
  auto created = EngineSet::Create();
  ASSERT_TRUE(created.ok()) << created.status();
  EngineSet& engines = **created;
  std::vector<EngineKind> kinds;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(flags.engines, ','))) {
    const std::optional<EngineKind> kind = ParseEngineKind(name);
    ASSERT_TRUE(kind.has_value()) << "no engine is called '" << name << "'";
    const absl::Status can_run = engines.CanRun(*kind);
    if (can_run.ok()) {
      kinds.push_back(*kind);
    } else {
      std::cout << "left out: " << can_run.message() << "\n";
    }
  }
  if (kinds.empty()) GTEST_SKIP() << "no device for " << flags.engines;

  std::mutex mutex;
  std::vector<Failure> failures;  // guarded by mutex, as is `total`
  CheckCounts total;
  std::atomic<int64_t> next = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    CheckCounts counts;
    for (int64_t k = next++; k < flags.graphs && !stop; k = next++) {
      const uint64_t seed = flags.seed + static_cast<uint64_t>(k);
      const absl::StatusOr<RandomGraph> random = MakeGraph(seed);
      Failure failure = {seed, {}};
      if (!random.ok()) {
        failure.mismatch = {EngineKind::kReference, Numerics::kFused, true, random.status().ToString()};
        const std::lock_guard<std::mutex> lock(mutex);
        failures.push_back(failure);
        continue;
      }
      if (flags.print) {
        const std::lock_guard<std::mutex> lock(mutex);
        std::cout << PrintGraph(random->graph) << std::endl;
      }
      CheckOptions check;
      for (const EngineKind kind : kinds) {
        if (!IsUnfused(kind) || k % flags.unfused_every == 0) check.engines.push_back(kind);
      }
      check.run_twice = k % 8 == 0;
      check.eager_bits = flags.eager_bits;
      // Not of the graphs that have unfused kernels to compile already.
      check.op_by_op =
          flags.eager_bits && flags.op_by_op_every > 0 && (k + flags.op_by_op_every - 1) % flags.op_by_op_every == 0;
      const bool compares_bits = flags.eager_bits && (check.op_by_op || k % flags.unfused_every == 0);
      if (flags.numerics != "both") {
        check.numerics = {*ParseNumerics(flags.numerics)};
      } else if (compares_bits || HasHalfValues(random->graph)) {
        check.numerics = {Numerics::kFused, Numerics::kEager};
      }
      std::optional<Mismatch> mismatch = CheckGraph(engines, random->graph, random->inputs, check, &counts);
      if (!mismatch.has_value() && flags.symbolic_every > 0 && k % flags.symbolic_every == 0)
        mismatch = CheckSymbolic(engines, *random, check, counts, failure.symbolic);
      if (!mismatch.has_value()) continue;
      failure.mismatch = *mismatch;
      if (flags.stop_on_first) stop = true;
      const std::lock_guard<std::mutex> lock(mutex);
      failures.push_back(failure);
      std::cout << "FAILED seed " << seed << ", " << mismatch->text.substr(0, 300) << std::endl;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    total.runs += counts.runs;
    total.symbolic += counts.symbolic;
    total.op_by_op += counts.op_by_op;
    total.outputs += counts.outputs;
    total.checked_outputs += counts.checked_outputs;
  };
  std::vector<std::thread> threads;
  const int count =
      flags.threads > 0 ? flags.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int t = 0; t < count; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();

  std::sort(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) { return a.seed < b.seed; });
  int described = 0;
  for (const Failure& failure : failures) {
    const absl::StatusOr<RandomGraph> random = MakeGraph(failure.seed);
    if (!random.ok()) {
      ADD_FAILURE() << "seed " << failure.seed << ": " << random.status();
    } else {
      ADD_FAILURE() << Describe(engines, *random, failure, described++ < flags.reduce);
    }
  }
  std::cout << flags.graphs << " graphs, " << total.runs << " runs, " << total.outputs << " outputs, " << total.op_by_op
            << " op by op, " << total.symbolic << " sets of sizes of graphs with symbols, " << failures.size()
            << " graphs failed\n";
  // A bound that swallows everything would pass anything.
  if (total.outputs > 100) {
    EXPECT_GT(total.checked_outputs, 0.85 * static_cast<double>(total.outputs));
  }
}

bool SetFlag(std::string_view argument) {
  Flags& flags = GlobalFlags();
  const size_t equals = argument.find('=');
  const std::string_view name = argument.substr(0, equals);
  const std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
  if (name == "--graphs")
    flags.graphs = std::atoll(value.c_str());
  else if (name == "--seed")
    flags.seed = std::strtoull(value.c_str(), nullptr, 10);
  else if (name == "--engines")
    flags.engines = value;
  else if (name == "--numerics" && (value == "both" || ParseNumerics(value).ok()))
    flags.numerics = value;
  else if (name == "--unfused_every")
    flags.unfused_every = std::max(1ll, std::atoll(value.c_str()));
  else if (name == "--symbolic_every")
    flags.symbolic_every = std::max(0ll, std::atoll(value.c_str()));
  else if (name == "--max_ops")
    flags.max_ops = std::max(1, std::atoi(value.c_str()));
  else if (name == "--threads")
    flags.threads = std::atoi(value.c_str());
  else if (name == "--reduce")
    flags.reduce = std::atoi(value.c_str());
  else if (name == "--case_dir")
    flags.case_dir = value;
  else if (name == "--stop_on_first")
    flags.stop_on_first = true;
  else if (name == "--op_by_op_every")
    flags.op_by_op_every = std::atoll(value.c_str());
  else if (name == "--eager_bits")
    flags.eager_bits = value != "0";
  else if (name == "--print")
    flags.print = true;
  else
    return false;
  return true;
}

}  // namespace

// Sets the flags from the environment and the command line; false for an argument that is none.
bool ParseDifferentialFlags(int argc, char** argv) {
  GlobalFlags().program = argv[0];
  if (const char* graphs = std::getenv("FUSELINE_DIFF_GRAPHS")) SetFlag(StrCat("--graphs=", graphs));
  if (const char* seed = std::getenv("FUSELINE_DIFF_SEED")) SetFlag(StrCat("--seed=", seed));
  for (int i = 1; i < argc; ++i) {
    if (SetFlag(argv[i])) continue;
    std::cerr << "unknown argument: " << argv[i] << "\n";
    return false;
  }
  return true;
}

}  // namespace fuseline::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!fuseline::testing::ParseDifferentialFlags(argc, argv)) return 2;
  return RUN_ALL_TESTS();
}
