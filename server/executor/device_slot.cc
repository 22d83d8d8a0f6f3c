#include "server/executor/device_slot.h"

#include <string.h>

#include <algorithm>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::executor {
namespace {

// Loaded artifacts of one device: a bound on modules, and on their bytes.
constexpr size_t kMaxLoadedArtifacts = 4096;
constexpr int64_t kMaxLoadedBytes = 2ll << 30;
constexpr int64_t kTestBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSlot::Use>> DeviceSlot::Use::Begin(DeviceSlot& slot) {
  FUSELINE_RETURN_IF_ERROR(slot.health_.BeginUse());
  return std::unique_ptr<Use>(new Use(slot));
}

DeviceSlot::DeviceSlot(std::unique_ptr<launch::Device> device, int ordinal, int max_queue,
                       const RebuildOptions& rebuild)
    : device_(std::move(device)),
      ordinal_(ordinal),
      target_(device_->target()),
      uses_host_memory_(device_->uses_host_memory()),
      queue_(max_queue),
      loaded_(*device_, kMaxLoadedArtifacts, kMaxLoadedBytes),
      health_(StrCat("device ", ordinal), rebuild,
              {[this] { return Rebuild(); }, [this](const absl::Status& why) { queue_.Close(why); },
               [this] { queue_.Open(); }}) {}

DeviceInfo DeviceSlot::Info() {
  DeviceInfo info;
  info.ordinal = ordinal_;
  info.name = device_->name();
  info.target = target_;
  info.memory_bytes = device_->memory_bytes();
  info.unhealthy_reason = health_.reason();
  info.healthy = info.unhealthy_reason.empty();
  info.resets = health_.rebuilds();
  info.executions = executions_;
  info.failures = failures_;
  info.queue_depth = queue_.depth();
  info.queue_seconds = static_cast<double>(queue_micros_) * 1e-6;
  info.run_seconds = static_cast<double>(run_micros_) * 1e-6;
  info.bytes_to_device = bytes_to_device_;
  info.bytes_to_host = bytes_to_host_;
  if (const auto use = Use::Begin(*this); use.ok()) {
    const launch::MemoryUsage usage = device_->memory_usage();
    info.memory_used_bytes = usage.used_bytes;
    info.memory_reserved_bytes = usage.reserved_bytes;
    const DeviceLifePtr life = health_.life();
    for (const StoredTensorPtr& tensor : Residents()) {
      if (tensor->CopyOn(*life) != nullptr) info.kept_bytes += tensor->size_bytes();
    }
  }
  return info;
}

absl::StatusOr<launch::LoadedArtifactPtr> DeviceSlot::Load(const ArtifactPtr& artifact) {
  return Watch(loaded_.Get(artifact));
}

absl::StatusOr<std::shared_ptr<void>> DeviceSlot::Allocate(int64_t size_bytes) {
  return Watch(device_->Allocate(size_bytes));
}

absl::Status DeviceSlot::CopyToDevice(void* device, const void* host, int64_t size_bytes) {
  bytes_to_device_ += size_bytes;
  return Watch(device_->CopyToDevice(device, host, size_bytes));
}

absl::Status DeviceSlot::CopyToHost(void* host, const void* device, int64_t size_bytes) {
  bytes_to_host_ += size_bytes;
  return Watch(device_->CopyToHost(host, device, size_bytes));
}

absl::Status DeviceSlot::Run(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                             absl::Span<void* const> outputs, const launch::StopCheck& stop) {
  return Watch(device_->Run(artifact, inputs, outputs, stop));
}

absl::Status DeviceSlot::Synchronize() { return Watch(device_->Synchronize()); }

absl::StatusOr<std::vector<double>> DeviceSlot::Time(const launch::LoadedArtifact& artifact,
                                                     absl::Span<void* const> inputs, absl::Span<void* const> outputs,
                                                     int warmup, int iterations, const launch::StopCheck& stop) {
  return Watch(device_->Time(artifact, inputs, outputs, warmup, iterations, /*flush_cache=*/true, stop));
}

absl::StatusOr<double> DeviceSlot::MeasureCopyRate(int64_t size_bytes) {
  return Watch(device_->MeasureCopyRate(size_bytes));
}

void DeviceSlot::NoteCopy(const StoredTensorPtr& tensor) {
  tensor->set_last_use(++uses_);
  absl::MutexLock lock(&mutex_);
  // An entry of an old tensor at the same address may be there.
  residents_[tensor.get()] = tensor;
  if (residents_.size() < prune_at_) return;
  for (auto it = residents_.begin(); it != residents_.end();) {
    if (it->second.expired()) {
      residents_.erase(it++);
    } else {
      ++it;
    }
  }
  prune_at_ = std::max<size_t>(64, 2 * residents_.size());
}

std::vector<StoredTensorPtr> DeviceSlot::Residents() {
  std::vector<StoredTensorPtr> tensors;
  absl::MutexLock lock(&mutex_);
  for (const auto& [address, weak] : residents_) {
    if (StoredTensorPtr tensor = weak.lock(); tensor != nullptr) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

int64_t DeviceSlot::DropIdleCopies(int64_t wanted_bytes, const std::vector<StoredTensor*>& needed) {
  std::vector<StoredTensorPtr> tensors = Residents();
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensorPtr& a, const StoredTensorPtr& b) { return a->last_use() < b->last_use(); });
  const DeviceLifePtr life = health_.life();
  int64_t dropped_bytes = 0;
  for (const StoredTensorPtr& tensor : tensors) {
    if (dropped_bytes >= wanted_bytes) break;
    if (std::find(needed.begin(), needed.end(), tensor.get()) != needed.end()) continue;
    if (tensor->DropIdleCopy(*life)) dropped_bytes += tensor->size_bytes();
  }
  return dropped_bytes;
}

void DeviceSlot::CountRun(double queue_seconds, double run_seconds, const absl::Status& status) {
  queue_micros_ += static_cast<int64_t>(queue_seconds * 1e6);
  run_micros_ += static_cast<int64_t>(run_seconds * 1e6);
  if (status.ok()) {
    ++executions_;
  } else if (!absl::IsCancelled(status) && !absl::IsDeadlineExceeded(status)) {
    ++failures_;
  }
}

absl::Status DeviceSlot::Watch(absl::Status status) {
  if (GetErrorReason(status) == ErrorReason::kNoHealthyDevice) {
    health_.Lost(std::string_view(status.message().data(), status.message().size()));
  }
  return status;
}

absl::Status DeviceSlot::Rebuild() {
  loaded_.Clear();
  FUSELINE_RETURN_IF_ERROR(device_->Reset());
  return Wrap(TestMemory(), "test after rebuilding");
}

// A device that holds what it is given is taken for sound. Two patterns: one may lie there from before.
absl::Status DeviceSlot::TestMemory() {
  std::vector<unsigned char> sent(kTestBytes);
  std::vector<unsigned char> received(kTestBytes);
  FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> block, device_->Allocate(kTestBytes));
  for (const size_t mask : {0x00, 0xff}) {
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>((i * 131 + (i >> 8)) ^ mask);
    FUSELINE_RETURN_IF_ERROR(device_->CopyToDevice(block.get(), sent.data(), kTestBytes));
    FUSELINE_RETURN_IF_ERROR(device_->CopyToHost(received.data(), block.get(), kTestBytes));
    FUSELINE_RETURN_IF_ERROR(device_->Synchronize());
    if (sent != received) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "",
                       "the device's memory does not hold what is written to it");
    }
  }
  return absl::OkStatus();
}

}  // namespace fuseline::executor
