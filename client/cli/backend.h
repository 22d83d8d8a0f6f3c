// What a command asks of Fuseline, whether a server does it or an engine in this process. Each command is written once,
// against this. Pipeline: command -> Backend -> local_backend (server/engine) or remote_backend (client/cpp).
// Thread-safety: thread-safe. Blocking: calls block. Errors: those of the engine or the service.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace fuseline::cli {

using client::BenchmarkOptions;
using client::BenchmarkResult;
using client::CacheStats;
using client::CompileResult;
using client::CompileSpec;
using client::CompileStage;
using client::EvictOptions;
using client::EvictResult;
using client::ExecuteOptions;
using client::ExecuteResult;
using client::ExplainOptions;
using client::ExplainResult;
using client::ImportResult;
using client::KeepOptions;
using client::KeptTensor;
using client::KeptTensors;
using client::NamedTensor;
using client::ServerInfo;
using client::StageListener;
using client::VerifyResult;

using BatchListener = client::Client::BatchListener;

class Backend {
 public:
  virtual ~Backend() = default;

  // With the kernels' source. `on_stage` hears how far it is; may be empty.
  virtual absl::StatusOr<CompileResult> Compile(const CompileSpec& spec, const StageListener& on_stage = nullptr) = 0;
  // As Client::CompileBatch, with source.
  virtual absl::Status CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result) = 0;
  // `inputs`: named as the graph's, in any order.
  virtual absl::StatusOr<ExecuteResult> Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                                const ExecuteOptions& options = {}) = 0;
  virtual absl::StatusOr<ExplainResult> Explain(const CompileSpec& spec, const ExplainOptions& options) = 0;
  // Compares with the reference interpreter.
  virtual absl::StatusOr<VerifyResult> VerifyWithReference(const CompileSpec& spec,
                                                           const std::vector<NamedTensor>& inputs,
                                                           const Tolerance& tolerance) = 0;
  // Measures on random inputs, which the engine's side makes.
  virtual absl::StatusOr<BenchmarkResult> Benchmark(const CompileSpec& spec, const BenchmarkOptions& options) = 0;
  // Of several servers, one with a CUDA device if there is one, else the first that answers.
  virtual absl::StatusOr<ServerInfo> Info() = 0;
  virtual absl::StatusOr<CacheStats> GetCacheStats() = 0;
  // As those of Client.
  virtual absl::StatusOr<EvictResult> EvictCache(const EvictOptions& options) = 0;
  virtual absl::Status ExportCache(const std::vector<Fingerprint>& fingerprints,
                                   const client::Client::FileSink& sink) = 0;
  virtual absl::StatusOr<ImportResult> ImportCache(const client::Client::FileSource& source) = 0;

  // Tensors that outlive a command: a server's alone. Errors: INVALID_ARGUMENT (kOptionInvalid) without one.
  virtual absl::StatusOr<KeptTensor> PutTensor(const Tensor& tensor, const KeepOptions& options);
  virtual absl::StatusOr<Tensor> GetTensor(const std::string& handle);
  virtual absl::Status DeleteTensor(const std::string& handle);
  virtual absl::StatusOr<KeptTensors> ListTensors();
};

struct BackendOptions {
  std::string server;        // not empty: a server at this address, or several
  client::TlsOptions tls;    // of connections to the server
  std::string owner;         // of kept tensors
  bool round_robin = false;  // of several servers: not by affinity
  absl::Duration hedge_delay = absl::InfiniteDuration();
  std::string cache_dir;                               // local: the disk cache; empty: none
  bool needs_cache = false;                            // local: an error where it can't be opened
  std::string cache_key_file;                          // local: what signs its entries; empty: they are not signed
  std::string cache_namespace;                         // local: salt
  std::map<Fingerprint, std::string> pinned;           // as ClientOptions has it
  int device_threads = 0;                              // local: threads of the CPU device; 0: one for each core
  absl::Duration deadline = absl::InfiniteDuration();  // of each call to a server
};

absl::StatusOr<std::unique_ptr<Backend>> MakeRemoteBackend(const BackendOptions& options);
// Only where the program is built with the engine (FUSELINE_BUILD_SERVER).
absl::StatusOr<std::unique_ptr<Backend>> MakeLocalBackend(const BackendOptions& options);

}  // namespace fuseline::cli
