// Tensors that stay on the server between calls (weights, intermediate results), by handle.
// Pipeline: PutTensor, kept outputs -> TensorStore -> Executor::Execute, GetTensor.
// An owner sees its own tensors alone: another's handle is unknown. A tensor that is not used for its lease is dropped
// at the next call of any kind; one in use by a run stays alive until the run is done. Units: bytes. Ownership: the
// store shares its tensors with the runs that use them. Thread-safety: thread-safe. Tested by
// tests/unit/server/tensor_store_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tensor/tensor.h"

namespace fuseline::executor {

// A tensor's data in host memory, in device memory, or both; the executor moves it to where it is needed.
class StoredTensor;
using StoredTensorPtr = std::shared_ptr<StoredTensor>;

// A tensor that lies in host memory until a device needs it. The host copy is kept, so a lost device loses nothing.
StoredTensorPtr StoreOnHost(Tensor tensor);
// Errors: UNAVAILABLE (kNoHealthyDevice) where it lies on a device alone: ask the executor.
absl::StatusOr<Tensor> FetchFromHost(const StoredTensorPtr& tensor);
DType StoredDType(const StoredTensor& tensor);
const Shape& StoredShape(const StoredTensor& tensor);

struct TensorStoreOptions {
  int64_t capacity_bytes = 8ll << 30;     // of all tensors
  int64_t owner_quota_bytes = 8ll << 30;  // of one owner's
  int64_t max_tensors = 100'000;          // of all owners
  absl::Duration default_lease = absl::Hours(1);
  absl::Duration max_lease = absl::Hours(24 * 7);
  std::function<absl::Time()> clock;  // for tests; empty: a clock that does not jump
};

// Under which name, for whom and for how long a tensor is kept.
struct KeepOptions {
  std::string handle;    // empty: the store makes one up; else 1 to 128 of [A-Za-z0-9_.:/-]
  std::string owner;     // empty is an owner too; at most 256 bytes
  absl::Duration lease;  // without use; 0: the default
};

struct StoredTensorInfo {
  std::string handle;
  std::string owner;
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t size_bytes = 0;
  absl::Duration lease;
  absl::Time expires;
  int64_t uses = 0;
};

struct TensorStoreStats {
  int64_t tensors = 0;
  int64_t size_bytes = 0;
  int64_t reserved_bytes = 0;  // of tensors on their way
  int64_t puts = 0;
  int64_t expired = 0;
  int64_t refused = 0;  // over a quota or the capacity
};

class TensorStore {
 private:
  class Impl;

 public:
  explicit TensorStore(TensorStoreOptions options);
  ~TensorStore();
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // Room for a tensor that is on its way, so that an upload which can't be kept is refused at its header. Given back
  // when it goes away; Put takes it over. May outlive the store.
  class Reservation {
   public:
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    const std::string& handle() const { return handle_; }  // the one made up where none was given
    int64_t size_bytes() const { return size_bytes_; }

   private:
    friend class TensorStore;
    Reservation(std::shared_ptr<Impl> store, KeepOptions options, int64_t size_bytes);
    std::shared_ptr<Impl> store_;  // null: Put has taken it over
    std::string owner_;
    std::string handle_;
    absl::Duration lease_;
    int64_t size_bytes_;
  };
  // Errors: INVALID_ARGUMENT (kOptionInvalid) for a bad handle, owner or lease; ALREADY_EXISTS (kHandleTaken), also
  // where the handle's tensor is still on its way; RESOURCE_EXHAUSTED (kQuota) over the owner's quota, the capacity or
  // the number of tensors.
  absl::StatusOr<std::unique_ptr<Reservation>> Reserve(const KeepOptions& options, int64_t size_bytes);
  // Keeps the tensor under the reserved handle. Its size is what was reserved, else INTERNAL.
  absl::StatusOr<StoredTensorInfo> Put(std::unique_ptr<Reservation> reservation, StoredTensorPtr tensor);

  // Renews the lease. Errors: NOT_FOUND (kHandleUnknown), also for other owners' tensors.
  absl::StatusOr<StoredTensorPtr> Get(const std::string& handle, const std::string& owner);
  absl::Status Delete(const std::string& handle, const std::string& owner);
  // Ordered by handle.
  std::vector<StoredTensorInfo> List(const std::string& owner) const;
  TensorStoreStats stats() const;
  const TensorStoreOptions& options() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace fuseline::executor
