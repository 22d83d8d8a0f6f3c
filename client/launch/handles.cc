#include "client/launch/handles.h"

#include <utility>

namespace fuseline::local {

DeviceState::DeviceState(std::unique_ptr<launch::Device> device)
    : device_(std::move(device)), name_(device_->name()), target_(device_->target().ToString()) {}

DeviceState::~DeviceState() {
  ReleaseKept();
  absl::MutexLock lock(&mutex_);
  // A stream is still being captured: its graph may need the code for as long as the process lives.
  for (std::unique_ptr<launch::PreparedLaunch>& launch : kept_) launch.release();
}

void DeviceState::Release(std::unique_ptr<launch::PreparedLaunch> launch) {
  {
    absl::MutexLock lock(&mutex_);
    kept_.push_back(std::move(launch));
  }
  ReleaseKept();
}

void DeviceState::ReleaseKept() {
  absl::MutexLock lock(&mutex_);
  std::erase_if(kept_, [](const std::unique_ptr<launch::PreparedLaunch>& launch) { return launch->Finish(); });
}

}  // namespace fuseline::local
