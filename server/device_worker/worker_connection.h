// One device worker: its process, its socket, the memory shared with it, and the device memory that is free for reuse.
// Ownership: shared by the device, its blocks and its loaded artifacts; the process ends with the last of them, or with
// End. Errors: UNAVAILABLE (kNoHealthyDevice) once the process is gone or the device is lost, for good.
// Thread-safety: thread-safe. Tested by tests/unit/server/worker_device_test.cc
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/launch_plan_runner.h"
#include "server/device_worker/device_channel.h"

namespace fuseline::device_worker {

class WorkerConnection : public std::enable_shared_from_this<WorkerConnection> {
 public:
  // Starts the process, and does not wait for it.
  static absl::StatusOr<std::shared_ptr<WorkerConnection>> Start(const std::vector<std::string>& command,
                                                                 const std::string& spec);
  ~WorkerConnection();

  // Waits until the process has opened its device, and returns what it says of it.
  absl::StatusOr<Reply> ReadHello() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the process.
  void End();

  absl::StatusOr<Reply> Call(const Request& request, const launch::StopCheck& stop = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_, free_mutex_);
  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // At the next call.
  void Unload(int64_t artifact) ABSL_LOCKS_EXCLUDED(free_mutex_);
  launch::MemoryUsage usage() const ABSL_LOCKS_EXCLUDED(free_mutex_);

 private:
  // The shared memory in equal pieces, used in turn.
  static constexpr int64_t kPieceBytes = 4 << 20;
  static constexpr int64_t kPieces = SharedMemory::kDataBytes / kPieceBytes;
  static constexpr int64_t kPiecesAhead = 3;  // of a copy to the host

  WorkerConnection(pid_t pid, int fd, std::unique_ptr<SharedMemory> memory)
      : pid_(pid), memory_(std::move(memory)), channel_(fd) {}

  absl::StatusOr<Reply> CallLocked(const Request& request, const launch::StopCheck& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) ABSL_LOCKS_EXCLUDED(free_mutex_);
  absl::Status Send(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Reply> Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) ABSL_LOCKS_EXCLUDED(free_mutex_);
  // Receives replies to copies until at most `left` are on their way.
  absl::Status FinishCopies(int64_t left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) ABSL_LOCKS_EXCLUDED(free_mutex_);
  absl::Status SendReleases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) ABSL_LOCKS_EXCLUDED(free_mutex_);
  absl::Status Lose(std::string_view reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(int64_t address, int64_t block_bytes) ABSL_LOCKS_EXCLUDED(free_mutex_);
  std::shared_ptr<void> MakeBlock(int64_t address, int64_t block_bytes);

  const pid_t pid_;
  const std::unique_ptr<SharedMemory> memory_;
  absl::Mutex mutex_;
  DeviceChannel channel_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);   // OK: all is well
  int64_t copies_ ABSL_GUARDED_BY(mutex_) = 0;  // to the device, without their reply yet
  int64_t next_piece_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t memory_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // the device's

  // Never held while waiting: memory is let go of anywhere.
  mutable absl::Mutex free_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::map<int64_t, std::vector<int64_t>> free_ ABSL_GUARDED_BY(free_mutex_);  // addresses by size
  int64_t free_bytes_ ABSL_GUARDED_BY(free_mutex_) = 0;
  int64_t max_free_bytes_ ABSL_GUARDED_BY(free_mutex_) = 0;
  std::vector<Request> releases_ ABSL_GUARDED_BY(free_mutex_);
  launch::MemoryUsage usage_ ABSL_GUARDED_BY(free_mutex_);
  absl::Mutex end_mutex_;
  bool ended_ ABSL_GUARDED_BY(end_mutex_) = false;
};

}  // namespace fuseline::device_worker
