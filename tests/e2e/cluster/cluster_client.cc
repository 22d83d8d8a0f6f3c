// A client of the cluster test: asks for numbered graphs, checks every answer, and prints what it saw as one line of
// JSON.
//   cluster_client --server HOST:PORT[,…] --first 0 --count 200 [--target cpu] [--execute] …
// Equal numbers are equal graphs, whoever asks. Compiling alone is checked by the artifact's digest, which the test
// compares between clients; running by the reference interpreter.
// Exit code: 0 also where requests failed, which the line tells; 2 for wrong flags.
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/case_file/compare_tensors.h"
#include "common/case_file/random_inputs.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/reference/reference_interpreter.h"

namespace fuseline::testing {
namespace {

// Within what the emitters' exp and tanh differ from the reference's.
constexpr Tolerance kTolerance{.rtol = 1e-5, .atol = 1e-5};
constexpr size_t kMostErrorsShown = 5;

struct Flags {
  std::string server;
  std::string balance = "affinity";
  std::string target = "cpu";
  int first = 0;
  int count = 1;
  int threads = 4;
  bool execute = false;
  bool by_graph = false;
  int attempts = 5;
  double pace_ms = 0;
  double deadline_seconds = 120;
};

// Graph number `n`: no two have a kernel in common.
std::string GraphText(int n) {
  const int rows = 4 + n % 13;
  const std::string x = absl::StrCat("x: f32[", rows, ", 64]");
  switch (n % 4) {
    case 0:
      return absl::StrCat("graph g(", x, ", w: f32[64]) {\n  %a = mul(x, w)\n  %b = add(%a, ", n,
                          ".0)\n  %c = tanh(%b)\n  return y = %c\n}\n");
    case 1:
      return absl::StrCat("graph g(", x, ", w: f32[64]) {\n  %a = mul(x, w)\n  %b = add(%a, ", n,
                          ".0)\n  %c = sum(%b) {dims = [1]}\n  return s = %c\n}\n");
    case 2:
      return absl::StrCat("graph g(", x, ", w: f32[64]) {\n  %a = sub(x, w)\n  %b = sigmoid(%a)\n  %c = mul(%b, ", n,
                          ".5)\n  return y = %c, z = %a\n}\n");
    default:
      return absl::StrCat("graph g(", x, ", w: f32[64]) {\n  %a = maximum(x, w)\n  %b = mul(%a, ", n,
                          ".25)\n  %c = amax(%b) {dims = [1]}\n  return m = %c\n}\n");
  }
}

// What all threads have seen.
struct Seen {
  absl::Mutex mutex;
  int asked ABSL_GUARDED_BY(mutex) = 0;
  int failed ABSL_GUARDED_BY(mutex) = 0;
  int wrong ABSL_GUARDED_BY(mutex) = 0;
  double slowest_ms ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::string> errors ABSL_GUARDED_BY(mutex);
  std::map<std::string, int> outcomes ABSL_GUARDED_BY(mutex);
  std::map<std::string, std::string> digests ABSL_GUARDED_BY(mutex);  // by number

  void AddError(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (errors.size() < kMostErrorsShown) errors.push_back(text);
  }
};

struct Answer {
  std::string outcome;
  std::string digest;  // of the artifact, where it was compiled only
  std::string mistake;
};

absl::StatusOr<Answer> Ask(client::Client& client, const Flags& flags, int n) {
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(GraphText(n)));
  FUSELINE_RETURN_IF_ERROR(VerifyGraph(graph, GraphLimits()));
  client::CompileSpec spec;
  spec.graph = std::make_shared<const Graph>(graph);
  FUSELINE_ASSIGN_OR_RETURN(spec.target, ParseTarget(flags.target));
  Answer answer;
  if (!flags.execute) {
    FUSELINE_ASSIGN_OR_RETURN(const client::CompileResult result, client.Compile(spec));
    answer.outcome = result.summary.outcome;
    std::string bytes = flags.target;
    for (const KernelImage& kernel : result.artifact->kernels) absl::StrAppend(&bytes, kernel.entry, kernel.bytes);
    answer.digest = ComputeDigest(bytes).ToHex();
    if (result.artifact->target.ToString() != flags.target) answer.mistake = "is for another target";
    if (result.artifact->kernels.empty()) answer.mistake = "has no kernel";
    return answer;
  }
  std::vector<Tensor> inputs;
  std::vector<client::NamedTensor> named;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    inputs.push_back(MakeRandomInput(graph.type(graph.inputs[i]), static_cast<uint64_t>(n) + i, 0));
    named.push_back({graph.value(graph.inputs[i]).name, inputs.back()});
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> expected, reference::Interpret(graph, inputs));
  FUSELINE_ASSIGN_OR_RETURN(const client::ExecuteResult result, client.Execute(spec, named));
  answer.outcome = result.summary.outcome;
  for (size_t i = 0; i < expected.size(); ++i) {
    const OutputComparison comparison =
        CompareTensors(result.outputs.at(i).name, result.outputs[i].tensor, expected[i], kTolerance);
    if (!comparison.passed()) answer.mistake = absl::StrCat(comparison.name, " ", comparison.first_mismatch);
  }
  return answer;
}

int Run(const Flags& flags) {
  client::ClientOptions options;
  options.deadline = absl::Seconds(flags.deadline_seconds);
  options.max_attempts = flags.attempts;
  options.remember_fingerprints = !flags.by_graph;
  options.balance = flags.balance == "round_robin" ? client::Balance::kRoundRobin : client::Balance::kAffinity;
  const absl::StatusOr<std::unique_ptr<client::Client>> client = client::Client::Connect(flags.server, options);
  if (!client.ok()) {
    std::cerr << client.status().message() << "\n";
    return 2;
  }
  Seen seen;
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < flags.threads; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < flags.count; i = next++) {
        const int n = flags.first + i;
        const absl::Time start = absl::Now();
        const absl::StatusOr<Answer> answer = Ask(**client, flags, n);
        const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
        {
          absl::MutexLock lock(&seen.mutex);
          ++seen.asked;
          seen.slowest_ms = std::max(seen.slowest_ms, ms);
          if (!answer.ok()) {
            ++seen.failed;
            seen.AddError(absl::StrCat("graph ", n, ": ", answer.status().ToString()));
          } else {
            ++seen.outcomes[answer->outcome];
            if (!answer->digest.empty()) seen.digests[absl::StrCat(n)] = answer->digest;
            if (!answer->mistake.empty()) {
              ++seen.wrong;
              seen.AddError(absl::StrCat("graph ", n, ": ", answer->mistake));
            }
          }
        }
        if (flags.pace_ms > 0) absl::SleepFor(absl::Milliseconds(flags.pace_ms));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::MutexLock lock(&seen.mutex);
  std::cout << nlohmann::json({{"asked", seen.asked},
                               {"failed", seen.failed},
                               {"wrong", seen.wrong},
                               {"slowest_ms", seen.slowest_ms},
                               {"errors", seen.errors},
                               {"outcomes", seen.outcomes},
                               {"digests", seen.digests}})
                   .dump()
            << std::endl;
  return 0;
}

}  // namespace
}  // namespace fuseline::testing

int main(int argc, char** argv) {
  fuseline::testing::Flags flags;
  CLI::App app("A client of the cluster test.", "cluster_client");
  app.add_option("--server", flags.server, "as the command line's")->required();
  app.add_option("--balance", flags.balance)->check(CLI::IsMember({"affinity", "round_robin"}));
  app.add_option("--target", flags.target);
  app.add_option("--first", flags.first, "number of the first graph");
  app.add_option("--count", flags.count);
  app.add_option("--threads", flags.threads);
  app.add_flag("--execute", flags.execute, "run them too, and compare with the reference interpreter");
  app.add_flag("--by-graph", flags.by_graph, "send the graph every time");
  app.add_option("--attempts", flags.attempts);
  app.add_option("--pace-ms", flags.pace_ms, "wait of each thread after each graph");
  app.add_option("--deadline", flags.deadline_seconds, "of each request, in seconds");
  CLI11_PARSE(app, argc, argv);
  return fuseline::testing::Run(flags);
}
