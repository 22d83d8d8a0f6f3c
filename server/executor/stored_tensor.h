// A kept tensor: where its data lies. Only server/executor looks inside.
// Host data, once there, stays: it is the master that device copies can be made from again. A tensor without it lies on
// one device (a kept result) and is lost with that device. Ownership: blocks are shared with the runs that read them,
// so a copy can be dropped at any time. Thread-safety: thread-safe. Tested by tests/unit/server/kept_tensors_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/tensor/tensor.h"

namespace fuseline::executor {

// One life of a device, from opening or rebuilding it to its loss: what lies on it is gone when the life is over.
struct DeviceLife {
  std::atomic<bool> over{false};
};
using DeviceLifePtr = std::shared_ptr<DeviceLife>;

class StoredTensor {
 public:
  explicit StoredTensor(Tensor host);
  // Lies in `block` of a device alone, dense.
  StoredTensor(DType dtype, Shape shape, DeviceLifePtr life, std::shared_ptr<void> block);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size_bytes() const { return size_bytes_; }

  // The host data, if any.
  std::optional<Tensor> host() const ABSL_LOCKS_EXCLUDED(mutex_);
  void set_host(Tensor host) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null where it has no copy from that life of a device.
  std::shared_ptr<void> CopyOn(const DeviceLife& life) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddCopy(DeviceLifePtr life, std::shared_ptr<void> block) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops the copy if there is host data and no run reads the copy; returns whether it did.
  bool DropIdleCopy(const DeviceLife& life) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where it lies: lives of devices that are not over.
  std::vector<DeviceLifePtr> lives() const ABSL_LOCKS_EXCLUDED(mutex_);
  // When a run last used the copy on a device, counted in uses of any tensor: for choosing which copy to drop.
  int64_t last_use() const { return last_use_.load(std::memory_order_relaxed); }
  void set_last_use(int64_t use) { last_use_.store(use, std::memory_order_relaxed); }

  // How messages name it: the handle; empty before it has one.
  std::string name() const ABSL_LOCKS_EXCLUDED(mutex_);
  void set_name(std::string name) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Copy {
    DeviceLifePtr life;
    std::shared_ptr<void> block;
  };

  const DType dtype_;
  const Shape shape_;
  const int64_t size_bytes_;
  std::atomic<int64_t> last_use_{0};
  mutable absl::Mutex mutex_;
  std::optional<Tensor> host_ ABSL_GUARDED_BY(mutex_);
  std::vector<Copy> copies_ ABSL_GUARDED_BY(mutex_);  // one for each device at most
  std::string name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::executor
