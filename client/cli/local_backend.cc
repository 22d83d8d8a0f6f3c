// An engine in this process does the work. The only file of client/ that includes the engine.
#include <algorithm>
#include <iostream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/cli/backend.h"
#include "client/cpp/pinned_artifacts.h"
#include "common/artifact/report_names.h"
#include "common/case_file/random_inputs.h"
#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/compiler/worker_compiler.h"
#include "server/engine/engine.h"

namespace fuseline::cli {
namespace {

client::CompileSummary Summarize(const fuseline::CompileResult& result) {
  client::CompileSummary summary;
  summary.fingerprint = result.artifact->fingerprint;
  summary.outcome = std::string(cache::OutcomeName(result.outcome));
  summary.elapsed = result.elapsed;
  summary.build_time = result.build_time;
  summary.target = result.artifact->target;
  return summary;
}

absl::Status InputError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("input '", name, "' ", message));
}

absl::StatusOr<std::vector<Tensor>> InGraphOrder(const Graph& graph, const std::vector<NamedTensor>& inputs) {
  absl::flat_hash_map<std::string, const Tensor*> by_name;
  for (const NamedTensor& input : inputs) {
    if (!by_name.emplace(input.name, &input.tensor).second) return InputError(input.name, "is given twice");
  }
  std::vector<Tensor> ordered;
  for (const ValueId id : graph.inputs) {
    const auto it = by_name.find(graph.value(id).name);
    if (it == by_name.end()) return InputError(graph.value(id).name, "has no tensor");
    ordered.push_back(*it->second);
    by_name.erase(it);
  }
  if (!by_name.empty()) return InputError(by_name.begin()->first, "is not an input of the graph");
  return ordered;
}

class LocalBackend : public Backend {
 public:
  LocalBackend(std::unique_ptr<Engine> engine, std::map<Fingerprint, std::string> pinned)
      : engine_(std::move(engine)), pinned_(std::move(pinned)) {}

  absl::StatusOr<CompileResult> Compile(const CompileSpec& spec, const StageListener& on_stage) override {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, MakeRequest(spec));
    cache::WaitOptions wait;
    // The same numbers.
    if (on_stage) wait.on_stage = [&](cache::BuildStage stage) { on_stage(static_cast<CompileStage>(stage)); };
    FUSELINE_ASSIGN_OR_RETURN(const fuseline::CompileResult compiled, engine_->Compile(request, wait));
    FUSELINE_RETURN_IF_ERROR(pinned_.Check(*compiled.artifact));
    return CompileResult{Summarize(compiled), compiled.artifact};
  }

  // One after the other: a graph's kernels are compiled in parallel already.
  absl::Status CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result) override {
    for (size_t i = 0; i < specs.size(); ++i) on_result(i, Compile(specs[i], nullptr));
    return absl::OkStatus();
  }

  absl::StatusOr<ExecuteResult> Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                        const ExecuteOptions& options) override {
    const bool has_handles =
        std::any_of(inputs.begin(), inputs.end(), [](const NamedTensor& input) { return !input.handle.empty(); });
    if (!options.keep.empty() || has_handles) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--server",
                             "tensors are kept by a server: give --server HOST:PORT or set FUSELINE_SERVER");
    }
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, MakeRequest(spec));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> ordered, InGraphOrder(request.graph, inputs));
    FUSELINE_ASSIGN_OR_RETURN(fuseline::ExecuteResult executed,
                              engine_->Execute(request, executor::Arguments(ordered), {}));
    FUSELINE_RETURN_IF_ERROR(pinned_.Check(*executed.compiled.artifact));
    ExecuteResult result;
    result.summary = Summarize(executed.compiled);
    for (size_t i = 0; i < executed.execution.outputs.size(); ++i) {
      result.outputs.push_back({request.graph.outputs[i].name, std::move(executed.execution.outputs[i])});
    }
    result.queue_time = absl::Microseconds(executed.execution.queue_micros);
    result.run_time = absl::Microseconds(executed.execution.run_micros);
    result.device = executed.execution.device;
    return result;
  }

  absl::StatusOr<ExplainResult> Explain(const CompileSpec& spec, const ExplainOptions& options) override {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, MakeRequest(spec));
    ExplainResult result;
    if (options.miss) {
      FUSELINE_ASSIGN_OR_RETURN(const fuseline::MissReport miss, engine_->ExplainMiss(request));
      client::MissReport& out = result.miss.emplace();
      out.is_there = miss.is_there;
      out.nearest = miss.nearest;
      out.compared = miss.compared;
      for (const fuseline::KeyDifference& d : miss.differences) out.differences.push_back({d.field, d.wanted, d.found});
    }
    FUSELINE_ASSIGN_OR_RETURN(const fuseline::CompileResult compiled, engine_->Compile(request));
    result.summary = Summarize(compiled);
    result.report = compiled.artifact->report;
    RenameReportValues(CanonicalNames(request.graph), result.report);
    if (options.stages) {
      FUSELINE_ASSIGN_OR_RETURN(StageDump dump, engine_->DumpStages(request));
      result.stages = std::move(dump.stages);
    }
    if (options.key) {
      Fingerprint fingerprint;
      FUSELINE_ASSIGN_OR_RETURN(result.key_fields, engine_->ExplainKey(request, &fingerprint));
    }
    return result;
  }

  absl::StatusOr<VerifyResult> VerifyWithReference(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                                   const Tolerance& tolerance) override {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, MakeRequest(spec));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> ordered, InGraphOrder(request.graph, inputs));
    FUSELINE_ASSIGN_OR_RETURN(const fuseline::VerifyResult verified, engine_->Verify(request, ordered, {}, tolerance));
    return VerifyResult{Summarize(verified.compiled), verified.passed, verified.outputs};
  }

  absl::StatusOr<BenchmarkResult> Benchmark(const CompileSpec& spec, const BenchmarkOptions& options) override {
    FUSELINE_ASSIGN_OR_RETURN(const CompileRequest request, MakeRequest(spec));
    FUSELINE_ASSIGN_OR_RETURN(const fuseline::CompileResult compiled, engine_->Compile(request));
    std::vector<TensorType> types;
    for (const PlanTensor& input : compiled.artifact->plan.inputs) types.push_back(input.type());
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, MakeBenchmarkInputs(types, options.seed));
    FUSELINE_ASSIGN_OR_RETURN(executor::BenchResult bench,
                              engine_->Bench(compiled.artifact, inputs, options.warmup_count, options.iteration_count));
    BenchmarkResult result;
    result.summary = Summarize(compiled);
    result.report = compiled.artifact->report;
    result.micros = std::move(bench.micros);
    result.copy_bytes_per_second = bench.copy_bytes_per_second;
    result.moved_bytes = result.report.bytes_after();
    result.device = bench.device;
    for (const executor::DeviceInfo& device : engine_->Info().devices) {
      if (device.ordinal == bench.device) result.device_name = device.name;
    }
    return result;
  }

  absl::StatusOr<ServerInfo> Info() override {
    const EngineInfo info = engine_->Info();
    ServerInfo result;
    result.version = "local";
    result.compiler_identity = info.compiler_identity;
    for (const fuseline::TargetInfo& t : info.targets)
      result.targets.push_back({t.target.ToString(), t.can_compile, t.can_execute, t.reason});
    for (const executor::DeviceInfo& d : info.devices) {
      result.devices.push_back(
          {d.ordinal, d.name, d.target.ToString(), d.memory_bytes, d.healthy, d.executions, d.queue_depth});
    }
    result.limits = engine_->limits();
    return result;
  }

  absl::StatusOr<CacheStats> GetCacheStats() override {
    const cache::StoreStats stats = engine_->CacheStats();
    CacheStats result;
    for (const cache::LevelStats& l : stats.levels) {
      result.levels.push_back(
          {l.level, l.entries, l.size_bytes, l.hits, l.misses, l.corrupt, l.evictions, l.errors, l.unsigned_entries});
    }
    result.builds = stats.builds;
    result.joins = stats.joins;
    result.known_errors = stats.known_errors;
    return result;
  }

  absl::StatusOr<EvictResult> EvictCache(const EvictOptions& options) override {
    cache::EvictRequest request = {options.fingerprints, options.all};
    if (options.unused_for != absl::ZeroDuration()) request.unused_for = options.unused_for;
    const cache::EvictResult evicted = engine_->EvictCache(request);
    return EvictResult{evicted.entries, evicted.size_bytes};
  }

  absl::Status ExportCache(const std::vector<Fingerprint>& fingerprints,
                           const client::Client::FileSink& sink) override {
    int64_t offset = 0;
    return engine_->ExportCache(fingerprints, [&](std::string_view bytes) {
      const int64_t at = offset;
      offset += static_cast<int64_t>(bytes.size());
      return sink(at, bytes);
    });
  }

  absl::StatusOr<ImportResult> ImportCache(const client::Client::FileSource& source) override {
    int64_t offset = 0;
    FUSELINE_ASSIGN_OR_RETURN(const fuseline::ImportResult imported,
                              engine_->ImportCache([&]() -> absl::StatusOr<std::string> {
                                absl::StatusOr<std::string> bytes = source(offset);
                                if (bytes.ok()) offset += static_cast<int64_t>(bytes->size());
                                return bytes;
                              }));
    return ImportResult{imported.imported, imported.present, imported.refused, imported.first_refusal};
  }

 private:
  static absl::StatusOr<CompileRequest> MakeRequest(const CompileSpec& spec) {
    if (spec.graph == nullptr) return InvalidArgument(ErrorReason::kOptionInvalid, "graph", "a graph is needed");
    CompileRequest request;
    request.graph = *spec.graph;
    request.symbols = spec.symbols;
    if (spec.target.has_value()) request.target = *spec.target;
    request.options = spec.options;
    request.bypass_cache = spec.bypass_cache;
    return request;
  }

  std::unique_ptr<Engine> engine_;
  client::PinnedArtifacts pinned_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeLocalBackend(const BackendOptions& options) {
  EngineOptions engine_options;
  engine_options.cache_dir = options.cache_dir;
  engine_options.cache_key_file = options.cache_key_file;
  engine_options.cache_namespace = options.cache_namespace;
  engine_options.executor.cpu_threads = options.device_threads;
  engine_options.compiler_workers.command = compiler::ThisProgramAsWorker();
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  for (const cache::LevelStats& level : engine->CacheStats().levels) {
    if (level.available || !options.needs_cache) continue;
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kInputOutput, options.cache_dir,
                     absl::StrCat("the cache in '", options.cache_dir, "' can't be used: ", level.reason));
  }
  for (const std::string& warning : engine->Info().warnings) std::cerr << "warning: " << warning << "\n";
  return std::unique_ptr<Backend>(new LocalBackend(std::move(engine), options.pinned));
}

}  // namespace fuseline::cli
