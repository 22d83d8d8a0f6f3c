// What the C ABI's handles stand for.
// Ownership: callables keep their device's state. A launch that can't be let go of yet, since a stream that it was
// launched on is being captured, is kept by the device. Thread-safety: fixed after construction but for the launches
// kept, which have a lock. Tested by tests/unit/client/launch/launch_api_test.cc
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/prepared_launch.h"

namespace fuseline::local {

class DeviceState {
 public:
  explicit DeviceState(std::unique_ptr<launch::Device> device);
  ~DeviceState();
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  launch::Device& device() const { return *device_; }
  const std::string& name() const { return name_; }
  const std::string& target() const { return target_; }
  // Lets go of `launch`, and of those kept before, once no stream that they were launched on is being captured.
  void Release(std::unique_ptr<launch::PreparedLaunch> launch) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseKept() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::unique_ptr<launch::Device> device_;
  const std::string name_;
  const std::string target_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<launch::PreparedLaunch>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::local

struct fuseline_device {
  std::shared_ptr<fuseline::local::DeviceState> state;
};

struct fuseline_callable {
  std::shared_ptr<fuseline::local::DeviceState> state;
  std::unique_ptr<fuseline::launch::PreparedLaunch> launch;
};
