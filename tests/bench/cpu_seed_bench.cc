// The seed examples at 4096 x 4096 on the cpu target against the same work as a hand-written fused loop, and, where
// asked for, against NumPy, in one run.
//   cpu_seed_bench [--size=4096] [--rounds=5] [--threads=0] [--python=PROGRAM]
//     --threads  of each side; 0: one for each core
//     --python   an interpreter that has NumPy; without it NumPy's rows are left out
// Each round measures every side in turn, ten runs each after the caches were flushed; the figure is the median of all
// runs. Both sides' results are checked against f64 before anything is timed.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/case_file/random_values.h"
#include "common/ir/text_form.h"
#include "common/status/status_macros.h"
#include "server/engine/engine.h"
#include "tests/bench/hand_written_loops.h"

namespace fuseline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRunsPerRound = 10;
constexpr size_t kFlushBytes = 256 << 20;

struct Flags {
  int64_t size = 4096;
  int rounds = 5;
  int threads = 0;
  std::string python;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Rows over the threads, which wait between runs as a pool's do: starting them is not part of the loop.
class RowThreads {
 public:
  explicit RowThreads(int threads) : count_(threads) {}
  void Run(int64_t rows, const std::function<void(int64_t, int64_t)>& body) const {
    std::vector<std::thread> pool;
    const int64_t share = (rows + count_ - 1) / count_;
    for (int t = 1; t < count_; ++t) {
      pool.emplace_back([&, t] { body(std::min(rows, t * share), std::min(rows, (t + 1) * share)); });
    }
    body(0, std::min(rows, share));
    for (std::thread& thread : pool) thread.join();
  }

 private:
  const int count_;
};

struct Seed {
  const char* name;
  const char* numpy;  // the expression
  std::string text;
  std::vector<Shape> inputs;
  Shape output;
  std::function<void(const std::vector<Tensor>&, float*)> by_hand;
  std::function<double(const std::vector<Tensor>&, int64_t)> expected;  // element i of the output, in f64
  int64_t moved_bytes;
};

const float* Floats(const Tensor& t) { return static_cast<const float*>(t.data()); }

std::vector<Seed> Seeds(int64_t n, const RowThreads& threads) {
  Seed pointwise{"pointwise",
                 "1 / (1 + np.exp(-(x * w + b)))",
                 absl::StrCat("graph pointwise_example(x: f32[", n, ", ", n, "], w: f32[", n, "], b: f32[", n,
                              "]) {\n  %t0 = mul(x, w)\n  %t1 = add(%t0, b)\n  %t2 = sigmoid(%t1)\n  return %t2\n}\n"),
                 {{n, n}, {n}, {n}},
                 {n, n},
                 [n, &threads](const std::vector<Tensor>& in, float* y) {
                   threads.Run(n, [&](int64_t begin, int64_t end) {
                     SigmoidRows(Floats(in[0]), Floats(in[1]), Floats(in[2]), y, n, begin, end);
                   });
                 },
                 [n](const std::vector<Tensor>& in, int64_t i) {
                   const double v = double{Floats(in[0])[i]} * Floats(in[1])[i % n] + Floats(in[2])[i % n];
                   return 1 / (1 + std::exp(-v));
                 },
                 8 * n * n};
  Seed reduction{"reduction",
                 "(x * np.float32(2)).sum(axis=-1) + np.float32(1)",
                 absl::StrCat("graph reduction_example(x: f32[", n, ", ", n,
                              "]) {\n  %t0 = mul(x, 2.0)\n  %t1 = sum(%t0) {dims = [-1]}\n  %t2 = add(%t1, 1.0)\n  "
                              "return %t2\n}\n"),
                 {{n, n}},
                 {n},
                 [n, &threads](const std::vector<Tensor>& in, float* y) {
                   threads.Run(n, [&](int64_t begin, int64_t end) { SumRows(Floats(in[0]), y, n, begin, end); });
                 },
                 [n](const std::vector<Tensor>& in, int64_t i) {
                   double sum = 0;
                   for (int64_t j = 0; j < n; ++j) sum += 2.0 * Floats(in[0])[i * n + j];
                   return sum + 1;
                 },
                 4 * n * n};
  return {pointwise, reduction};
}

absl::Status Check(const Seed& seed, const std::vector<Tensor>& inputs, const float* got, const char* side) {
  const int64_t count = ElementCount(seed.output);
  for (int64_t i = 0; i < count; i += std::max<int64_t>(1, count / 4096)) {
    const double want = seed.expected(inputs, i);
    if (!(std::abs(got[i] - want) <= 1e-3 + 1e-5 * std::abs(want))) {
      return absl::InternalError(absl::StrCat(seed.name, ", ", side, ": element ", i, " is ", got[i], ", not ", want));
    }
  }
  return absl::OkStatus();
}

// Milliseconds of the expression in NumPy, best said by itself: its temporaries are part of how it works.
absl::StatusOr<double> MeasureNumpy(const Flags& flags, const Seed& seed) {
  const std::string script = absl::StrCat(
      "import time, statistics, numpy as np\n"
      "n = ",
      flags.size,
      "\nrng = np.random.default_rng(1)\n"
      "x = rng.standard_normal((n, n), dtype=np.float32)\n"
      "w = rng.standard_normal(n, dtype=np.float32)\nb = rng.standard_normal(n, dtype=np.float32)\n"
      "flush = np.zeros(",
      kFlushBytes,
      ", np.uint8)\ntimes = []\n"
      "for i in range(",
      2 + kRunsPerRound, "):\n  flush[:] = i\n  t = time.perf_counter()\n  y = ", seed.numpy,
      "\n  times.append(time.perf_counter() - t)\nprint(1e3 * statistics.median(times[2:]))\n");
  const std::string command = absl::StrCat("'", flags.python, "' - <<'PYTHON'\n", script, "PYTHON\n");
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  double millis = 0;
  if (pipe == nullptr || fscanf(pipe.get(), "%lf", &millis) != 1) {
    return absl::UnavailableError(absl::StrCat("'", flags.python, "' with NumPy gave no figure"));
  }
  return millis;
}

absl::Status Measure(const Flags& flags, Engine& engine, const Seed& seed) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < seed.inputs.size(); ++i) {
    inputs.push_back(Tensor::Allocate(DType::kF32, seed.inputs[i]));
    FillNormal(inputs.back(), 1 + i);
  }
  CompileRequest request;
  FUSELINE_ASSIGN_OR_RETURN(request.graph, ParseGraphText(seed.text));
  request.target = Target::Cpu();
  FUSELINE_ASSIGN_OR_RETURN(const ExecuteResult run, engine.Execute(request, executor::Arguments(inputs), {}));
  FUSELINE_RETURN_IF_ERROR(Check(seed, inputs, Floats(run.execution.outputs[0]), "compiled"));
  Tensor result = Tensor::Allocate(DType::kF32, seed.output);
  float* const y = static_cast<float*>(result.data());
  seed.by_hand(inputs, y);
  FUSELINE_RETURN_IF_ERROR(Check(seed, inputs, y, "by hand"));

  std::vector<char> flush(kFlushBytes);
  std::vector<double> compiled, by_hand, numpy;
  for (int round = 0; round < flags.rounds; ++round) {
    FUSELINE_ASSIGN_OR_RETURN(const executor::BenchResult bench,
                              engine.Bench(run.compiled.artifact, inputs, 2, kRunsPerRound));
    for (const double micros : bench.micros) compiled.push_back(micros / 1e3);
    for (int i = 0; i < kRunsPerRound + 2; ++i) {
      memset(flush.data(), i, flush.size());
      const Clock::time_point start = Clock::now();
      seed.by_hand(inputs, y);
      if (i >= 2) by_hand.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    if (!flags.python.empty()) {
      FUSELINE_ASSIGN_OR_RETURN(const double millis, MeasureNumpy(flags, seed));
      numpy.push_back(millis);
    }
  }
  const double ours = Median(compiled);
  const auto row = [&](const char* side, double millis) {
    printf("%-10s %-12s %8.2f ms %7.1f GB/s   compiled / this: %.2f\n", seed.name, side, millis,
           static_cast<double>(seed.moved_bytes) / millis / 1e6, ours / millis);
  };
  row("compiled", ours);
  row("by hand", Median(by_hand));
  if (!numpy.empty()) row("numpy", Median(numpy));
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  EngineOptions options;
  options.executor.use_cuda = false;
  options.executor.cpu_threads = flags.threads;
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  const RowThreads threads(flags.threads);
  printf("%d threads, %lld x %lld f32, median of %d runs\n", flags.threads, static_cast<long long>(flags.size),
         static_cast<long long>(flags.size), flags.rounds * kRunsPerRound);
  for (const Seed& seed : Seeds(flags.size, threads)) FUSELINE_RETURN_IF_ERROR(Measure(flags, *engine, seed));
  return absl::OkStatus();
}

bool ParseFlag(std::string_view argument, Flags& flags) {
  const size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string name(argument.substr(0, equals)), value(argument.substr(equals + 1));
  if (name == "--python") {
    flags.python = value;
    return value.find('\'') == std::string::npos;
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(value, &number)) return false;
  if (name == "--size") flags.size = number;
  if (name == "--rounds") flags.rounds = static_cast<int>(number);
  if (name == "--threads") flags.threads = static_cast<int>(number);
  return (name == "--size" && number >= 1 && number <= 16384) || (name == "--rounds" && number >= 1 && number <= 100) ||
         (name == "--threads" && number >= 0 && number <= 1024);
}

}  // namespace
}  // namespace fuseline

int main(int argc, char** argv) {
  fuseline::Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (!fuseline::ParseFlag(argv[i], flags)) {
      fprintf(stderr, "usage: cpu_seed_bench [--size=4096] [--rounds=5] [--threads=0] [--python=PROGRAM]\n");
      return 2;
    }
  }
  if (flags.threads == 0) flags.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const absl::Status status = fuseline::Run(flags);
  if (status.ok()) return 0;
  fprintf(stderr, "cpu_seed_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
