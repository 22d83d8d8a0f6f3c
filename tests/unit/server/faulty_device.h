// A device around another that breaks when the test says so, and that may play one with memory of its own.
// Thread-safety: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"

namespace fuseline::testing {

// What a test tells a device and sees of it; outlives it.
struct FaultyDeviceControl {
  // Set before the device is made.
  bool separate_memory = false;
  int64_t memory_bytes = int64_t{1} << 40;  // of a separate one
  // Any time.
  std::atomic<int64_t> break_at_run{-1};   // the run of this number, from 0, breaks it
  std::atomic<int64_t> failing_resets{0};  // that many fail before one succeeds
  std::atomic<bool> forgets{false};        // what is copied to it is lost
  std::atomic<bool> broken{false};
  std::atomic<int64_t> runs{0};
  std::atomic<int64_t> resets{0};
  std::atomic<int64_t> used_bytes{0};
};

class FaultyDevice : public launch::Device {
 public:
  FaultyDevice(std::unique_ptr<launch::Device> device, std::shared_ptr<FaultyDeviceControl> control)
      : device_(std::move(device)), control_(std::move(control)) {}

  std::string name() const override { return device_->name(); }
  Target target() const override { return device_->target(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  bool CanRun(const Target& target) const override { return device_->CanRun(target); }
  bool uses_host_memory() const override { return !control_->separate_memory; }
  launch::MemoryUsage memory_usage() const override { return {control_->used_bytes, control_->used_bytes}; }

  absl::StatusOr<launch::LoadedArtifactPtr> Load(ArtifactPtr artifact) override {
    if (control_->broken) return Broken();
    return device_->Load(std::move(artifact));
  }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) override {
    if (control_->broken) return Broken();
    if (!control_->separate_memory) return device_->Allocate(size_bytes);
    if (control_->used_bytes + size_bytes > control_->memory_bytes) {
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "", "the device is full");
    }
    auto block = device_->Allocate(size_bytes);
    if (!block.ok()) return block;
    control_->used_bytes += size_bytes;
    return std::shared_ptr<void>(
        block->get(), [block = *block, control = control_, size_bytes](void*) { control->used_bytes -= size_bytes; });
  }
  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    if (control_->broken) return Broken();
    if (control_->forgets) return absl::OkStatus();
    return device_->CopyToDevice(device, host, size_bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    if (control_->broken) return Broken();
    return device_->CopyToHost(host, device, size_bytes);
  }
  absl::Status Run(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                   absl::Span<void* const> outputs, const launch::StopCheck& stop) override {
    if (control_->runs++ == control_->break_at_run) control_->broken = true;
    if (control_->broken) return Broken();
    return device_->Run(artifact, inputs, outputs, stop);
  }
  absl::Status Synchronize() override { return control_->broken ? Broken() : device_->Synchronize(); }
  absl::StatusOr<std::vector<double>> Time(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           bool flush_cache, const launch::StopCheck& stop) override {
    if (control_->broken) return Broken();
    return device_->Time(artifact, inputs, outputs, warmup, iterations, flush_cache, stop);
  }
  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) override {
    if (control_->broken) return Broken();
    return device_->MeasureCopyRate(size_bytes);
  }
  absl::Status Reset() override {
    ++control_->resets;
    if (control_->failing_resets > 0) {
      --control_->failing_resets;
      return Broken();
    }
    control_->broken = false;
    return device_->Reset();
  }

 private:
  static absl::Status Broken() {
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "", "an illegal address");
  }

  const std::unique_ptr<launch::Device> device_;
  const std::shared_ptr<FaultyDeviceControl> control_;
};

}  // namespace fuseline::testing
