// fuseline compile GRAPH…: compiles, and prints or saves what was asked for.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

struct CompileCommandFlags {
  std::vector<std::string> graphs;
  std::string emit;
  std::string output;
  std::string lock;
  bool progress = false;
  CompileFlags compile;
};

absl::StatusOr<std::string> EmitImages(const Artifact& artifact, ImageFormat format, const std::string& what) {
  std::vector<std::string> images;
  for (const KernelImage& kernel : artifact.kernels) {
    if (kernel.format == format) images.push_back(kernel.bytes);
  }
  if (images.empty() && !artifact.kernels.empty()) {
    return Unimplemented(
        what, absl::StrCat("--emit ", what, ": the artifact for ", artifact.target.ToString(), " has no such image"));
  }
  if (format == ImageFormat::kCubin && images.size() > 1) {
    return Unimplemented(
        what, absl::StrCat("--emit ", what, ": the plan has ", images.size(), " kernels; use --emit artifact"));
  }
  return absl::StrJoin(images, "\n");
}

// A stage of the compilation, as the engine prints it.
absl::StatusOr<std::string> EmitStage(Backend& backend, const CompileSpec& spec, const std::string& stage) {
  FUSELINE_ASSIGN_OR_RETURN(const ExplainResult explained, backend.Explain(spec, {.stages = true}));
  for (const auto& [name, text] : explained.stages) {
    if (name == stage) return text;
  }
  return Unimplemented(stage, absl::StrCat("--emit ", stage, ": the compilation has no such stage"));
}

absl::StatusOr<std::string> EmitText(Backend& backend, const CompileSpec& spec, const Artifact& artifact,
                                     const std::string& what) {
  if (what == "source") {
    std::vector<std::string> sources;
    for (const KernelImage& kernel : artifact.kernels) sources.push_back(kernel.source);
    return absl::StrJoin(sources, "\n");
  }
  if (what == "cubin") return EmitImages(artifact, ImageFormat::kCubin, what);
  if (what == "artifact") return SerializeArtifact(artifact);
  return EmitStage(backend, spec, what);
}

const char* StageText(CompileStage stage) {
  switch (stage) {
    case CompileStage::kCacheCheck:
      return "asking the cache";
    case CompileStage::kQueued:
      return "waiting for a compiler";
    case CompileStage::kCompiling:
      return "compiling";
    case CompileStage::kDone:
      break;
  }
  return "done";
}

// Many graphs: one line each, as they are done.
absl::StatusOr<int> RunBatch(const CompileCommandFlags& flags, CommandContext& context) {
  if (!flags.emit.empty()) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "--emit", "--emit takes one graph");
  }
  std::vector<CompileSpec> specs;
  for (const std::string& graph : flags.graphs) {
    FUSELINE_ASSIGN_OR_RETURN(CompileSpec spec, MakeSpec(context, graph, flags.compile));
    specs.push_back(std::move(spec));
  }
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  size_t done = 0;
  bool failed = false;
  Json all = Json::array();
  const auto show_count = [&] { context.Progress(absl::StrCat(done, " of ", specs.size(), " compiled")); };
  show_count();
  FUSELINE_RETURN_IF_ERROR(backend->CompileBatch(specs, [&](size_t i, absl::StatusOr<CompileResult> result) {
    ++done;
    failed = failed || !result.ok();
    if (context.json()) {
      Json json = result.ok() ? SummaryJson(result->summary) : ErrorJson(result.status());
      json["graph"] = flags.graphs[i];
      all.push_back(std::move(json));
    } else {
      context.ClearProgress();
      (result.ok() ? std::cout : std::cerr)
          << flags.graphs[i] << ": "
          << (result.ok() ? SummaryText(result->summary) : absl::StrCat("error: ", ErrorText(result.status())))
          << std::endl;
    }
    show_count();
  }));
  context.ClearProgress();
  if (context.json()) PrintJson(all);
  return failed ? 1 : 0;
}

absl::StatusOr<int> RunCompile(const CompileCommandFlags& flags, CommandContext& context) {
  FUSELINE_RETURN_IF_ERROR(context.PinTo(flags.lock));
  if (flags.graphs.size() != 1) return RunBatch(flags, context);
  FUSELINE_ASSIGN_OR_RETURN(const CompileSpec spec, MakeSpec(context, flags.graphs[0], flags.compile));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  const StageListener show = [&](CompileStage stage) {
    if (flags.progress) {
      std::cerr << StageText(stage) << std::endl;
    } else {
      context.Progress(absl::StrCat(StageText(stage), "…"));
    }
  };
  FUSELINE_ASSIGN_OR_RETURN(const CompileResult result, backend->Compile(spec, show));
  context.ClearProgress();
  std::string emitted;
  if (!flags.emit.empty()) {
    FUSELINE_ASSIGN_OR_RETURN(emitted, EmitText(*backend, spec, *result.artifact, flags.emit));
  }
  const bool to_stdout = !flags.emit.empty() && (flags.output.empty() || flags.output == "-");
  const bool is_binary = flags.emit == "cubin" || flags.emit == "artifact";
  if (to_stdout && is_binary && (context.json() || flags.output.empty())) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "--output",
                           absl::StrCat("--emit ", flags.emit, " is binary: give -o PATH (or -o -)"));
  }
  if (!flags.emit.empty() && !(to_stdout && context.json())) FUSELINE_RETURN_IF_ERROR(WriteFile(flags.output, emitted));
  if (context.json()) {
    Json json = SummaryJson(result.summary);
    json["kernels"] = result.artifact->kernels.size();
    if (!flags.emit.empty() && to_stdout) json[flags.emit] = emitted;
    PrintJson(json);
  } else {
    // Emitted text alone goes to standard output, so that it can be piped on.
    (to_stdout ? std::cerr : std::cout) << SummaryText(result.summary) << ", " << result.artifact->kernels.size()
                                        << (result.artifact->kernels.size() == 1 ? " kernel\n" : " kernels\n");
  }
  return 0;
}

}  // namespace

void RegisterCompileCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<CompileCommandFlags>();
  CLI::App* command = app.add_subcommand("compile", "compile a graph");
  command->add_option("graph", flags->graphs, "GRAPH…: .fl, .pb, .onnx, or -; several are compiled in parallel")
      ->required();
  command->add_flag("--progress", flags->progress, "print how far it is, also where standard error is no terminal");
  command->add_option("--emit", flags->emit, "what to print or save")
      ->check(CLI::IsMember({"source", "ptx", "cubin", "plan", "artifact", "canonical", "loops", "fusion", "bodies"}));
  command->add_option("--lock", flags->lock, "accept the artifacts of this lock file alone (fuseline warm --lock)");
  command->add_option("-o,--output", flags->output, "where to; default: standard output");
  AddCompileFlags(*command, flags->compile);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunCompile(*flags, context); }); });
}

}  // namespace fuseline::cli
