// One device of an executor with all that belongs to it: its queue, what is loaded on it, the kept tensors that have
// copies on it, its health and its counters. Every call of the device goes through here, so that a loss is noticed.
// Errors: as launch::Device. Thread-safety: thread-safe; the calls of the device are made by holders of a Use.
// Tested by tests/unit/server/executor_faults_test.cc and kept_tensors_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/launch/launch_plan_runner.h"
#include "server/executor/device_health.h"
#include "server/executor/device_queue.h"
#include "server/executor/executor.h"
#include "server/executor/loaded_artifacts.h"
#include "server/executor/stored_tensor.h"

namespace fuseline::executor {

class DeviceSlot {
 public:
  DeviceSlot(std::unique_ptr<launch::Device> device, int ordinal, int max_queue, const RebuildOptions& rebuild);

  // While it lives the device is not rebuilt.
  class Use {
   public:
    static absl::StatusOr<std::unique_ptr<Use>> Begin(DeviceSlot& slot);
    ~Use() { slot_.health_.EndUse(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    explicit Use(DeviceSlot& slot) : slot_(slot) {}
    DeviceSlot& slot_;
  };

  // Fixed.
  int ordinal() const { return ordinal_; }
  const Target& target() const { return target_; }
  bool CanRun(const Target& target) const { return device_->CanRun(target); }
  bool uses_host_memory() const { return uses_host_memory_; }

  DeviceQueue& queue() { return queue_; }
  const DeviceHealth& health() const { return health_; }
  DeviceInfo Info();

  // The calls of the device.
  absl::StatusOr<launch::LoadedArtifactPtr> Load(const ArtifactPtr& artifact);
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes);
  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes);
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes);
  absl::Status Run(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                   absl::Span<void* const> outputs, const launch::StopCheck& stop);
  absl::Status Synchronize();
  absl::StatusOr<std::vector<double>> Time(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           const launch::StopCheck& stop);
  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes);

  // Notes that the tensor has a copy here, and that a run uses it.
  void NoteCopy(const StoredTensorPtr& tensor) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops copies that can be made again and that no run reads, those unused for longest first, until `wanted_bytes` are
  // free; `needed` ones stay. Returns the bytes dropped.
  int64_t DropIdleCopies(int64_t wanted_bytes, const std::vector<StoredTensor*>& needed) ABSL_LOCKS_EXCLUDED(mutex_);

  void CountRun(double queue_seconds, double run_seconds, const absl::Status& status);

 private:
  absl::Status Watch(absl::Status status);
  template <typename T>
  absl::StatusOr<T> Watch(absl::StatusOr<T> result) {
    if (!result.ok()) return Watch(result.status());
    return result;
  }
  absl::Status Rebuild();
  absl::Status TestMemory();
  // Kept tensors with copies here.
  std::vector<StoredTensorPtr> Residents() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<launch::Device> device_;
  const int ordinal_;
  const Target target_;
  const bool uses_host_memory_;
  DeviceQueue queue_;
  LoadedArtifacts loaded_;
  std::atomic<int64_t> executions_{0};
  std::atomic<int64_t> failures_{0};
  std::atomic<int64_t> queue_micros_{0};
  std::atomic<int64_t> run_micros_{0};
  std::atomic<int64_t> bytes_to_device_{0};
  std::atomic<int64_t> bytes_to_host_{0};
  std::atomic<int64_t> uses_{0};  // of kept tensors: their order
  absl::Mutex mutex_;
  absl::flat_hash_map<StoredTensor*, std::weak_ptr<StoredTensor>> residents_ ABSL_GUARDED_BY(mutex_);
  size_t prune_at_ ABSL_GUARDED_BY(mutex_) = 64;
  DeviceHealth health_;  // the last: its thread, which uses all the others, ends first
};

}  // namespace fuseline::executor
