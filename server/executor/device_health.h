// Whether a device is in rotation. A lost one gets no more work; once those that used it are gone it is rebuilt by a
// thread of its own, so that nobody else waits, after a pause that doubles while it is lost again and again.
//
//   in rotation --Lost--> out, pause, nobody uses it --rebuild--> in rotation
//                           ^------------- it failed ----------'
// Thread-safety: thread-safe. Blocking: the destructor, until a rebuild that runs is done. Tested by
// tests/unit/server/device_health_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/executor/stored_tensor.h"

namespace fuseline::executor {

struct RebuildOptions {
  absl::Duration first_pause = absl::Seconds(1);     // after a loss, doubled with each loss or failure that follows
  absl::Duration longest_pause = absl::Seconds(60);  // a device that lasts this long starts again with the first pause
};

class DeviceHealth {
 public:
  struct Actions {
    std::function<absl::Status()> rebuild;           // nobody uses the device meanwhile
    std::function<void(const absl::Status&)> leave;  // it goes out of rotation, with what users are told; quick
    std::function<void()> come_back;                 // quick
  };

  // `name`: how messages call the device.
  DeviceHealth(std::string name, const RebuildOptions& options, Actions actions);
  ~DeviceHealth();
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  // OK: the device stays as it is until EndUse. Errors: UNAVAILABLE (kNoHealthyDevice) saying why it is out.
  absl::Status BeginUse() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndUse() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the device out of rotation.
  void Lost(std::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);

  bool healthy() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::string reason() const ABSL_LOCKS_EXCLUDED(mutex_);  // empty: in rotation
  int64_t rebuilds() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The present life of the device; a user's does not change while it uses the device.
  DeviceLifePtr life() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Unavailable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepRebuilding() ABSL_LOCKS_EXCLUDED(mutex_);
  bool MustAct() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !healthy_; }
  bool MayRebuild() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || users_ == 0; }

  const std::string name_;
  const RebuildOptions options_;
  const Actions actions_;
  mutable absl::Mutex mutex_;
  bool healthy_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  int64_t users_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rebuilds_ ABSL_GUARDED_BY(mutex_) = 0;
  DeviceLifePtr life_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  absl::Time back_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread rebuilder_ ABSL_GUARDED_BY(mutex_);  // started with the first loss
};

}  // namespace fuseline::executor
