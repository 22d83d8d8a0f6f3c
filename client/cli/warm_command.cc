// fuseline warm PATH…: compiles graphs before they are needed, so that they are in the server's cache, and writes down
// or checks what they compile to. Tested by tests/e2e/warm_test.cc
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/graph_file.h"
#include "client/cli/json_output.h"
#include "client/cli/lock_file.h"
#include "client/cli/text_output.h"
#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

namespace fs = std::filesystem;

struct WarmFlags {
  std::vector<std::string> paths;
  std::string lock;
  bool quiet = false;
  CompileFlags compile;
};

// One graph for one target.
struct WarmItem {
  std::string path;
  CompileSpec spec;
  std::optional<LockEntry> locked;  // what a lock file says that it must be
};

bool IsLock(const std::string& path) { return absl::EndsWith(path, ".lock"); }
bool IsCase(const std::string& path) { return absl::EndsWith(path, ".json"); }
bool IsGraph(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".fl" || extension == ".pb" || extension == ".onnx" || extension == ".json";
}

// The files, with folders replaced by the graphs in and below them, sorted.
absl::StatusOr<std::vector<std::string>> FindGraphs(const std::vector<std::string>& arguments) {
  std::vector<std::string> paths;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!fs::is_directory(argument, error)) {
      paths.push_back(argument);
      continue;
    }
    std::vector<std::string> found;
    fs::recursive_directory_iterator it(argument, error);
    for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      if (IsGraph(it->path())) found.push_back(it->path().string());
    }
    if (error) {
      return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, argument,
                       absl::StrCat("can't read '", argument, "': ", error.message()));
    }
    std::sort(found.begin(), found.end());
    paths.insert(paths.end(), found.begin(), found.end());
  }
  if (paths.empty()) return InvalidArgument(ErrorReason::kOptionInvalid, "path", "there is no graph there");
  return paths;
}

// Of `given`, the sizes of symbols that the graph has: one list of --symbol serves many graphs.
SymbolSizes SymbolsOf(const Graph& graph, const SymbolSizes& given) {
  std::set<std::string> names;
  for (const ValueId input : graph.inputs) {
    for (const Dim& dim : graph.type(input).dims) {
      if (dim.is_symbolic()) names.insert(dim.symbol);
    }
  }
  SymbolSizes sizes;
  for (const auto& [name, size] : given) {
    if (names.contains(name)) sizes[name] = size;
  }
  return sizes;
}

// The graph, symbols and options of a file, without a target.
absl::StatusOr<CompileSpec> LoadSpec(const std::string& path, const SymbolSizes& symbols,
                                     const CompileOptions& options) {
  CompileSpec spec;
  spec.options = options;
  if (IsCase(path)) {
    FUSELINE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const absl::StatusOr<CaseFile> c = ParseCaseFile(text);
    if (!c.ok()) return Wrap(c.status(), path);
    absl::StatusOr<Graph> graph = ParseGraphText(c->graph_text);
    if (!graph.ok()) return Wrap(graph.status(), path);
    spec.graph = std::make_shared<const Graph>(*std::move(graph));
    spec.symbols = c->symbols;
    spec.options = c->options;
    return spec;
  }
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, LoadGraph(path, symbols));
  if (!IsOnnx(path)) spec.symbols = SymbolsOf(graph, symbols);  // ONNX's are in its shapes
  spec.graph = std::make_shared<const Graph>(std::move(graph));
  return spec;
}

// What has been done and what is to be said of it.
class WarmReport {
 public:
  WarmReport(const WarmFlags& flags, CommandContext& context) : flags_(flags), context_(context) {}

  void Done(const WarmItem& item, const absl::StatusOr<CompileResult>& result) {
    absl::Status status = result.status();
    std::string digest;
    if (status.ok()) {
      digest = ArtifactDigest(*result->artifact);
      status = CheckLock(item, result->summary, digest);
    }
    if (!status.ok()) return Failed(item.path, item.spec.target, status);
    ++counts_[result->summary.is_hit() ? "hits" : result->summary.outcome == "joined" ? "joined" : "compiled"];
    Json json = SummaryJson(result->summary);
    json["graph"] = item.path;
    json["artifact_sha256"] = digest;
    json_.push_back(std::move(json));
    if (!context_.json() && !flags_.quiet) {
      context_.ClearProgress();
      std::cout << item.path << ": " << SummaryText(result->summary) << std::endl;
    }
    LockEntry entry = {.graph = item.path, .target = result->summary.target, .symbols = item.spec.symbols};
    entry.options = item.spec.options;
    entry.fingerprint = result->summary.fingerprint;
    entry.artifact_sha256 = digest;
    lock_.push_back(std::move(entry));
  }

  void Failed(const std::string& path, const std::optional<Target>& target, const absl::Status& status) {
    ++counts_["failed"];
    Json json = ErrorJson(status);
    json["graph"] = path;
    if (target.has_value()) json["target"] = target->ToString();
    json_.push_back(std::move(json));
    if (context_.json()) return;
    context_.ClearProgress();
    std::cerr << path << (target.has_value() ? absl::StrCat(" for ", target->ToString()) : "")
              << ": error: " << ErrorText(status) << std::endl;
  }

  absl::StatusOr<int> Finish() {
    context_.ClearProgress();
    const bool failed = counts_["failed"] > 0;
    if (!flags_.lock.empty() && !failed) FUSELINE_RETURN_IF_ERROR(WriteLock());
    if (context_.json()) {
      PrintJson({{"hits", counts_["hits"]},
                 {"compiled", counts_["compiled"]},
                 {"joined", counts_["joined"]},
                 {"failed", counts_["failed"]},
                 {"graphs", std::move(json_)}});
    } else {
      std::cout << counts_["hits"] << " hits, " << counts_["compiled"] << " compiled, " << counts_["joined"]
                << " joined, " << counts_["failed"] << " failed\n";
      if (!flags_.lock.empty() && failed) std::cerr << "the lock file is not written, since graphs have failed\n";
    }
    return failed ? 1 : 0;
  }

 private:
  static absl::Status CheckLock(const WarmItem& item, const client::CompileSummary& summary,
                                const std::string& digest) {
    if (!item.locked.has_value()) return absl::OkStatus();
    const auto differs = [](std::string_view what, const std::string& locked, const std::string& got) {
      return MakeError(absl::StatusCode::kDataLoss, ErrorReason::kDataLoss, "lock",
                       absl::StrCat("the lock file has the ", std::string(what), " ", locked, ", this is ", got,
                                    ": the graph or the compiler has changed"));
    };
    if (!(summary.fingerprint == item.locked->fingerprint))
      return differs("key", item.locked->fingerprint.ToHex(), summary.fingerprint.ToHex());
    if (digest != item.locked->artifact_sha256) return differs("artifact", item.locked->artifact_sha256, digest);
    return absl::OkStatus();
  }

  absl::Status WriteLock() {
    const fs::path folder = fs::absolute(flags_.lock).parent_path();
    for (LockEntry& entry : lock_) entry.graph = fs::absolute(entry.graph).lexically_relative(folder).string();
    std::sort(lock_.begin(), lock_.end(), [](const LockEntry& a, const LockEntry& b) {
      return std::pair(a.graph, a.target.ToString()) < std::pair(b.graph, b.target.ToString());
    });
    return WriteFile(flags_.lock, WriteLockFile(lock_));
  }

  const WarmFlags& flags_;
  CommandContext& context_;
  std::map<std::string, int64_t> counts_;
  Json json_ = Json::array();
  std::vector<LockEntry> lock_;
};

// What a lock file names; a graph whose file is gone is asked for by its key alone.
absl::Status AddLocked(const std::string& path, std::vector<WarmItem>& items, WarmReport& report) {
  FUSELINE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<std::vector<LockEntry>> entries = ReadLockFile(text);
  if (!entries.ok()) return Wrap(entries.status(), path);
  const fs::path folder = fs::absolute(path).parent_path();
  for (LockEntry& entry : *entries) {
    WarmItem item;
    std::error_code error;
    const std::string file = (folder / entry.graph).lexically_normal().string();
    item.path = file;
    if (fs::exists(file, error)) {
      absl::StatusOr<CompileSpec> spec = LoadSpec(file, entry.symbols, entry.options);
      if (!spec.ok()) {
        report.Failed(file, entry.target, spec.status());
        continue;
      }
      item.spec = *std::move(spec);
    } else {
      item.spec.fingerprint = entry.fingerprint;
    }
    item.spec.target = entry.target;
    item.locked = std::move(entry);
    items.push_back(std::move(item));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Target>> ResolveTargets(CommandContext& context, const std::string& list) {
  std::vector<Target> targets;
  for (const absl::string_view name : absl::StrSplit(list, ',')) {
    FUSELINE_ASSIGN_OR_RETURN(Target target, context.ResolveTarget(std::string(name)));
    targets.push_back(std::move(target));
  }
  return targets;
}

absl::StatusOr<int> RunWarm(const WarmFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FindGraphs(flags.paths));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Target> targets, ResolveTargets(context, flags.compile.target));
  FUSELINE_ASSIGN_OR_RETURN(const SymbolSizes symbols, ParseSymbols(flags.compile.symbols));
  CompileOptions options;
  FUSELINE_RETURN_IF_ERROR(ApplyCompileFlags(flags.compile, options));
  WarmReport report(flags, context);
  std::vector<WarmItem> items;
  for (const std::string& path : paths) {
    if (IsLock(path)) {
      FUSELINE_RETURN_IF_ERROR(AddLocked(path, items, report));
      continue;
    }
    absl::StatusOr<CompileSpec> spec = LoadSpec(path, symbols, options);
    if (!spec.ok()) {
      report.Failed(path, std::nullopt, spec.status());
      continue;
    }
    spec->bypass_cache = flags.compile.no_cache;
    for (const Target& target : targets) {
      spec->target = target;
      items.push_back({path, *spec, std::nullopt});
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  std::vector<CompileSpec> specs;
  for (const WarmItem& item : items) specs.push_back(item.spec);
  size_t done = 0;
  if (!specs.empty()) {
    FUSELINE_RETURN_IF_ERROR(backend->CompileBatch(specs, [&](size_t i, absl::StatusOr<CompileResult> result) {
      report.Done(items[i], result);
      context.Progress(absl::StrCat(++done, " of ", items.size(), " done"));
    }));
  }
  return report.Finish();
}

}  // namespace

void RegisterWarmCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<WarmFlags>();
  CLI::App* command = app.add_subcommand("warm", "compile graphs before they are needed, into the server's cache");
  command
      ->add_option("path", flags->paths,
                   "PATH…: graphs (.fl, .pb, .onnx), case files (.json), folders of them, or lock files (.lock)")
      ->required();
  command->add_option("--lock", flags->lock, "write what each graph compiles to: a .lock file that warm checks later");
  command->add_flag("--quiet", flags->quiet, "print the counts and the errors alone");
  AddCompileFlags(*command, flags->compile);
  command->get_option("--target")->description("as elsewhere; several, separated by commas, compile for each");
  command->callback([=] { set_body([flags](CommandContext& context) { return RunWarm(*flags, context); }); });
}

}  // namespace fuseline::cli
