#include "server/executor/device_health.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::executor {

DeviceHealth::DeviceHealth(std::string name, const RebuildOptions& options, Actions actions)
    : name_(std::move(name)),
      options_(options),
      actions_(std::move(actions)),
      life_(std::make_shared<DeviceLife>()),
      pause_(options.first_pause) {}

DeviceHealth::~DeviceHealth() {
  std::thread rebuilder;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    rebuilder = std::move(rebuilder_);
  }
  if (rebuilder.joinable()) rebuilder.join();
}

absl::Status DeviceHealth::Unavailable() const {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, name_,
                   StrCat(name_, " is being rebuilt: ", reason_));
}

absl::Status DeviceHealth::BeginUse() {
  absl::MutexLock lock(&mutex_);
  if (!healthy_) return Unavailable();
  ++users_;
  return absl::OkStatus();
}

void DeviceHealth::EndUse() {
  absl::MutexLock lock(&mutex_);
  --users_;
}

void DeviceHealth::Lost(std::string_view reason) {
  absl::MutexLock lock(&mutex_);
  if (!healthy_ || stopping_) return;
  healthy_ = false;
  reason_ = std::string(reason);
  life_->over = true;
  if (absl::Now() - back_since_ > options_.longest_pause) pause_ = options_.first_pause;
  actions_.leave(Unavailable());
  if (!rebuilder_.joinable()) rebuilder_ = std::thread([this] { KeepRebuilding(); });
}

void DeviceHealth::KeepRebuilding() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &DeviceHealth::MustAct));
    if (stopping_) return;
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), pause_);
    mutex_.Await(absl::Condition(this, &DeviceHealth::MayRebuild));
    if (stopping_) return;
    pause_ = std::min(2 * pause_, options_.longest_pause);
    mutex_.Unlock();
    const absl::Status status = actions_.rebuild();
    mutex_.Lock();
    if (!status.ok()) {
      reason_ = std::string(status.message());
      continue;
    }
    reason_.clear();
    life_ = std::make_shared<DeviceLife>();
    back_since_ = absl::Now();
    ++rebuilds_;
    healthy_ = true;
    actions_.come_back();
  }
}

bool DeviceHealth::healthy() const {
  absl::MutexLock lock(&mutex_);
  return healthy_;
}

std::string DeviceHealth::reason() const {
  absl::MutexLock lock(&mutex_);
  return reason_;
}

int64_t DeviceHealth::rebuilds() const {
  absl::MutexLock lock(&mutex_);
  return rebuilds_;
}

DeviceLifePtr DeviceHealth::life() const {
  absl::MutexLock lock(&mutex_);
  return life_;
}

}  // namespace fuseline::executor
