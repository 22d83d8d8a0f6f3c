// A server does the work, through the client library.
#include "absl/strings/match.h"
#include "client/cli/backend.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

class RemoteBackend : public Backend {
 public:
  RemoteBackend(std::unique_ptr<client::Client> client, bool several) : client_(std::move(client)), several_(several) {}

  absl::StatusOr<CompileResult> Compile(const CompileSpec& spec, const StageListener& on_stage) override {
    return client_->Compile(spec, /*include_source=*/true, on_stage);
  }
  absl::Status CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result) override {
    return client_->CompileBatch(specs, on_result, /*include_source=*/true);
  }
  absl::StatusOr<ExecuteResult> Execute(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                        const ExecuteOptions& options) override {
    return client_->Execute(spec, inputs, options);
  }
  absl::StatusOr<ExplainResult> Explain(const CompileSpec& spec, const ExplainOptions& options) override {
    return client_->Explain(spec, options);
  }
  absl::StatusOr<VerifyResult> VerifyWithReference(const CompileSpec& spec, const std::vector<NamedTensor>& inputs,
                                                   const Tolerance& tolerance) override {
    return client_->Verify(spec, inputs, {}, tolerance);
  }
  absl::StatusOr<BenchmarkResult> Benchmark(const CompileSpec& spec, const BenchmarkOptions& options) override {
    return client_->Benchmark(spec, options);
  }
  absl::StatusOr<ServerInfo> Info() override {
    if (!several_) return client_->GetServerInfo();
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<client::ServerState> states, client_->GetServerStates());
    const client::ServerState* best = nullptr;
    for (const client::ServerState& state : states) {
      if (!state.info.ok()) continue;
      if (best == nullptr) best = &state;
      for (const client::DeviceInfo& device : state.info->devices) {
        if (device.healthy && absl::StartsWith(device.target, "cuda")) return state.info;
      }
    }
    return best != nullptr ? best->info : states.front().info;
  }
  absl::StatusOr<CacheStats> GetCacheStats() override { return client_->GetCacheStats(); }
  absl::StatusOr<EvictResult> EvictCache(const EvictOptions& options) override { return client_->EvictCache(options); }
  absl::Status ExportCache(const std::vector<Fingerprint>& fingerprints,
                           const client::Client::FileSink& sink) override {
    return client_->ExportCache(fingerprints, sink);
  }
  absl::StatusOr<ImportResult> ImportCache(const client::Client::FileSource& source) override {
    return client_->ImportCache(source);
  }
  absl::StatusOr<KeptTensor> PutTensor(const Tensor& tensor, const KeepOptions& options) override {
    return client_->PutTensor(tensor, options);
  }
  absl::StatusOr<Tensor> GetTensor(const std::string& handle) override { return client_->GetTensor(handle); }
  absl::Status DeleteTensor(const std::string& handle) override { return client_->DeleteTensor(handle); }
  absl::StatusOr<KeptTensors> ListTensors() override { return client_->ListTensors(); }

 private:
  const std::unique_ptr<client::Client> client_;
  const bool several_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeRemoteBackend(const BackendOptions& options) {
  client::ClientOptions client_options;
  client_options.deadline = options.deadline;
  client_options.owner = options.owner;
  client_options.tls = options.tls;
  client_options.balance = options.round_robin ? client::Balance::kRoundRobin : client::Balance::kAffinity;
  client_options.hedge_delay = options.hedge_delay;
  client_options.pinned = options.pinned;
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client,
                            client::Client::Connect(options.server, client_options));
  const bool several = absl::StrContains(options.server, ',') || absl::StartsWith(options.server, "dns:///");
  return std::unique_ptr<Backend>(new RemoteBackend(std::move(client), several));
}

}  // namespace fuseline::cli
