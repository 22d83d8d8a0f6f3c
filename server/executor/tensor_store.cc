#include "server/executor/tensor_store.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/executor/stored_tensor.h"

namespace fuseline::executor {
namespace {

constexpr size_t kMaxHandleBytes = 128;
constexpr size_t kMaxOwnerBytes = 256;
constexpr size_t kMadeUpBytes = 16;  // as unguessable as a key
constexpr char kHandleSymbols[] = "_.:/-";

absl::Status CheckHandle(const std::string& handle) {
  if (handle.size() > kMaxHandleBytes) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "handle",
                           StrCat("a handle has 1 to ", kMaxHandleBytes, " characters, this one has ", handle.size()));
  }
  for (const char c : handle) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && (c == '\0' || strchr(kHandleSymbols, c) == nullptr)) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "handle",
                             StrCat("a handle consists of letters, digits and ", kHandleSymbols));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeUpHandle() {
  unsigned char bytes[kMadeUpBytes];
  size_t filled = 0;
  while (filled < sizeof(bytes)) {
    const ssize_t got = getrandom(bytes + filled, sizeof(bytes) - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Internal("the system gives no random bytes for a handle");
    filled += static_cast<size_t>(got);
  }
  std::string handle;
  for (const unsigned char byte : bytes) {
    handle += "0123456789abcdef"[byte >> 4];
    handle += "0123456789abcdef"[byte & 15];
  }
  return handle;
}

// The time of day at the start, carried on by a clock that nobody sets: leases must not end because someone did.
std::function<absl::Time()> SteadyClock() {
  const absl::Time start = absl::Now();
  const auto begin = std::chrono::steady_clock::now();
  return [start, begin] { return start + absl::FromChrono(std::chrono::steady_clock::now() - begin); };
}

absl::Status Unknown(const std::string& handle) {
  return MakeError(absl::StatusCode::kNotFound, ErrorReason::kHandleUnknown, handle,
                   StrCat("no tensor has the handle '", handle, "', or its lease has run out"));
}

}  // namespace

class TensorStore::Impl {
 public:
  explicit Impl(TensorStoreOptions options)
      : options_(std::move(options)), clock_(options_.clock ? options_.clock : SteadyClock()) {}

  absl::Status Reserve(const std::string& owner, const std::string& handle, int64_t size_bytes) {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    const auto it = owners_.find(owner);
    if (it != owners_.end() && it->second.tensors.contains(handle)) {
      return MakeError(absl::StatusCode::kAlreadyExists, ErrorReason::kHandleTaken, handle,
                       StrCat("another tensor has the handle '", handle, "'"));
    }
    const int64_t owner_bytes = it == owners_.end() ? 0 : it->second.size_bytes;
    std::string problem;
    if (size_bytes > options_.owner_quota_bytes - owner_bytes) {
      problem = StrCat("the owner's quota of ", options_.owner_quota_bytes, " bytes has ",
                       std::max<int64_t>(0, options_.owner_quota_bytes - owner_bytes), " left");
    } else if (size_bytes > options_.capacity_bytes - size_bytes_) {
      problem = StrCat("the server's room of ", options_.capacity_bytes, " bytes for kept tensors has ",
                       std::max<int64_t>(0, options_.capacity_bytes - size_bytes_), " left");
    } else if (count_ >= options_.max_tensors) {
      problem = StrCat("the server keeps ", options_.max_tensors, " tensors at most");
    }
    if (!problem.empty()) {
      ++refused_;
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQuota, handle,
                       StrCat("tensor '", handle, "' takes ", size_bytes, " bytes: ", problem));
    }
    Owner& taken = owners_[owner];
    Entry& entry = taken.tensors[handle];
    entry.info.handle = handle;
    entry.info.owner = owner;
    entry.info.size_bytes = size_bytes;
    taken.size_bytes += size_bytes;
    size_bytes_ += size_bytes;
    reserved_bytes_ += size_bytes;
    ++count_;
    ++reserved_count_;
    return absl::OkStatus();
  }

  void GiveBack(const std::string& owner, const std::string& handle) {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    const auto it = owners_.find(owner);
    if (it == owners_.end()) return;
    const auto entry = it->second.tensors.find(handle);
    if (entry == it->second.tensors.end()) return;
    reserved_bytes_ -= entry->second.info.size_bytes;
    --reserved_count_;
    Erase(it, entry, dropped);
    Sweep(dropped);
  }

  absl::StatusOr<StoredTensorInfo> Put(const std::string& owner, const std::string& handle, absl::Duration lease,
                                       StoredTensorPtr tensor) {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    Entry& entry = owners_[owner].tensors[handle];
    reserved_bytes_ -= entry.info.size_bytes;
    --reserved_count_;
    ++puts_;
    entry.info.dtype = tensor->dtype();
    entry.info.shape = tensor->shape();
    entry.info.lease = lease;
    entry.tensor = std::move(tensor);
    Renew(entry);
    return entry.info;
  }

  absl::StatusOr<StoredTensorPtr> Get(const std::string& handle, const std::string& owner) {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    Entry* const entry = Find(handle, owner);
    if (entry == nullptr) return Unknown(handle);
    ++entry->info.uses;
    expiries_.erase({entry->info.expires, entry});
    Renew(*entry);
    return entry->tensor;
  }

  absl::Status Delete(const std::string& handle, const std::string& owner) {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    if (Find(handle, owner) == nullptr) return Unknown(handle);
    const auto it = owners_.find(owner);
    Erase(it, it->second.tensors.find(handle), dropped);
    return absl::OkStatus();
  }

  std::vector<StoredTensorInfo> List(const std::string& owner) {
    std::vector<StoredTensorPtr> dropped;
    std::vector<StoredTensorInfo> infos;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    const auto it = owners_.find(owner);
    if (it == owners_.end()) return infos;
    for (const auto& [handle, entry] : it->second.tensors) {
      if (entry.tensor != nullptr) infos.push_back(entry.info);
    }
    return infos;
  }

  TensorStoreStats stats() {
    std::vector<StoredTensorPtr> dropped;
    absl::MutexLock lock(&mutex_);
    Sweep(dropped);
    TensorStoreStats stats;
    stats.tensors = count_ - reserved_count_;
    stats.size_bytes = size_bytes_ - reserved_bytes_;
    stats.reserved_bytes = reserved_bytes_;
    stats.puts = puts_;
    stats.expired = expired_;
    stats.refused = refused_;
    return stats;
  }

  const TensorStoreOptions& options() const { return options_; }

 private:
  struct Entry {
    StoredTensorInfo info;
    StoredTensorPtr tensor;  // null while it is on its way
  };
  struct Owner {
    std::map<std::string, Entry> tensors;  // by handle
    int64_t size_bytes = 0;
  };
  using OwnerIterator = std::map<std::string, Owner>::iterator;
  using EntryIterator = std::map<std::string, Entry>::iterator;

  // Null for a tensor that is still on its way.
  Entry* Find(const std::string& handle, const std::string& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = owners_.find(owner);
    if (it == owners_.end()) return nullptr;
    const auto entry = it->second.tensors.find(handle);
    return entry == it->second.tensors.end() || entry->second.tensor == nullptr ? nullptr : &entry->second;
  }

  void Renew(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    entry.info.expires = clock_() + entry.info.lease;
    expiries_.insert({entry.info.expires, &entry});
  }

  // `dropped` holds the tensors until the lock is given back: freeing large memory is slow.
  void Erase(OwnerIterator owner, EntryIterator entry, std::vector<StoredTensorPtr>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (entry->second.tensor != nullptr) {
      expiries_.erase({entry->second.info.expires, &entry->second});
      dropped.push_back(std::move(entry->second.tensor));
    }
    owner->second.size_bytes -= entry->second.info.size_bytes;
    size_bytes_ -= entry->second.info.size_bytes;
    --count_;
    owner->second.tensors.erase(entry);
    if (owner->second.tensors.empty()) owners_.erase(owner);
  }

  // Drops what has expired: one look at the first where nothing has.
  void Sweep(std::vector<StoredTensorPtr>& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (expiries_.empty()) return;
    const absl::Time now = clock_();
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      const StoredTensorInfo& info = expiries_.begin()->second->info;
      const auto owner = owners_.find(info.owner);
      Erase(owner, owner->second.tensors.find(info.handle), dropped);
      ++expired_;
    }
  }

  const TensorStoreOptions options_;
  const std::function<absl::Time()> clock_;
  absl::Mutex mutex_;
  std::map<std::string, Owner> owners_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Time, Entry*>> expiries_ ABSL_GUARDED_BY(mutex_);  // of all that are here
  // Reserved ones included.
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t reserved_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t puts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
};

TensorStore::Reservation::Reservation(std::shared_ptr<Impl> store, KeepOptions options, int64_t size_bytes)
    : store_(std::move(store)),
      owner_(std::move(options.owner)),
      handle_(std::move(options.handle)),
      lease_(options.lease),
      size_bytes_(size_bytes) {}

TensorStore::Reservation::~Reservation() {
  if (store_ != nullptr) store_->GiveBack(owner_, handle_);
}

TensorStore::TensorStore(TensorStoreOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}
TensorStore::~TensorStore() = default;

absl::StatusOr<std::unique_ptr<TensorStore::Reservation>> TensorStore::Reserve(const KeepOptions& options,
                                                                               int64_t size_bytes) {
  if (size_bytes < 0) return InvalidArgument(ErrorReason::kOptionInvalid, "size_bytes", "the size is negative");
  FUSELINE_RETURN_IF_ERROR(CheckHandle(options.handle));
  if (options.owner.size() > kMaxOwnerBytes) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "owner",
                           StrCat("an owner's name has at most ", kMaxOwnerBytes, " bytes"));
  }
  KeepOptions kept = options;
  if (kept.lease == absl::ZeroDuration()) kept.lease = impl_->options().default_lease;
  if (kept.lease < absl::ZeroDuration() || kept.lease > impl_->options().max_lease) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "lease",
                           StrCat("a lease is positive and at most ", absl::FormatDuration(impl_->options().max_lease),
                                  ", got ", absl::FormatDuration(kept.lease)));
  }
  if (kept.handle.empty()) {
    FUSELINE_ASSIGN_OR_RETURN(kept.handle, MakeUpHandle());
  }
  FUSELINE_RETURN_IF_ERROR(impl_->Reserve(kept.owner, kept.handle, size_bytes));
  return std::unique_ptr<Reservation>(new Reservation(impl_, std::move(kept), size_bytes));
}

absl::StatusOr<StoredTensorInfo> TensorStore::Put(std::unique_ptr<Reservation> reservation, StoredTensorPtr tensor) {
  if (reservation == nullptr || reservation->store_ != impl_ || tensor == nullptr)
    return Internal("a tensor needs a reservation of this store");
  if (tensor->size_bytes() != reservation->size_bytes_) {
    return Internal(StrCat("tensor '", reservation->handle_, "' has ", tensor->size_bytes(), " bytes, reserved were ",
                           reservation->size_bytes_));
  }
  tensor->set_name(reservation->handle_);
  reservation->store_ = nullptr;
  return impl_->Put(reservation->owner_, reservation->handle_, reservation->lease_, std::move(tensor));
}

absl::StatusOr<StoredTensorPtr> TensorStore::Get(const std::string& handle, const std::string& owner) {
  return impl_->Get(handle, owner);
}

absl::Status TensorStore::Delete(const std::string& handle, const std::string& owner) {
  return impl_->Delete(handle, owner);
}

std::vector<StoredTensorInfo> TensorStore::List(const std::string& owner) const { return impl_->List(owner); }
TensorStoreStats TensorStore::stats() const { return impl_->stats(); }
const TensorStoreOptions& TensorStore::options() const { return impl_->options(); }

}  // namespace fuseline::executor
