// Offers a server ten times what it can do for two minutes, first runs, then compilations, and prints what became of
// the calls and of the server's memory beside the bounds that docs/benchmarks.md names. Exit code 1 where one is not
// kept.
//   overload_bench [--seconds 120] [--factor 10] [--queue 64] [--kind runs|compilations|both]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/e2e/overload_load.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

struct Settings {
  double seconds = 120;
  double factor = 10;
  int queue = 64;
  std::string kind = "both";
};

// Prints one line and passes `kept` on.
bool Row(const char* what, double value, double bound, const char* unit, bool kept) {
  std::printf("  %-36s %12.2f %-4s bound %12.2f %-4s %s\n", what, value, unit, bound, unit, kept ? "kept" : "NOT KEPT");
  return kept;
}
bool AtMost(const char* what, double value, double bound, const char* unit) {
  return Row(what, value, bound, unit, value <= bound);
}

bool Measure(LoadKind kind, const Settings& settings) {
  const bool runs = kind == LoadKind::kExecute;
  const TemporaryFolder folder;
  ServerProcess server(folder.path(), {"--cache_dir", "", "--cache_memory_mb=4", "--no-cuda", "--cpu_threads=1",
                                       "--log_level=off", absl::StrCat("--max_queue=", settings.queue)});
  if (!server.running()) {
    std::fprintf(stderr, "the server does not start: %s\n", server.log().c_str());
    return false;
  }
  const absl::StatusOr<Unloaded> unloaded = MeasureUnloaded(server.address(), kind, absl::Seconds(5));
  if (!unloaded.ok()) {
    std::fprintf(stderr, "%s\n", unloaded.status().ToString().c_str());
    return false;
  }
  std::printf("%s: unloaded p50 %.2f ms, p99 %.2f ms; capacity %.1f calls/s\n", runs ? "runs" : "compilations",
              unloaded->latencies.p50_ms, unloaded->latencies.p99_ms, unloaded->calls_per_second);
  LoadOptions options;
  options.kind = kind;
  options.calls_per_second = settings.factor * unloaded->calls_per_second;
  options.duration = absl::Seconds(settings.seconds);
  options.server = server.pid();
  const LoadReport report = OfferLoad(server.address(), options);
  std::printf("  %.0f s at %.1f calls/s and %d closed loops: %lld sent, %lld done (%.1f/s), %lld refused\n",
              settings.seconds, options.calls_per_second, options.closed_loops, static_cast<long long>(report.sent),
              static_cast<long long>(report.admitted.count), report.admitted_per_second,
              static_cast<long long>(report.refused.count));
  std::printf("  done: p50 %.2f ms, p99 %.2f ms, most %.2f ms; refused: p50 %.2f ms, p99 %.2f ms, most %.2f ms\n",
              report.admitted.p50_ms, report.admitted.p99_ms, report.admitted.most_ms, report.refused.p50_ms,
              report.refused.p99_ms, report.refused.most_ms);
  for (const auto& [error, count] : report.unexpected_errors)
    std::printf("  unexpected, %lld times: %s\n", static_cast<long long>(count), error.c_str());
  // Runs wait for a thread and then, holding it, for the device; compilations for a thread and then for a build's turn.
  const int threads = std::max(16, 4 * static_cast<int>(std::thread::hardware_concurrency()));
  const int waiting = settings.queue + (runs ? std::min(threads, settings.queue + 1) : settings.queue + 1);
  const double queue_ms = 1000 * waiting / unloaded->calls_per_second;
  bool kept = AtMost("calls without an answer", static_cast<double>(report.sent - report.answered), 0, "");
  kept = AtMost("calls with two answers", static_cast<double>(report.answered_twice), 0, "") && kept;
  kept = AtMost("other errors than a full queue", static_cast<double>(report.unexpected), 0, "") && kept;
  kept = AtMost("refusals without a time to retry", static_cast<double>(report.without_retry_delay), 0, "") && kept;
  kept =
      AtMost("p99 of what is done", report.admitted.p99_ms, 2 * (unloaded->latencies.p99_ms + queue_ms), "ms") && kept;
  kept = AtMost("p99 of refusals", report.refused.p99_ms, 50, "ms") && kept;
  kept = AtMost("memory, the first fifth 100 %", 100 * report.late_mib / report.warm_mib,
                100 * (1.05 + 16 / report.warm_mib), "%") &&
         kept;
  std::printf("  memory over time, MiB:");
  const size_t samples = report.resident_mib.size();
  for (size_t i = 0; i < 12 && samples > 0; ++i) std::printf(" %.0f", report.resident_mib[i * (samples - 1) / 11]);
  std::printf("\n");
  return kept;
}

}  // namespace
}  // namespace fuseline::testing

int main(int argc, char** argv) {
  using fuseline::testing::LoadKind;
  fuseline::testing::Settings settings;
  CLI::App app("Offers a server more than it can do.");
  app.add_option("--seconds", settings.seconds, "of load, for each kind")->check(CLI::Range(1, 3600));
  app.add_option("--factor", settings.factor, "of the capacity")->check(CLI::Range(1, 100));
  app.add_option("--queue", settings.queue, "the server's --max_queue")->check(CLI::Range(1, 10000));
  app.add_option("--kind", settings.kind)->check(CLI::IsMember({"runs", "compilations", "both"}));
  CLI11_PARSE(app, argc, argv);
  bool kept = true;
  if (settings.kind != "compilations") kept = fuseline::testing::Measure(LoadKind::kExecute, settings) && kept;
  if (settings.kind != "runs") kept = fuseline::testing::Measure(LoadKind::kCompile, settings) && kept;
  return kept ? 0 : 1;
}
