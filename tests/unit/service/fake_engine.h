// An engine for tests of the service: "compiles" every graph to an artifact with its signature, and runs it by giving
// output i a copy of input i (modulo the number of inputs). What it was asked is recorded; errors and blocking are
// injected. Thread-safety: thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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
  std::function<absl::Status()> on_bench;  // called in Bench, outside the lock
  EngineInfo info = {{{Target::Cpu(), true, true, ""}, {Target::Cuda(90), true, false, "no driver"}},
                     {{0, "fake device", Target::Cpu(), 1 << 30, true, 3, 1}},
                     "fake compiler"};
  GraphLimits graph_limits;

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
    if (on_compile) {
      if (absl::Status status = on_compile(); !status.ok()) return status;
    }
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
    stats.levels = {{"memory", 1, 2, 3, 4, 5, 6, 7}, {"rocksdb", 8, 9, 10, 11, 12, 13, 14}};
    stats.builds = 15;
    stats.joins = 16;
    return stats;
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
      tensor.shape = type.shape();
      artifact->plan.inputs.push_back(tensor);
    }
    for (size_t i = 0; i < request.graph.outputs.size(); ++i) {
      PlanTensor tensor;
      tensor.name = absl::StrCat("out", i);
      tensor.dtype = DType::kF32;
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
  executor::ExecuteOptions last_options_ ABSL_GUARDED_BY(mutex_);
  std::vector<Tensor> last_inputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<Tensor> last_expected_ ABSL_GUARDED_BY(mutex_);
  Tolerance last_tolerance_ ABSL_GUARDED_BY(mutex_);
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fuseline::service
