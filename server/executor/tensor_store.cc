#include "server/executor/tensor_store.h"

#include <map>
#include <utility>

#include "common/status/error.h"

namespace fuseline::executor {

class StoredTensor {
 public:
  explicit StoredTensor(Tensor t) : tensor(std::move(t)) {}
  Tensor tensor;
};
StoredTensorPtr StoreOnHost(Tensor tensor) { return std::make_shared<StoredTensor>(std::move(tensor)); }
absl::StatusOr<Tensor> FetchFromHost(const StoredTensorPtr& tensor) { return tensor->tensor; }
DType StoredDType(const StoredTensor& tensor) { return tensor.tensor.dtype(); }
const Shape& StoredShape(const StoredTensor& tensor) { return tensor.tensor.shape(); }

class TensorStore::Impl {};
class TensorStore::Reservation {};
TensorStore::TensorStore(TensorStoreOptions options) {}
TensorStore::~TensorStore() = default;
absl::StatusOr<std::unique_ptr<TensorStore::Reservation>> TensorStore::Reserve(const KeepOptions& options,
                                                                               int64_t size_bytes) {
  return Unimplemented("", "kept tensors");
}
absl::StatusOr<StoredTensorInfo> TensorStore::Put(std::unique_ptr<Reservation> reservation, StoredTensorPtr tensor) {
  return Unimplemented("", "kept tensors");
}
absl::StatusOr<StoredTensorPtr> TensorStore::Get(const std::string& handle, const std::string& owner) {
  return Unimplemented("", "kept tensors");
}
absl::Status TensorStore::Delete(const std::string& handle, const std::string& owner) {
  return Unimplemented("", "kept tensors");
}
std::vector<StoredTensorInfo> TensorStore::List(const std::string& owner) const { return {}; }
TensorStoreStats TensorStore::stats() const { return {}; }

}  // namespace fuseline::executor
