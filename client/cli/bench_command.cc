// fuseline bench GRAPH…: compile time, and the whole plan's time against the rate at which the device copies memory.
#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

constexpr int kMaxRuns = 10'000;  // the service's bound

struct BenchFlags {
  std::vector<std::string> graphs;
  int iterations = 20;
  int warmup = 3;
  int64_t seed = 1;
  CompileFlags compile;
};

struct Figures {
  std::string graph;
  BenchmarkResult result;
  double median_micros = 0;
  double min_micros = 0;
  double bytes_per_second = 0;  // of the plan's bytes, at the median
  double copy_fraction = 0;     // of the device's copy rate
};

absl::StatusOr<Figures> BenchGraph(const std::string& path, const BenchFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const CompileSpec spec, MakeSpec(context, path, flags.compile));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  Figures figures;
  figures.graph = spec.graph->name;
  BenchmarkOptions options;
  options.seed = flags.seed;
  options.warmup_count = flags.warmup;
  options.iteration_count = flags.iterations;
  context.Progress(absl::StrCat(figures.graph, ": compiling and measuring…"));
  FUSELINE_ASSIGN_OR_RETURN(figures.result, backend->Benchmark(spec, options));
  context.ClearProgress();
  std::vector<double> micros = figures.result.micros;
  if (micros.empty()) return Internal("the measurement has no iterations");
  std::sort(micros.begin(), micros.end());
  figures.median_micros = micros[micros.size() / 2];
  figures.min_micros = micros.front();
  const double bytes = static_cast<double>(figures.result.moved_bytes);
  if (figures.median_micros > 0) figures.bytes_per_second = bytes / (figures.median_micros * 1e-6);
  if (figures.result.copy_bytes_per_second > 0)
    figures.copy_fraction = figures.bytes_per_second / figures.result.copy_bytes_per_second;
  return figures;
}

Json FiguresJson(const Figures& f) {
  Json json = {{"graph", f.graph}};
  json.update(SummaryJson(f.result.summary));
  json["kernels"] = f.result.report.kernels_after();
  json["bytes_moved"] = f.result.moved_bytes;
  json["median_us"] = f.median_micros;
  json["min_us"] = f.min_micros;
  json["bytes_per_second"] = f.bytes_per_second;
  json["copy_bytes_per_second"] = f.result.copy_bytes_per_second;
  json["copy_fraction"] = f.copy_fraction;
  Json schedules = Json::array();
  for (const KernelReport& k : f.result.report.kernels) schedules.push_back(k.schedule);
  json["schedules"] = std::move(schedules);
  json["device"] = f.result.device;
  json["device_name"] = f.result.device_name;
  json["iterations_us"] = f.result.micros;
  return json;
}

absl::StatusOr<int> RunBench(const BenchFlags& flags, CommandContext& context) {
  int exit_code = 0;
  Json json = Json::array();
  if (!context.json()) {
    std::cout << absl::StreamFormat("%-28s %7s %11s %11s %11s %11s %10s %7s\n", "graph", "kernels", "compile", "median",
                                    "least", "bytes", "GB/s", "of copy");
  }
  for (const std::string& path : flags.graphs) {
    const absl::StatusOr<Figures> figures = BenchGraph(path, flags, context);
    context.ClearProgress();
    if (!figures.ok()) {
      // One graph that can't be measured does not keep the others from it.
      if (flags.graphs.size() == 1) return figures.status();
      exit_code = 1;
      json.push_back({{"graph", path}, {"error", ErrorJson(figures.status())}});
      if (!context.json()) std::cout << path << ": error: " << ErrorText(figures.status()) << std::endl;
      continue;
    }
    json.push_back(FiguresJson(*figures));
    if (context.json()) continue;
    const Figures& f = *figures;
    const absl::Duration compile = f.result.summary.is_hit() ? f.result.summary.elapsed : f.result.summary.build_time;
    std::cout << absl::StreamFormat("%-28s %7d %11s %11s %11s %11s %10.1f %6.1f%%\n", f.graph,
                                    f.result.report.kernels_after(), MillisText(compile), MicrosText(f.median_micros),
                                    MicrosText(f.min_micros), BytesText(static_cast<double>(f.result.moved_bytes)),
                                    f.bytes_per_second / 1e9, f.copy_fraction * 100)
              << std::flush;
  }
  if (context.json()) PrintJson(json);
  return exit_code;
}

}  // namespace

void RegisterBenchCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench",
                         "measure graphs on the device, the server's or with --local this machine's, on random "
                         "inputs: compile time, run time, bytes a second");
  command->add_option("graphs", flags->graphs, "GRAPH…: .fl, .pb, .onnx, or -")->required();
  command->add_option("--iterations", flags->iterations, "measured runs")
      ->check(CLI::Range(1, kMaxRuns))
      ->capture_default_str();
  command->add_option("--warmup", flags->warmup, "runs before them")
      ->check(CLI::Range(0, kMaxRuns))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "of the random inputs")->capture_default_str();
  AddCompileFlags(*command, flags->compile);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunBench(*flags, context); }); });
}

}  // namespace fuseline::cli
