// Compile, execute, verify, explain: the only place that knows all the stages. No gRPC.
// Pipeline: Graph -> Engine::Compile -> Artifact; Artifact, tensors -> Engine::Execute -> tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/artifact.h"
#include "common/case_file/compare_tensors.h"
#include "common/fingerprint/fingerprint.h"
#include "common/ir/graph.h"
#include "common/ir/verify_graph.h"
#include "common/tensor/tensor.h"
#include "server/cache/artifact_store.h"
#include "server/cache/export_file.h"
#include "server/cache/shared_artifact_store.h"
#include "server/compiler/kernel_compiler.h"
#include "server/compiler/worker_compiler.h"
#include "server/executor/executor.h"

namespace fuseline {

struct EngineOptions {
  std::string cache_dir;  // empty: no disk level
  int64_t cache_memory_bytes = 256ll << 20;
  int64_t cache_disk_bytes = 16ll << 30;
  absl::Duration cache_disk_max_idle = absl::InfiniteDuration();  // entries of the disk level that nobody used go
  std::string cache_seed;       // an export file whose entries are served besides; empty: none
  std::string cache_key_file;   // what signs entries, as RecordSigner has it; empty: they are not signed
  std::string cache_namespace;  // salt: entries of another one are not seen
  absl::Duration cache_error_duration = absl::Seconds(60);  // how long failures that would come again are remembered
  cache::SharedCacheOptions shared_cache;                   // without a URL: no shared level
  int compile_threads = 0;        // builds at a time, and threads of a build that runs alone; 0: one for each core
  int max_builds_waiting = 1024;  // for a thread; more are refused
  // For how long a build that nobody waits for any more goes on.
  absl::Duration build_linger = absl::Seconds(30);
  cache::Report report;  // what happens to the cache's levels after Create (Info has what did before), for the log
  std::vector<std::string> nvrtc_search_paths;
  std::string host_compiler;  // empty: found
  // Without a command the compilers run in this process. As many workers of each compiler as compile threads, where it
  // does not say.
  compiler::WorkerOptions compiler_workers;
  GraphLimits limits;
  executor::ExecutorOptions executor;
  executor::TensorStoreOptions tensors;
};

struct CompileRequest {
  Graph graph;          // parsed; verified by the engine
  SymbolSizes symbols;  // of the graph's symbolic dims
  Target target;
  CompileOptions options;
  bool bypass_cache = false;  // build anew and do not store
};

struct CompileResult {
  ArtifactPtr artifact;  // null where `symbolic` is set
  // Of a graph with symbols: what finds it at all sizes; unset where it has too large constants.
  std::optional<Fingerprint> symbolic_fingerprint;
  // Found by that: the graph, in canonical names (symbols s0, s1, … in order of appearance). It takes sizes to compile.
  std::optional<CompileRequest> symbolic;
  cache::Outcome outcome = cache::Outcome::kMiss;
  absl::Duration elapsed;
  absl::Duration build_time;  // 0 on a hit
};

struct ExecuteResult {
  CompileResult compiled;
  executor::Execution execution;
};

// The outputs' comparisons follow common/case_file/compare_tensors.h.
struct VerifyResult {
  CompileResult compiled;
  std::vector<OutputComparison> outputs;
  bool passed = false;
};

struct TargetInfo {
  Target target;
  bool can_compile = false;
  bool can_execute = false;
  std::string reason;  // why not, and what to install
};

struct CompilerInfo {
  std::string name;  // "nvrtc", "host"
  compiler::WorkerStats workers;
};

struct EngineInfo {
  std::vector<TargetInfo> targets;
  std::vector<executor::DeviceInfo> devices;
  std::string compiler_identity;
  std::vector<std::string> warnings;  // what the engine does without: a disk cache that could not be opened
  std::vector<CompilerInfo> compilers;
  // Since the start, of the artifacts that were built: kernels that a compiler made, and kernels that an artifact of
  // the same graph at other sizes had already.
  int64_t kernels_compiled = 0;
  int64_t kernels_reused = 0;
};

struct ImportResult {
  int64_t imported = 0;
  int64_t present = 0;  // already
  int64_t refused = 0;  // damaged, unsigned where signatures are required, of another compiler
  std::string first_refusal;
};

// A field of the key in which a request and an entry differ.
struct KeyDifference {
  std::string field;
  std::string wanted;  // the request's value
  std::string found;   // the entry's
};

// Why there is no entry for a request: the one that is nearest to it, and what is different there.
struct MissReport {
  bool is_there = false;               // there is one
  std::optional<Fingerprint> nearest;  // of the others; unset: there are none
  int64_t compared = 0;                // entries that were looked at
  std::vector<KeyDifference> differences;
};

// The stages of one compilation, printed: for `compile --emit`, `explain --dump` and golden tests.
struct StageDump {
  std::vector<std::pair<std::string, std::string>>
      stages;  // "graph", "canonical", "loops", "fusion", "bodies", "plan", "source", for CUDA "ptx"
};

// Thread-safe.
class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // With compilers of the caller's: for tests.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        std::unique_ptr<compiler::KernelCompiler> cuda,
                                                        std::unique_ptr<compiler::KernelCompiler> cpu);
  virtual ~Engine() = default;

  // `wait`: how long the caller waits and what it hears meanwhile. A build that others wait for goes on without it, and
  // one that nobody waits for goes on for a while, so that asking again finds it.
  virtual absl::StatusOr<CompileResult> Compile(const CompileRequest& request, const cache::WaitOptions& wait) = 0;
  absl::StatusOr<CompileResult> Compile(const CompileRequest& request) { return Compile(request, {}); }
  // By fingerprint, which may be one of a graph with symbols. Errors: NOT_FOUND (kFingerprintUnknown).
  virtual absl::StatusOr<CompileResult> Find(const Fingerprint& fingerprint) = 0;
  // As Find, where that takes microseconds: nothing where the artifact is not in memory, or has symbols.
  virtual std::optional<CompileResult> FindInMemory(const Fingerprint& fingerprint) { return std::nullopt; }
  // The fingerprint and its fields, without compiling.
  virtual absl::StatusOr<std::vector<KeyField>> ExplainKey(const CompileRequest& request, Fingerprint* fingerprint) = 0;
  // Symbolic dims that the request does not bind are solved from the inputs' shapes.
  // `options` also say how long to wait for the compilation.
  virtual absl::StatusOr<ExecuteResult> Execute(const CompileRequest& request,
                                                const std::vector<executor::Argument>& inputs,
                                                const executor::ExecuteOptions& options) = 0;
  virtual absl::StatusOr<executor::Execution> ExecuteArtifact(const ArtifactPtr& artifact,
                                                              const std::vector<executor::Argument>& inputs,
                                                              const executor::ExecuteOptions& options) = 0;
  // Runs the graph and the reference interpreter. `expected`: compare with these instead, where not empty.
  virtual absl::StatusOr<VerifyResult> Verify(const CompileRequest& request, const std::vector<Tensor>& inputs,
                                              const std::vector<Tensor>& expected, const Tolerance& tolerance,
                                              const executor::ExecuteOptions& options = {}) = 0;
  virtual absl::StatusOr<executor::BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs,
                                                      int warmup, int iterations,
                                                      const executor::ExecuteOptions& options = {}) = 0;
  virtual absl::StatusOr<StageDump> DumpStages(const CompileRequest& request) = 0;
  // The tensors that are kept between calls.
  virtual executor::TensorStore& tensors() = 0;
  // As Executor::Fetch.
  virtual absl::StatusOr<Tensor> FetchTensor(const executor::StoredTensorPtr& tensor) = 0;
  virtual EngineInfo Info() const = 0;
  virtual cache::StoreStats CacheStats() const = 0;
  // Why the request has no entry on this machine. Errors: as of ExplainKey.
  virtual absl::StatusOr<MissReport> ExplainMiss(const CompileRequest& request) = 0;
  virtual cache::EvictResult EvictCache(const cache::EvictRequest& request) = 0;
  // Entries as an export file: those with `keys`, which the shared level may have, or all that this machine keeps.
  // Errors: NOT_FOUND (kFingerprintUnknown) for a key without an artifact; the sink's.
  virtual absl::Status ExportCache(const std::vector<Fingerprint>& keys, const cache::ByteSink& sink) = 0;
  // Errors: INVALID_ARGUMENT (kDataLoss) for a damaged file, whose entries up to there stay; the source's.
  virtual absl::StatusOr<ImportResult> ImportCache(const cache::ByteSource& source) = 0;
  // Reads the key file again; on an error the keys stay.
  virtual absl::Status ReloadKeys() = 0;
  virtual const GraphLimits& limits() const = 0;
  // Stops taking work (UNAVAILABLE) and waits for what runs.
  virtual void Drain() = 0;
};

}  // namespace fuseline
