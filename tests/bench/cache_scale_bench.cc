// What an idle server costs, and one whose disk cache holds many artifacts: time from its start until it serves,
// resident memory, and processor time while nobody asks. docs/benchmarks.md has figures.
//   cache_scale_bench [--artifacts 100000] [--idle_seconds 30] [--folder FOLDER]
// The artifacts are one that the server compiled, each with kernels, source and graph of its own.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "server/cache/artifact_store.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

constexpr char kGraph[] =
    "graph g(x: f32[64, 1024], w: f32[1024], b: f32[1024]) {\n  %t = mul(x, w)\n  %u = add(%t, b)\n"
    "  %y = sigmoid(%u)\n  return y = %y\n}";
constexpr int64_t kDiskBytes = int64_t{64} << 30;

struct Settings {
  int artifacts = 100'000;
  int idle_seconds = 30;
  std::string folder;
};

double ResidentMiB(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// User and system time of the process.
double ProcessorSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::unique_ptr<ServerProcess> StartServer(const Settings& settings) {
  return std::make_unique<ServerProcess>(
      settings.folder,
      std::vector<std::string>{"--cache_dir", settings.folder + "/cache",
                               absl::StrCat("--cache_disk_mb=", kDiskBytes >> 20), "--log_level=warning"});
}

absl::StatusOr<client::CompileResult> Ask(const ServerProcess& server) {
  auto connected = client::Client::Connect(server.address());
  if (!connected.ok()) return connected.status();
  absl::StatusOr<Graph> graph = ParseGraphText(kGraph);
  if (!graph.ok()) return graph.status();
  return (*connected)->Compile({.graph = std::make_shared<const Graph>(*std::move(graph))}, /*include_source=*/true);
}

// Starts a server, says what that took and what it costs, asks it for the graph, and stops it.
bool Measure(const char* what, const Settings& settings, ArtifactPtr* artifact) {
  const absl::Time start = absl::Now();
  const std::unique_ptr<ServerProcess> server = StartServer(settings);
  const absl::Duration ready = absl::Now() - start;
  if (!server->running()) {
    std::fprintf(stderr, "the server does not start: %s\n", server->log().c_str());
    return false;
  }
  const double start_cpu = ProcessorSeconds(server->pid());
  std::printf("%-28s serving after %.2f s (%.2f s of processor time), resident %.0f MiB", what,
              absl::ToDoubleSeconds(ready), start_cpu, ResidentMiB(server->pid()));
  std::fflush(stdout);
  absl::SleepFor(absl::Seconds(settings.idle_seconds));
  std::printf("; after %d s idle %.0f MiB, processor %.3f %%", settings.idle_seconds, ResidentMiB(server->pid()),
              100 * (ProcessorSeconds(server->pid()) - start_cpu) / settings.idle_seconds);
  const absl::StatusOr<client::CompileResult> result = Ask(*server);
  if (!result.ok()) {
    std::fprintf(stderr, "\n%s\n", result.status().ToString().c_str());
    return false;
  }
  std::printf("; first answer %s in %.2f ms on the server\n", result->summary.outcome.c_str(),
              absl::ToDoubleMilliseconds(result->summary.elapsed));
  std::fflush(stdout);
  *artifact = result->artifact;
  server->Stop();
  return true;
}

absl::Status Fill(const Settings& settings, const Artifact& model) {
  auto store = cache::MakeRocksDbStore(settings.folder + "/cache", {.capacity_bytes = kDiskBytes});
  if (!store.ok()) return store.status();
  const absl::Time start = absl::Now();
  for (int n = 1; n < settings.artifacts; ++n) {
    auto artifact = std::make_shared<Artifact>(model);
    artifact->canonical_graph += absl::StrCat("#", n);
    artifact->fingerprint.bytes = ComputeDigest(artifact->canonical_graph).sha256;
    for (KernelImage& kernel : artifact->kernels) {
      absl::StrAppend(&kernel.bytes, n);
      absl::StrAppend(&kernel.source, "// ", n, "\n");
    }
    if (absl::Status status = (*store)->Put(artifact->fingerprint, artifact); !status.ok()) return status;
  }
  cache::StoreStats stats;
  (*store)->AddStats(stats);
  std::printf("filled: %lld artifacts, %lld MiB, %.1f s\n", static_cast<long long>(stats.levels[0].entries),
              static_cast<long long>(stats.levels[0].size_bytes >> 20), absl::ToDoubleSeconds(absl::Now() - start));
  std::fflush(stdout);
  return absl::OkStatus();
}

int Run(Settings settings) {
  const TemporaryFolder temporary;
  if (settings.folder.empty()) settings.folder = temporary.path();
  ArtifactPtr artifact;
  if (!Measure("empty", settings, &artifact)) return 1;
  if (const absl::Status status = Fill(settings, *artifact); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  const std::string what = absl::StrCat(settings.artifacts, " artifacts");
  for (int i = 0; i < 3; ++i) {
    if (!Measure(what.c_str(), settings, &artifact)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace fuseline::testing

int main(int argc, char** argv) {
  fuseline::testing::Settings settings;
  CLI::App app("Measures an idle server, without and with many artifacts on disk.");
  app.add_option("--artifacts", settings.artifacts, "entries of the disk cache")->capture_default_str();
  app.add_option("--idle_seconds", settings.idle_seconds, "how long nobody asks")->capture_default_str();
  app.add_option("--folder", settings.folder, "folder for the cache, which stays; default: one that is removed");
  CLI11_PARSE(app, argc, argv);
  return fuseline::testing::Run(settings);
}
