// Tested by tests/unit/engine/engine_test.cc
#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/artifact/report_names.h"
#include "common/ir/canonical.h"
#include "common/ir/canonical_parts.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/cache/key_record.h"
#include "server/cache/record_signer.h"
#include "server/compiler/kernel_compiler.h"
#include "server/compiler/kernel_memory.h"
#include "server/compiler/worker_compiler.h"
#include "server/engine/build_artifact.h"
#include "server/engine/code_generator_digest.h"
#include "server/engine/symbolic_artifact.h"
#include "server/reference/reference_interpreter.h"

namespace fuseline {
namespace {

// What Info tells of the past is bounded.
constexpr size_t kMostNotices = 8;
// Kernels that artifacts of other sizes may share: some 1,000 to 10,000 of them.
constexpr int64_t kKernelMemoryBytes = int64_t{128} << 20;

// A request with its symbols bound, canonical, and its key.
struct PreparedRequest {
  Graph graph;  // verified and static, in the client's names
  Graph canonical;
  std::optional<Graph> symbolic;  // the client's graph where it has symbols
  SymbolSizes sizes;
  FingerprintInputs key;
  Fingerprint fingerprint;
};

std::string TypesText(const std::vector<TensorType>& types) {
  std::string text;
  for (const TensorType& type : types) absl::StrAppend(&text, text.empty() ? "" : ", ", type.ToString());
  return text;
}

// The fields that differ. The graph's inputs and nodes are told apart where its bytes can be.
std::vector<KeyDifference> CompareKeys(const FingerprintInputs& wanted, const FingerprintInputs& found) {
  std::vector<KeyDifference> differences;
  const std::vector<KeyField> wanted_fields = ExplainKey(wanted);
  const std::vector<KeyField> found_fields = ExplainKey(found);
  for (size_t i = 0; i < wanted_fields.size() && i < found_fields.size(); ++i) {
    if (wanted_fields[i].digest == found_fields[i].digest) continue;
    const std::optional<CanonicalParts> wanted_parts = SplitCanonicalBytes(wanted.canonical_graph);
    const std::optional<CanonicalParts> found_parts = SplitCanonicalBytes(found.canonical_graph);
    if (wanted_fields[i].name != "graph" || !wanted_parts.has_value() || !found_parts.has_value()) {
      differences.push_back({wanted_fields[i].name, wanted_fields[i].value, found_fields[i].value});
      continue;
    }
    if (wanted_parts->inputs != found_parts->inputs) {
      differences.push_back(
          {"graph.inputs", TypesText(wanted_parts->input_types), TypesText(found_parts->input_types)});
    }
    if (wanted_parts->nodes != found_parts->nodes) {
      differences.push_back(
          {"graph.nodes", ComputeDigest(wanted_parts->nodes).ToHex(), ComputeDigest(found_parts->nodes).ToHex()});
    }
  }
  return differences;
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, std::unique_ptr<compiler::KernelCompiler> nvrtc,
             std::unique_ptr<compiler::KernelCompiler> host, std::unique_ptr<executor::Executor> executor)
      : options_(std::move(options)),
        nvrtc_(std::move(nvrtc)),
        host_(std::move(host)),
        executor_(std::move(executor)),
        tensors_(options_.tensors) {
    threads_ = options_.compile_threads > 0 ? options_.compile_threads
                                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  // Errors: those of cache::OpenSharedLevel and cache::RecordSigner. A level that can't be reached is none.
  absl::Status OpenCache() {
    FUSELINE_ASSIGN_OR_RETURN(signer_, cache::RecordSigner::Create({.key_file = options_.cache_key_file,
                                                                    .name_space = options_.cache_namespace,
                                                                    .builder = std::string(kCodeGeneratorDigest)}));
    cache::BuildPoolOptions pool;
    std::unique_ptr<cache::ArtifactStore> lower;  // beneath memory; may be null
    if (!options_.shared_cache.url.empty()) {
      FUSELINE_ASSIGN_OR_RETURN(
          cache::SharedLevel shared,
          cache::OpenSharedLevel(options_.shared_cache, signer_, [this](const std::string& line) { Log(line); }));
      pool.coordinator = std::move(shared.coordinator);
      lower = cache::MakeCheckedStore(std::move(shared.store), kCodeGeneratorDigest);
    }
    if (!options_.cache_dir.empty()) {
      const cache::Report report = [this](const std::string& line) { Notice(line); };
      const auto open = [this, report](bool start_anew) {
        return cache::MakeRocksDbStore(options_.cache_dir, {.capacity_bytes = options_.cache_disk_bytes,
                                                            .start_anew = start_anew,
                                                            .report = report,
                                                            .max_idle = options_.cache_disk_max_idle,
                                                            .signer = signer_});
      };
      cache::RecoveryOptions recovery;
      // Info shows what is the case at any time.
      recovery.report = [this](const std::string& line) { Log(line); };
      // Checked beneath the memory level, so that what is there has been.
      std::unique_ptr<cache::ArtifactStore> disk =
          cache::MakeCheckedStore(cache::MakeRecoveringStore("rocksdb", open, recovery), kCodeGeneratorDigest);
      lower = lower == nullptr ? std::move(disk) : cache::MakeLazilyFilledStore(std::move(disk), std::move(lower));
    }
    if (!options_.cache_seed.empty()) {
      lower = cache::MakeSeedStore(options_.cache_seed, std::move(lower), signer_, kCodeGeneratorDigest);
    }
    std::unique_ptr<cache::ArtifactStore> store = cache::MakeMemoryStore(options_.cache_memory_bytes);
    memory_ = store.get();
    if (lower != nullptr) store = cache::MakeTieredStore(std::move(store), std::move(lower));
    pool.threads = threads_;
    pool.max_waiting = options_.max_builds_waiting;
    pool.linger = options_.build_linger;
    store_ = cache::MakeMetricsStore(
        cache::MakeNegativeStore(cache::MakeSingleFlightStore(std::move(store), pool), options_.cache_error_duration));
    is_open_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<CompileResult> Compile(const CompileRequest& request, const cache::WaitOptions& wait) override {
    FUSELINE_ASSIGN_OR_RETURN(PreparedRequest prepared, Prepare(request, nullptr));
    return CompilePrepared(request, std::move(prepared), wait);
  }

  absl::StatusOr<CompileResult> Find(const Fingerprint& fingerprint) override {
    const absl::Time start = absl::Now();
    FUSELINE_ASSIGN_OR_RETURN(cache::Lookup found, store_->Get(fingerprint));
    // The fingerprint was made with a compiler identity; an artifact of another one would not have been found under it.
    if (found.artifact == nullptr) {
      return MakeError(absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, fingerprint.ToHex(),
                       "no artifact with this fingerprint: send the graph");
    }
    CompileResult result;
    if (IsSymbolicArtifact(*found.artifact)) {
      CompileRequest& request = result.symbolic.emplace();
      FUSELINE_ASSIGN_OR_RETURN(request.graph, ReadSymbolicArtifact(*found.artifact, options_.limits));
      request.target = found.artifact->target;
      request.options = found.artifact->options;
    } else {
      result.artifact = std::move(found.artifact);
    }
    result.outcome = found.outcome;
    result.elapsed = absl::Now() - start;
    return result;
  }

  std::optional<CompileResult> FindInMemory(const Fingerprint& fingerprint) override {
    const absl::Time start = absl::Now();
    cache::Lookup found = store_->GetInMemory(fingerprint);
    if (found.artifact == nullptr || IsSymbolicArtifact(*found.artifact)) return std::nullopt;
    CompileResult result;
    result.artifact = std::move(found.artifact);
    result.outcome = found.outcome;
    result.elapsed = absl::Now() - start;
    return result;
  }

  absl::StatusOr<std::vector<KeyField>> ExplainKey(const CompileRequest& request, Fingerprint* fingerprint) override {
    FUSELINE_ASSIGN_OR_RETURN(const PreparedRequest prepared, Prepare(request, nullptr));
    if (fingerprint != nullptr) *fingerprint = prepared.fingerprint;
    return fuseline::ExplainKey(prepared.key);
  }

  absl::StatusOr<ExecuteResult> Execute(const CompileRequest& request, const std::vector<executor::Argument>& inputs,
                                        const executor::ExecuteOptions& options) override {
    FUSELINE_RETURN_IF_ERROR(executor_->CanRun(request.target));
    FUSELINE_ASSIGN_OR_RETURN(PreparedRequest prepared, Prepare(request, &inputs));
    FUSELINE_RETURN_IF_ERROR(CheckInputs(prepared.graph, inputs));
    ExecuteResult result;
    FUSELINE_ASSIGN_OR_RETURN(result.compiled,
                              CompilePrepared(request, std::move(prepared), {options.deadline, options.cancelled}));
    absl::StatusOr<executor::Execution> execution = executor_->Execute(result.compiled.artifact, inputs, options);
    // The artifact names nodes as the canonical graph does.
    if (!execution.ok()) return RenameIndexError(CanonicalNames(request.graph), execution.status());
    result.execution = *std::move(execution);
    return result;
  }

  absl::StatusOr<executor::Execution> ExecuteArtifact(const ArtifactPtr& artifact,
                                                      const std::vector<executor::Argument>& inputs,
                                                      const executor::ExecuteOptions& options) override {
    return executor_->Execute(artifact, inputs, options);
  }

  absl::StatusOr<VerifyResult> Verify(const CompileRequest& request, const std::vector<Tensor>& inputs,
                                      const std::vector<Tensor>& expected, const Tolerance& tolerance,
                                      const executor::ExecuteOptions& options) override {
    const std::vector<executor::Argument> arguments = executor::Arguments(inputs);
    FUSELINE_ASSIGN_OR_RETURN(ExecuteResult run, Execute(request, arguments, options));
    VerifyResult result;
    result.compiled = std::move(run.compiled);
    FUSELINE_ASSIGN_OR_RETURN(const PreparedRequest prepared, Prepare(request, &arguments));
    std::vector<Tensor> want = expected;
    if (want.empty()) {
      FUSELINE_ASSIGN_OR_RETURN(want, reference::Interpret(prepared.graph, inputs, request.options));
    }
    if (want.size() != run.execution.outputs.size()) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, "expected",
          absl::StrCat("the graph returns ", run.execution.outputs.size(), " values, ", want.size(), " are expected"));
    }
    result.passed = true;
    for (size_t i = 0; i < want.size(); ++i) {
      result.outputs.push_back(
          CompareTensors(prepared.graph.outputs[i].name, run.execution.outputs[i], want[i], tolerance));
      result.passed = result.passed && result.outputs.back().passed();
    }
    return result;
  }

  absl::StatusOr<executor::BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs,
                                              int warmup, int iterations,
                                              const executor::ExecuteOptions& options) override {
    return executor_->Bench(artifact, inputs, warmup, iterations, options);
  }

  executor::TensorStore& tensors() override { return tensors_; }
  absl::StatusOr<Tensor> FetchTensor(const executor::StoredTensorPtr& tensor) override {
    return executor_->Fetch(tensor);
  }

  absl::StatusOr<StageDump> DumpStages(const CompileRequest& request) override {
    FUSELINE_ASSIGN_OR_RETURN(const PreparedRequest prepared, Prepare(request, nullptr));
    FUSELINE_ASSIGN_OR_RETURN(const GeneratedCode code,
                              GenerateCode(prepared.canonical, request.target, request.options));
    StageDump dump;
    dump.stages.emplace_back("graph", PrintGraph(prepared.graph));
    dump.stages.emplace_back("canonical", PrintGraph(prepared.canonical));
    dump.stages.emplace_back("loops", lowering::PrintLoopProgram(code.loops));
    dump.stages.emplace_back("fusion", fuser::PrintFusionPlan(code.loops, code.fusion));
    dump.stages.emplace_back("bodies", code.kernels.bodies);
    dump.stages.emplace_back("plan", PrintLaunchPlan(code.kernels.plan, code.kernels.sources));
    std::string source;
    for (const KernelSource& s : code.kernels.sources) absl::StrAppend(&source, source.empty() ? "" : "\n", s.text);
    dump.stages.emplace_back("source", std::move(source));
    if (request.target.is_cuda()) {
      std::string ptx;
      for (const KernelSource& s : code.kernels.sources) {
        FUSELINE_ASSIGN_OR_RETURN(const std::string text, CompilerFor(request.target).CompileToPtx(s));
        absl::StrAppend(&ptx, ptx.empty() ? "" : "\n", text);
      }
      dump.stages.emplace_back("ptx", std::move(ptx));
    }
    return dump;
  }

  EngineInfo Info() const override {
    EngineInfo info;
    info.devices = executor_->Devices();
    info.compiler_identity = kCodeGeneratorDigest;
    info.kernels_compiled = kernels_compiled_;
    info.kernels_reused = kernels_reused_;
    info.compilers = {{"nvrtc", nvrtc_->workers()}, {"host", host_->workers()}};
    const auto add = [&](const Target& target) {
      for (const TargetInfo& t : info.targets) {
        if (t.target == target) return;
      }
      TargetInfo t;
      t.target = target;
      const absl::Status compile = CompilerFor(target).Available();
      const absl::Status run = executor_->CanRun(target);
      t.can_compile = compile.ok();
      t.can_execute = compile.ok() && run.ok();
      if (!compile.ok()) t.reason = std::string(compile.message());
      if (!run.ok()) absl::StrAppend(&t.reason, t.reason.empty() ? "" : "; ", std::string(run.message()));
      info.targets.push_back(std::move(t));
    };
    add(Target::Cpu());
    for (const executor::DeviceInfo& d : info.devices) add(d.target);
    if (info.targets.size() == 1) add(Target::Cuda(90));
    {
      absl::MutexLock lock(&notices_mutex_);
      info.warnings = notices_;
    }
    for (const cache::LevelStats& level : CacheStats().levels) {
      if (level.available) continue;
      info.warnings.push_back(absl::StrCat("serving without the ",
                                           level.level == "redis"     ? "shared"
                                           : level.level == "rocksdb" ? "disk"
                                                                      : level.level,
                                           " cache: ", level.reason));
    }
    return info;
  }

  cache::StoreStats CacheStats() const override {
    cache::StoreStats stats;
    store_->AddStats(stats);
    return stats;
  }

  absl::StatusOr<MissReport> ExplainMiss(const CompileRequest& request) override {
    FUSELINE_ASSIGN_OR_RETURN(const PreparedRequest prepared, Prepare(request, nullptr));
    MissReport report;
    report.is_there = Peek(prepared.fingerprint) != nullptr;
    const cache::KeyRecord wanted = cache::MakeKeyRecord(prepared.fingerprint, prepared.key);
    cache::NearestEntry nearest;
    store_->ForEachLevel([&](const cache::ArtifactStore& level) { level.FindNearest(wanted, nearest); });
    report.compared = nearest.compared;
    if (nearest.nearness == 0) return report;
    const ArtifactPtr artifact = Peek(nearest.key);
    if (artifact == nullptr) return report;  // gone since
    report.nearest = nearest.key;
    report.differences = CompareKeys(
        prepared.key, {artifact->canonical_graph, artifact->target, artifact->options, artifact->compiler_identity});
    return report;
  }

  cache::EvictResult EvictCache(const cache::EvictRequest& request) override {
    // An entry in several levels counts once. Twice: a level may have been filled from one below it meanwhile.
    cache::EvictResult result;
    for (int round = 0; round < 2; ++round) {
      store_->ForEachLevel([&](cache::ArtifactStore& level) {
        const cache::EvictResult dropped = level.Evict(request);
        result.entries = std::max(result.entries, dropped.entries);
        result.size_bytes = std::max(result.size_bytes, dropped.size_bytes);
      });
    }
    return result;
  }

  absl::Status ExportCache(const std::vector<Fingerprint>& keys, const cache::ByteSink& sink) override {
    std::vector<Fingerprint> wanted = keys;
    if (keys.empty()) store_->ForEachLevel([&](const cache::ArtifactStore& level) { level.AddKeys(wanted); });
    // In order, so that equal caches make equal files.
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    cache::ExportWriter writer(sink, *signer_);
    for (const Fingerprint& key : wanted) {
      ArtifactPtr artifact = Peek(key);
      if (artifact == nullptr && !keys.empty()) {
        FUSELINE_ASSIGN_OR_RETURN(cache::Lookup found, store_->Get(key));
        artifact = std::move(found.artifact);
        if (artifact == nullptr) {
          return MakeError(absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, key.ToHex(),
                           absl::StrCat("no artifact has the fingerprint ", key.ToHex()));
        }
      }
      // What is of another compiler, or gone since, is of no use to anybody.
      if (artifact == nullptr || !cache::MatchesKey(key, *artifact, kCodeGeneratorDigest)) continue;
      FUSELINE_RETURN_IF_ERROR(writer.Add(*artifact));
    }
    return writer.Finish();
  }

  absl::StatusOr<ImportResult> ImportCache(const cache::ByteSource& source) override {
    cache::ExportReader reader(source, *signer_);
    ImportResult result;
    while (true) {
      if (draining_) return Draining();
      FUSELINE_ASSIGN_OR_RETURN(std::optional<cache::ExportReader::Entry> entry, reader.Next());
      if (!entry.has_value()) return result;
      if (entry->artifact != nullptr && !cache::MatchesKey(entry->key, *entry->artifact, kCodeGeneratorDigest)) {
        entry->artifact = nullptr;
        entry->refusal = "the artifact is of another version of the code generator, or not what its key says";
      }
      if (entry->artifact == nullptr) {
        if (result.refused++ == 0) result.first_refusal = absl::StrCat(entry->key.ToHex(), ": ", entry->refusal);
      } else if (IsKept(entry->key)) {
        ++result.present;
      } else {
        FUSELINE_RETURN_IF_ERROR(store_->Put(entry->key, entry->artifact));
        ++result.imported;
      }
    }
  }

  // What was believed for a key that is gone is not believed any more: memory keeps no signatures to check again.
  absl::Status ReloadKeys() override {
    bool lost_key = false;
    FUSELINE_RETURN_IF_ERROR(signer_->Reload(&lost_key));
    if (lost_key) memory_->Evict({.keys = {}, .all = true});
    return absl::OkStatus();
  }

  const GraphLimits& limits() const override { return options_.limits; }

  void Drain() override {
    draining_ = true;
    store_->Drain();
    executor_->Drain();
  }

 private:
  compiler::KernelCompiler& CompilerFor(const Target& target) const { return target.is_cuda() ? *nvrtc_ : *host_; }

  static absl::Status Draining() {
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "", "the server is shutting down");
  }

  // From any level of this machine; unchecked, and without a trace there. Null where there is none.
  ArtifactPtr Peek(const Fingerprint& key) {
    ArtifactPtr found;
    store_->ForEachLevel([&](cache::ArtifactStore& level) {
      if (found == nullptr) found = level.Peek(key);
    });
    return found;
  }

  // Whether an entry is where it stays: in the last of the levels.
  bool IsKept(const Fingerprint& key) {
    ArtifactPtr found;
    store_->ForEachLevel([&](cache::ArtifactStore& level) { found = level.Peek(key); });
    return found != nullptr;
  }

  // `inputs`: where symbols that the request leaves open take their sizes from; may be null.
  absl::StatusOr<PreparedRequest> Prepare(const CompileRequest& request,
                                          const std::vector<executor::Argument>* inputs) const {
    if (draining_) return Draining();
    FUSELINE_RETURN_IF_ERROR(CompilerFor(request.target).Available());
    PreparedRequest out;
    out.graph = request.graph;
    if (out.graph.is_static()) {
      FUSELINE_RETURN_IF_ERROR(VerifyGraph(out.graph, options_.limits));
      if (!request.symbols.empty()) {
        return InvalidArgument(ErrorReason::kGraphStructure, request.symbols.begin()->first,
                               absl::StrCat("the graph has no symbol '", request.symbols.begin()->first, "'"));
      }
    } else {
      SymbolSizes sizes = request.symbols;
      if (inputs != nullptr) {
        std::vector<Shape> shapes;
        for (const executor::Argument& t : *inputs) shapes.push_back(t.shape());
        FUSELINE_ASSIGN_OR_RETURN(const SymbolSizes solved, SolveSymbols(request.graph, shapes));
        sizes.insert(solved.begin(), solved.end());
      }
      for (const std::string& symbol : GraphSymbols(request.graph)) {
        if (sizes.find(symbol) == sizes.end()) {
          return Unimplemented(symbol, absl::StrCat("compiling for every size of '", symbol,
                                                    "' is not implemented in this version: give the symbol a size"));
        }
      }
      FUSELINE_ASSIGN_OR_RETURN(out.graph, BindSymbols(request.graph, sizes, options_.limits));
      out.symbolic = request.graph;
      out.sizes = std::move(sizes);
    }
    out.canonical = Canonicalize(out.graph);
    out.key.canonical_graph = CanonicalBytes(out.canonical);
    // Kernels with size parameters are others than those of a graph that has these sizes once and for all.
    if (out.symbolic) out.key.canonical_graph += SymbolicDims(*out.symbolic);
    out.key.target = request.target;
    out.key.options = request.options;
    out.key.compiler_identity = absl::StrCat(kCodeGeneratorDigest, ";", CompilerFor(request.target).Identity());
    out.fingerprint = ComputeFingerprint(out.key);
    return out;
  }

  // Which dims of the inputs are symbols, numbered by first appearance: their names mean nothing.
  static std::string SymbolicDims(const Graph& graph) {
    const std::vector<std::string> symbols = GraphSymbols(graph);
    std::string out = "symbols";
    for (const ValueId id : graph.inputs) {
      absl::StrAppend(&out, ";");
      for (const Dim& dim : graph.type(id).dims) {
        const auto at = std::find(symbols.begin(), symbols.end(), dim.symbol);
        absl::StrAppend(&out, dim.is_symbolic() ? absl::StrCat(at - symbols.begin()) : "-", ",");
      }
    }
    return out;
  }

  static absl::Status CheckInputs(const Graph& graph, const std::vector<executor::Argument>& inputs) {
    if (inputs.size() != graph.inputs.size()) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, "inputs",
          absl::StrCat("the graph has ", graph.inputs.size(), " inputs, ", inputs.size(), " tensors were given"));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType& want = graph.type(graph.inputs[i]);
      const std::string& name = graph.value(graph.inputs[i]).name;
      if (inputs[i].dtype() != want.dtype || inputs[i].shape() != want.shape()) {
        TensorType dense = want;
        dense.strides.reset();
        return InvalidArgument(ErrorReason::kTensorMismatch, absl::StrCat("inputs.", name),
                               absl::StrCat("input '", name, "' is ", dense.ToString(), ", the tensor given is ",
                                            TensorType::Make(inputs[i].dtype(), inputs[i].shape()).ToString()));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CompileResult> CompilePrepared(const CompileRequest& request, PreparedRequest request_prepared,
                                                const cache::WaitOptions& wait) {
    const absl::Time start = absl::Now();
    // Shared with the build, which may outlive this call.
    const auto prepared = std::make_shared<const PreparedRequest>(std::move(request_prepared));
    const cache::Builder build = [this, prepared,
                                  request_bypasses = request.bypass_cache](const cache::BuildControl& control) {
      return Build(*prepared, request_bypasses, control);
    };
    CompileResult result;
    // Twice: the second time after what is not of this graph has been dropped.
    for (bool again = false; result.artifact == nullptr; again = true) {
      FUSELINE_ASSIGN_OR_RETURN(cache::Lookup found, request.bypass_cache
                                                         ? store_->BuildAnew(build, wait)
                                                         : store_->GetOrBuild(prepared->fingerprint, build, wait));
      // Equal fingerprints with unequal graphs would be a collision of SHA-256, or a corrupt entry.
      if (found.artifact->canonical_graph == prepared->key.canonical_graph) {
        result.artifact = std::move(found.artifact);
        result.build_time = found.build_time;
        result.outcome = found.outcome;
      } else if (again) {
        return Internal("the cached artifact is of another graph");
      } else {
        store_->Delete(prepared->fingerprint).IgnoreError();  // a level that fails is passed over
      }
    }
    if (prepared->symbolic && !request.bypass_cache) result.symbolic_fingerprint = KeepSymbolic(*prepared);
    result.elapsed = absl::Now() - start;
    return result;
  }

  // What finds the graph at other sizes.
  std::optional<Fingerprint> KeepSymbolic(const PreparedRequest& prepared) {
    const ArtifactPtr artifact = MakeSymbolicArtifact(*prepared.symbolic, prepared.key.target, prepared.key.options,
                                                      prepared.key.compiler_identity);
    if (artifact == nullptr) return std::nullopt;
    // A level that fails is passed over: the graph will be asked for.
    if (store_->GetInMemory(artifact->fingerprint).artifact == nullptr)
      store_->Put(artifact->fingerprint, artifact).IgnoreError();
    return artifact->fingerprint;
  }

  // Runs on a thread of the cache's.
  absl::StatusOr<ArtifactPtr> Build(const PreparedRequest& prepared, bool bypass_cache,
                                    const cache::BuildControl& control) {
    // Builds that run at one time share the threads.
    const int threads = std::max(1, threads_ / ++builds_running_);
    const absl::Cleanup done = [this] { --builds_running_; };
    compiler::KernelCompiler& compiler = CompilerFor(prepared.key.target);
    SymbolBinding binding;
    if (prepared.symbolic) binding = {&*prepared.symbolic, prepared.sizes, options_.limits};
    // Artifacts of other sizes may have the same kernels.
    const bool reuse = prepared.symbolic.has_value() && !bypass_cache;
    compiler::ReusingCompiler reusing(compiler, *kernels_);
    absl::StatusOr<Artifact> artifact =
        BuildArtifact(prepared.canonical, binding, prepared.key.target, prepared.key.options,
                      reuse ? static_cast<compiler::KernelCompiler&>(reusing) : compiler, threads, control.stop);
    if (artifact.ok()) {
      kernels_reused_ += reusing.reused();
      kernels_compiled_ += static_cast<int64_t>(artifact->kernels.size()) - reusing.reused();
    }
    FUSELINE_RETURN_IF_ERROR(artifact.status());
    artifact->fingerprint = prepared.fingerprint;
    artifact->canonical_graph = prepared.key.canonical_graph;
    artifact->compiler_identity = prepared.key.compiler_identity;
    return std::make_shared<const Artifact>(*std::move(artifact));
  }

  // What happens while the cache is opened is in Info, which the server logs.
  void Log(const std::string& line) const {
    if (options_.report && is_open_) options_.report(line);
  }

  // What Info says from now on, and the log now.
  void Notice(const std::string& line) {
    Log(line);
    absl::MutexLock lock(&notices_mutex_);
    notices_.push_back(line);
    if (notices_.size() > kMostNotices) notices_.erase(notices_.begin());
  }

  EngineOptions options_;
  std::unique_ptr<compiler::KernelCompiler> nvrtc_;
  std::unique_ptr<compiler::KernelCompiler> host_;
  std::unique_ptr<executor::Executor> executor_;
  executor::TensorStore tensors_;
  mutable absl::Mutex notices_mutex_;
  std::vector<std::string> notices_ ABSL_GUARDED_BY(notices_mutex_);  // oldest first
  int threads_ = 1;
  const std::unique_ptr<compiler::KernelMemory> kernels_ = std::make_unique<compiler::KernelMemory>(kKernelMemoryBytes);
  std::atomic<int64_t> kernels_compiled_{0};
  std::atomic<int64_t> kernels_reused_{0};
  std::atomic<int> builds_running_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> is_open_{false};             // the cache
  cache::ArtifactStore* memory_ = nullptr;       // in store_
  std::shared_ptr<cache::RecordSigner> signer_;  // set when the cache is opened
  std::unique_ptr<cache::ArtifactStore> store_;  // last: its builds use the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  const auto make_compiler = [&options](compiler::CompilerSpec::Kind kind) {
    compiler::WorkerOptions workers = options.compiler_workers;
    if (workers.max_workers == 0) workers.max_workers = options.compile_threads;
    return compiler::MakeWorkerCompiler({kind, options.nvrtc_search_paths, options.host_compiler}, workers);
  };
  return Create(options, make_compiler(compiler::CompilerSpec::Kind::kNvrtc),
                make_compiler(compiler::CompilerSpec::Kind::kHost));
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                       std::unique_ptr<compiler::KernelCompiler> cuda,
                                                       std::unique_ptr<compiler::KernelCompiler> cpu) {
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<executor::Executor> executor, executor::Executor::Create(options.executor));
  auto engine = std::make_unique<EngineImpl>(options, std::move(cuda), std::move(cpu), std::move(executor));
  FUSELINE_RETURN_IF_ERROR(engine->OpenCache());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace fuseline
