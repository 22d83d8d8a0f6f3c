#include "server/executor/stored_tensor.h"

#include <algorithm>
#include <utility>

#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/executor/tensor_store.h"

namespace fuseline::executor {

StoredTensor::StoredTensor(Tensor host)
    : dtype_(host.dtype()), shape_(host.shape()), size_bytes_(host.size_bytes()), host_(std::move(host)) {}

StoredTensor::StoredTensor(DType dtype, Shape shape, DeviceLifePtr life, std::shared_ptr<void> block)
    : dtype_(dtype), shape_(std::move(shape)), size_bytes_(ElementCount(shape_) * DTypeSizeBytes(dtype)) {
  copies_.push_back({std::move(life), std::move(block)});
}

std::optional<Tensor> StoredTensor::host() const {
  absl::MutexLock lock(&mutex_);
  return host_;
}

void StoredTensor::set_host(Tensor host) {
  absl::MutexLock lock(&mutex_);
  if (!host_.has_value()) host_ = std::move(host);
}

std::shared_ptr<void> StoredTensor::CopyOn(const DeviceLife& life) {
  absl::MutexLock lock(&mutex_);
  for (const Copy& copy : copies_) {
    if (copy.life.get() == &life) return copy.block;
  }
  return nullptr;
}

void StoredTensor::AddCopy(DeviceLifePtr life, std::shared_ptr<void> block) {
  std::vector<Copy> dropped;  // released after the lock is given back
  absl::MutexLock lock(&mutex_);
  // Copies of lives that are over are of no use; their memory went with the device.
  for (Copy& copy : copies_) {
    if (copy.life->over || copy.life == life) dropped.push_back(std::move(copy));
  }
  copies_.erase(std::remove_if(copies_.begin(), copies_.end(), [](const Copy& copy) { return copy.block == nullptr; }),
                copies_.end());
  copies_.push_back({std::move(life), std::move(block)});
}

bool StoredTensor::DropIdleCopy(const DeviceLife& life) {
  std::shared_ptr<void> dropped;
  absl::MutexLock lock(&mutex_);
  if (!host_.has_value()) return false;
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return c.life.get() == &life; });
  if (copy == copies_.end() || copy->block.use_count() > 1) return false;
  dropped = std::move(copy->block);
  copies_.erase(copy);
  return true;
}

std::vector<DeviceLifePtr> StoredTensor::lives() const {
  std::vector<DeviceLifePtr> lives;
  absl::MutexLock lock(&mutex_);
  for (const Copy& copy : copies_) {
    if (!copy.life->over) lives.push_back(copy.life);
  }
  return lives;
}

std::string StoredTensor::name() const {
  absl::MutexLock lock(&mutex_);
  return name_;
}

void StoredTensor::set_name(std::string name) {
  absl::MutexLock lock(&mutex_);
  name_ = std::move(name);
}

StoredTensorPtr StoreOnHost(Tensor tensor) { return std::make_shared<StoredTensor>(std::move(tensor)); }

absl::StatusOr<Tensor> FetchFromHost(const StoredTensorPtr& tensor) {
  std::optional<Tensor> host = tensor->host();
  if (host.has_value()) return *std::move(host);
  const std::string name = tensor->name();
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, name,
                   StrCat("tensor '", name, "' lies on a device alone"));
}

DType StoredDType(const StoredTensor& tensor) { return tensor.dtype(); }
const Shape& StoredShape(const StoredTensor& tensor) { return tensor.shape(); }

}  // namespace fuseline::executor
