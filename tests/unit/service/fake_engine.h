// An engine for tests of the service: "compiles" every graph to an artifact with its signature, and runs it by giving
// output i a copy of input i (modulo the number of inputs). What it was asked is recorded; errors and blocking are
// injected. Thread-safety: thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "server/engine/engine.h"

namespace fuseline::service {

class FakeEngine : public Engine {
 public:
  // Set before the server starts.
  absl::Status error;                        // what every call answers, if not OK
  std::function<absl::Status()> on_compile;  // called in Compile and Execute, outside the lock; may block or throw
  std::function<absl::Status(const executor::ExecuteOptions&)> on_execute;
  std::atomic<bool> block_compile{false};  // Compile waits while it is set, asking its caller whether to go on
  std::atomic<int> fast_finds{0};          // artifacts found by FindInMemory
  std::function<absl::Status()> on_bench;  // called in Bench, outside the lock
  EngineInfo info = {{{Target::Cpu(), true, true, ""}, {Target::Cuda(90), true, false, "no driver"}},
                     {{0, "fake device", Target::Cpu(), 1 << 30, true, 3, 1}},
                     "fake compiler"};
  GraphLimits graph_limits;
  std::string export_tail = "end";  // what ExportCache ends with

  CompileRequest last_request() const {
    absl::MutexLock lock(&mutex_);
    return last_request_;
  }
  executor::ExecuteOptions last_options() const {
    absl::MutexLock lock(&mutex_);
    return last_options_;
  }
  std::vector<Tensor> last_inputs() const {
    absl::MutexLock lock(&mutex_);
    return last_inputs_;
  }
  Tolerance last_tolerance() const {
    absl::MutexLock lock(&mutex_);
    return last_tolerance_;
  }
  std::vector<Tensor> last_expected() const {
    absl::MutexLock lock(&mutex_);
    return last_expected_;
  }
  bool drained() const {
    absl::MutexLock lock(&mutex_);
    return drained_;
  }

  absl::StatusOr<CompileResult> Compile(const CompileRequest& request, const cache::WaitOptions& wait) override {
    const auto tell = [&](cache::BuildStage stage) {
      if (wait.on_stage) wait.on_stage(stage);
    };
    tell(cache::BuildStage::kCacheCheck);
    tell(cache::BuildStage::kQueued);
    if (on_compile) {
      if (absl::Status status = on_compile(); !status.ok()) return status;
    }
    while (block_compile) {
      absl::SleepFor(absl::Milliseconds(1));
      if (wait.stop) {
        if (absl::Status status = wait.stop(); !status.ok()) return status;
      }
    }
    tell(cache::BuildStage::kBuilding);
    if (!error.ok()) return error;
    absl::MutexLock lock(&mutex_);
    last_request_ = request;
    return CompileLocked(request);
  }
  absl::StatusOr<CompileResult> Find(const Fingerprint& fingerprint) override {
    if (!error.ok()) return error;
    absl::MutexLock lock(&mutex_);
    const auto it = artifacts_.find(fingerprint);
    if (it == artifacts_.end()) {
      return MakeError(absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, fingerprint.ToHex(),
                       "no artifact has this fingerprint");
    }
    CompileResult result;
    result.artifact = it->second;
    result.outcome = cache::Outcome::kMemoryHit;
    return result;
  }
  std::optional<CompileResult> FindInMemory(const Fingerprint& fingerprint) override {
    absl::StatusOr<CompileResult> found = Find(fingerprint);
    if (!found.ok()) return std::nullopt;
    ++fast_finds;
    return *std::move(found);
  }
  absl::StatusOr<std::vector<KeyField>> ExplainKey(const CompileRequest& request, Fingerprint* fingerprint) override {
    return std::vector<KeyField>{{"graph", "abc", "def"}, {"target", request.target.ToString(), "012"}};
  }
  absl::StatusOr<ExecuteResult> Execute(const CompileRequest& request, const std::vector<executor::Argument>& inputs,
                                        const executor::ExecuteOptions& options) override {
    ExecuteResult result;
    absl::StatusOr<CompileResult> compiled = Compile(request, {});
    if (!compiled.ok()) return compiled.status();
    result.compiled = *compiled;
    absl::StatusOr<executor::Execution> execution = ExecuteArtifact(compiled->artifact, inputs, options);
    if (!execution.ok()) return execution.status();
    result.execution = *execution;
    return result;
  }
  absl::StatusOr<executor::Execution> ExecuteArtifact(const ArtifactPtr& artifact,
                                                      const std::vector<executor::Argument>& inputs,
                                                      const executor::ExecuteOptions& options) override {
    if (on_execute) {
      if (absl::Status status = on_execute(options); !status.ok()) return status;
    }
    absl::MutexLock lock(&mutex_);
    last_options_ = options;
    last_inputs_.clear();
    for (const executor::Argument& input : inputs) {
      absl::StatusOr<Tensor> tensor = input.stored != nullptr ? FetchTensor(input.stored) : input.tensor;
      if (!tensor.ok()) return tensor.status();
      last_inputs_.push_back(*std::move(tensor));
    }
    executor::Execution execution;
    for (size_t i = 0; i < artifact->plan.outputs.size(); ++i) {
      const Tensor& input = last_inputs_[i % inputs.size()];
      absl::StatusOr<Tensor> output = Tensor::FromBytes(input.dtype(), input.shape(), input.bytes());
      if (!output.ok()) return output.status();
      execution.outputs.push_back(*output);
      if (options.keep.empty()) continue;
      execution.kept.push_back(options.keep[i] ? executor::StoreOnHost(*output) : nullptr);
      if (options.keep[i]) execution.outputs.back() = Tensor();
    }
    execution.device = 7;
    execution.queue_micros = 1.5;
    execution.run_micros = 2'000'000.25;
    return execution;
  }
  absl::StatusOr<VerifyResult> Verify(const CompileRequest& request, const std::vector<Tensor>& inputs,
                                      const std::vector<Tensor>& expected, const Tolerance& tolerance,
                                      const executor::ExecuteOptions& options) override {
    absl::StatusOr<CompileResult> compiled = Compile(request, {});
    if (!compiled.ok()) return compiled.status();
    absl::MutexLock lock(&mutex_);
    last_inputs_ = inputs;
    last_expected_ = expected;
    last_tolerance_ = tolerance;
    VerifyResult result;
    result.compiled = *compiled;
    result.passed = false;
    OutputComparison comparison;
    comparison.name = "y";
    comparison.elements = 4;
    comparison.mismatches = 1;
    comparison.max_abs_error = 0.5;
    comparison.max_rel_error = 0.25;
    comparison.first_mismatch = "at [1]: got 2.5, want 2";
    result.outputs.push_back(comparison);
    return result;
  }
  absl::StatusOr<executor::BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs,
                                              int warmup, int iterations,
                                              const executor::ExecuteOptions& options) override {
    if (on_bench) {
      if (absl::Status status = on_bench(); !status.ok()) return status;
    }
    absl::MutexLock lock(&mutex_);
    last_inputs_ = inputs;
    executor::BenchResult result;
    for (int i = 0; i < iterations; ++i) result.micros.push_back(warmup + 0.5 * i);
    result.copy_bytes_per_second = 1e12;
    return result;
  }
  absl::StatusOr<StageDump> DumpStages(const CompileRequest& request) override {
    StageDump dump;
    dump.stages = {{"graph", PrintGraph(request.graph)}, {"source", "void f();"}};
    return dump;
  }
  executor::TensorStore& tensors() override { return tensors_; }
  absl::StatusOr<Tensor> FetchTensor(const executor::StoredTensorPtr& tensor) override {
    return executor::FetchFromHost(tensor);
  }
  EngineInfo Info() const override { return info; }
  cache::StoreStats CacheStats() const override {
    cache::StoreStats stats;
    stats.levels = {{"memory", 1, 2, 3, 4, 5, 6, 7}, {"rocksdb", 8, 9, 10, 11, 12, 13, 14, false, "the disk is full"}};
    stats.levels[1].unsigned_entries = 18;
    stats.builds = 15;
    stats.joins = 16;
    stats.known_errors = 17;
    return stats;
  }
  absl::StatusOr<MissReport> ExplainMiss(const CompileRequest& request) override {
    if (!error.ok()) return error;
    MissReport report;
    report.nearest.emplace().bytes[0] = 7;
    report.compared = 3;
    report.differences.push_back({"target", request.target.ToString(), "cuda:sm_80"});
    return report;
  }
  // By keys and all alone.
  cache::EvictResult EvictCache(const cache::EvictRequest& request) override {
    absl::MutexLock lock(&mutex_);
    last_evict_ = request;
    const size_t before = artifacts_.size();
    for (const Fingerprint& key : request.keys) artifacts_.erase(key);
    if (request.all) artifacts_.clear();
    return {static_cast<int64_t>(before - artifacts_.size()), static_cast<int64_t>(before - artifacts_.size()) * 10};
  }
  // In place of a file: its entries' fingerprints.
  absl::Status ExportCache(const std::vector<Fingerprint>& keys, const cache::ByteSink& sink) override {
    if (!error.ok()) return error;
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, artifact] : artifacts_) {
      if (absl::Status status = sink(absl::StrCat(key.ToHex(), "\n")); !status.ok()) return status;
    }
    return sink(export_tail);
  }
  absl::StatusOr<ImportResult> ImportCache(const cache::ByteSource& source) override {
    if (!error.ok()) return error;
    ImportResult result;
    while (true) {
      absl::StatusOr<std::string> bytes = source();
      if (!bytes.ok()) return bytes.status();
      absl::MutexLock lock(&mutex_);
      if (bytes->empty()) return result;
      ++result.imported;
      last_import_ += *bytes;
      result.present = 2;
      result.refused = 1;
      result.first_refusal = "it is not signed";
    }
  }
  absl::Status ReloadKeys() override { return error; }
  cache::EvictRequest last_evict() const {
    absl::MutexLock lock(&mutex_);
    return last_evict_;
  }
  std::string last_import() const {
    absl::MutexLock lock(&mutex_);
    return last_import_;
  }
  const GraphLimits& limits() const override { return graph_limits; }
  void Drain() override {
    absl::MutexLock lock(&mutex_);
    drained_ = true;
  }

 private:
  absl::StatusOr<CompileResult> CompileLocked(const CompileRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto artifact = std::make_shared<Artifact>();
    const Digest digest = ComputeDigest(absl::StrCat(PrintGraph(request.graph), request.target.ToString()));
    artifact->fingerprint.bytes = digest.sha256;
    artifact->target = request.target;
    artifact->options = request.options;
    artifact->kernels.push_back({ImageFormat::kSharedObject, "fuseline_pointwise_neg_0", "image", "void f();", {}});
    for (size_t i = 0; i < request.graph.inputs.size(); ++i) {
      PlanTensor tensor;
      tensor.name = absl::StrCat("in", i);
      const TensorType& type = request.graph.type(request.graph.inputs[i]);
      tensor.dtype = type.dtype;
      for (const Dim& dim : type.dims) {
        const auto size = dim.is_symbolic() ? request.symbols.find(dim.symbol) : request.symbols.end();
        tensor.shape.push_back(size != request.symbols.end() ? size->second : dim.size);
      }
      artifact->plan.inputs.push_back(tensor);
    }
    for (size_t i = 0; i < request.graph.outputs.size(); ++i) {
      PlanTensor tensor;
      if (!artifact->plan.inputs.empty()) tensor = artifact->plan.inputs[i % artifact->plan.inputs.size()];
      tensor.name = absl::StrCat("out", i);
      artifact->plan.outputs.push_back(tensor);
    }
    KernelReport report;
    report.name = "fuseline_pointwise_neg_0";
    report.ops = {"neg %v0"};
    report.bytes_read = 30;
    report.bytes_written = 12;
    report.unfused_kernels = 3;
    artifact->report.kernels.push_back(report);
    CompileResult result;
    const auto [it, is_new] = artifacts_.emplace(artifact->fingerprint, artifact);
    result.artifact = it->second;
    result.outcome = is_new ? cache::Outcome::kMiss : cache::Outcome::kMemoryHit;
    result.elapsed = absl::Milliseconds(1500);
    result.build_time = is_new ? absl::Milliseconds(1250) : absl::ZeroDuration();
    return result;
  }

  executor::TensorStore tensors_{executor::TensorStoreOptions{}};
  mutable absl::Mutex mutex_;
  std::map<Fingerprint, ArtifactPtr> artifacts_ ABSL_GUARDED_BY(mutex_);
  CompileRequest last_request_ ABSL_GUARDED_BY(mutex_);
  cache::EvictRequest last_evict_ ABSL_GUARDED_BY(mutex_);
  std::string last_import_ ABSL_GUARDED_BY(mutex_);
  executor::ExecuteOptions last_options_ ABSL_GUARDED_BY(mutex_);
  std::vector<Tensor> last_inputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<Tensor> last_expected_ ABSL_GUARDED_BY(mutex_);
  Tolerance last_tolerance_ ABSL_GUARDED_BY(mutex_);
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fuseline::service
