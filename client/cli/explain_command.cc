// fuseline explain GRAPH: the fusion plan, kernel by kernel, with bytes and launches before and after.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/explain_page.h"
#include "client/cli/file_io.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

struct ExplainCommandFlags {
  std::string graph;
  bool why = false;
  bool key = false;
  bool why_miss = false;
  bool source = false;
  bool bench = false;
  std::string html;
  CompileFlags compile;
};

const KernelImage* FindImage(const Artifact& artifact, const std::string& name) {
  for (const KernelImage& image : artifact.kernels) {
    if (image.entry == name) return &image;
  }
  return nullptr;
}

std::string KernelText(const Artifact& artifact, const KernelReport& kernel, size_t index, bool with_source) {
  std::string text =
      absl::StrFormat("\nkernel %d: %s\n  kind       %s\n  schedule   %s\n  ops        %s\n", static_cast<int>(index),
                      kernel.name, kernel.kind, kernel.schedule, absl::StrJoin(kernel.ops, ", "));
  absl::StrAppend(&text, "  tensors    ", kernel.tensors_read, " read, ", kernel.tensors_written, " written\n");
  absl::StrAppend(&text, "  bytes      ", BytesText(static_cast<double>(kernel.bytes_read)), " read, ",
                  BytesText(static_cast<double>(kernel.bytes_written)),
                  " written (unfused: ", BytesText(static_cast<double>(kernel.unfused_bytes)), " in ",
                  kernel.unfused_kernels, kernel.unfused_kernels == 1 ? " kernel)\n" : " kernels)\n");
  const KernelImage* image = FindImage(artifact, kernel.name);
  if (image == nullptr) return text;
  if (artifact.target.is_cuda()) {
    const KernelResources& r = image->resources;
    absl::StrAppend(&text, "  registers  ", r.registers, ", shared ", r.static_shared_bytes, " bytes, spills ",
                    r.spill_store_bytes, " stored / ", r.spill_load_bytes, " loaded bytes\n");
  }
  if (with_source) absl::StrAppend(&text, "  source\n", image->source, "\n");
  return text;
}

std::string ReportText(const std::string& graph_name, const CompileResult& result, const ArtifactReport& report,
                       const ExplainCommandFlags& flags) {
  std::string text = absl::StrCat("graph ", graph_name, ": ", SummaryText(result.summary), "\n");
  absl::StrAppend(&text, report.kernels_before(), report.kernels_before() == 1 ? " kernel" : " kernels", " -> ",
                  report.kernels_after(), ", ", report.transfers_before(), " tensor transfers -> ",
                  report.transfers_after(), ", ", report.intermediates_removed,
                  report.intermediates_removed == 1 ? " intermediate removed\n" : " intermediates removed\n");
  absl::StrAppend(&text, "bytes moved: ", BytesText(static_cast<double>(report.bytes_before())), " -> ",
                  BytesText(static_cast<double>(report.bytes_after())), "\n");
  for (size_t i = 0; i < report.kernels.size(); ++i)
    absl::StrAppend(&text, KernelText(*result.artifact, report.kernels[i], i, flags.source));
  if (flags.why) {
    absl::StrAppend(&text, "\nnot fused:", report.refusals.empty() ? " nothing was refused\n" : "\n");
    for (const FusionRefusal& r : report.refusals)
      absl::StrAppend(&text, "  ", r.producer, " into ", r.consumer, ": ", r.reason, "\n");
  }
  return text;
}

std::string MissText(const client::MissReport& miss) {
  std::string text = miss.is_there ? "\nin the cache: it was there before\n" : "\nnot in the cache";
  if (!miss.nearest.has_value()) {
    absl::StrAppend(&text, miss.is_there ? "" : ": ", "of ", miss.compared, " other entries none is like it\n");
    return text;
  }
  absl::StrAppend(&text, miss.is_there ? "" : "; ", "nearest of ", miss.compared,
                  miss.compared == 1 ? " other entry: " : " other entries: ", miss.nearest->ToHex(),
                  ", which differs in\n");
  for (const client::KeyDifference& difference : miss.differences) {
    absl::StrAppend(&text, absl::StrFormat("  %-24s here   %s\n  %-24s there  %s\n", difference.field,
                                           difference.wanted, "", difference.found));
  }
  return text;
}

Json MissJson(const client::MissReport& miss) {
  Json json = {{"is_there", miss.is_there}, {"compared", miss.compared}, {"differences", Json::array()}};
  if (miss.nearest.has_value()) json["nearest"] = miss.nearest->ToHex();
  for (const client::KeyDifference& difference : miss.differences) {
    json["differences"].push_back(
        {{"field", difference.field}, {"here", difference.wanted}, {"there", difference.found}});
  }
  return json;
}

absl::StatusOr<int> RunExplain(const ExplainCommandFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const CompileSpec spec, MakeSpec(context, flags.graph, flags.compile));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  context.Progress("compiling…");
  std::vector<KeyField> key;
  std::optional<client::MissReport> miss;
  // Before it is in the cache.
  if (flags.key || flags.why_miss) {
    FUSELINE_ASSIGN_OR_RETURN(ExplainResult explained,
                              backend->Explain(spec, {.key = flags.key, .miss = flags.why_miss}));
    key = std::move(explained.key_fields);
    miss = std::move(explained.miss);
  }
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, backend->Compile(spec));
  std::optional<BenchmarkResult> benchmark;
  if (flags.bench) {
    context.Progress("measuring…");
    FUSELINE_ASSIGN_OR_RETURN(benchmark, backend->Benchmark(spec, {}));
  }
  context.ClearProgress();
  // The artifact is any client's; people want to read their own names.
  ArtifactReport report = result.artifact->report;
  RenameReportValues(CanonicalNames(*spec.graph), report);
  if (!flags.html.empty()) {
    const Json data = ExplainPageData({.graph = *spec.graph,
                                       .symbols = spec.symbols,
                                       .summary = result.summary,
                                       .artifact = *result.artifact,
                                       .report = report,
                                       .key_fields = key,
                                       .benchmark = benchmark});
    FUSELINE_RETURN_IF_ERROR(WriteFile(flags.html, ExplainPage(data)));
    if (flags.html == "-") return 0;
  }
  if (context.json()) {
    Json json = SummaryJson(result.summary);
    json["graph"] = spec.graph->name;
    json["report"] = ReportJson(report);
    Json images = Json::array();
    for (const KernelImage& image : result.artifact->kernels) {
      Json entry = {{"name", image.entry},
                    {"image_bytes", image.bytes.size()},
                    {"registers", image.resources.registers},
                    {"shared_bytes", image.resources.static_shared_bytes},
                    {"spill_store_bytes", image.resources.spill_store_bytes},
                    {"spill_load_bytes", image.resources.spill_load_bytes}};
      if (flags.source) entry["source"] = image.source;
      images.push_back(std::move(entry));
    }
    json["images"] = std::move(images);
    if (flags.key) json["key"] = KeyFieldsJson(key);
    if (miss.has_value()) json["miss"] = MissJson(*miss);
    if (benchmark.has_value()) json["iterations_us"] = benchmark->micros;
    PrintJson(json);
    return 0;
  }
  std::cout << ReportText(spec.graph->name, result, report, flags);
  if (benchmark.has_value()) {
    std::vector<double> micros = benchmark->micros;
    std::sort(micros.begin(), micros.end());
    if (!micros.empty()) std::cout << "\ntime: " << MicrosText(micros[micros.size() / 2]) << " a run, all kernels\n";
  }
  if (flags.key) {
    std::cout << "\nkey " << result.summary.fingerprint.ToHex() << "\n";
    for (const KeyField& f : key) std::cout << absl::StreamFormat("  %-24s %s  %s\n", f.name, f.digest, f.value);
  }
  if (miss.has_value()) std::cout << MissText(*miss);
  std::cout << std::flush;
  return 0;
}

}  // namespace

void RegisterExplainCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<ExplainCommandFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "the fusion plan, kernel by kernel, with bytes and launches before and after");
  command->add_option("graph", flags->graph, "GRAPH: .fl, .pb, .onnx, or -")->required();
  command->add_flag("--why", flags->why, "also what was not fused, and why");
  command->add_flag("--key", flags->key, "also the fields of the fingerprint with their digests");
  command->add_flag("--why-miss", flags->why_miss,
                    "also whether it was in the cache, and the other entry that is nearest to it, with the fields that "
                    "differ");
  command->add_flag("--source", flags->source, "also the kernels' source");
  command->add_option("--html", flags->html,
                      "FILE: also a page for a browser, with the graph before and after fusion as pictures, every "
                      "kernel and its source; one file that needs no network; -: the page alone, on standard output");
  command->add_flag("--bench", flags->bench, "also measure a run on the device, on random inputs");
  AddCompileFlags(*command, flags->compile);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunExplain(*flags, context); }); });
}

}  // namespace fuseline::cli
