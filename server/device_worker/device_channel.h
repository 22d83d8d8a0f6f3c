// What goes between a server and the process that drives one of its devices: fixed-size headers with payloads over a
// Unix stream socket, and tensor data through shared memory beside it.
// Pipeline: WorkerDevice <-> DeviceChannel, SharedMemory <-> RunDeviceWorker. Both ends are the same program, so
// numbers travel as they lie in memory. Replies come in the order of the requests. Errors: false, where the other end
// is gone or sends what can't be. Thread-safety: thread-compatible. Tested by tests/unit/server/worker_device_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace fuseline::device_worker {

enum class Operation : uint32_t {
  kAllocate = 1,         // a: bytes -> address
  kFree = 2,             // a: address; no reply
  kCopyToDevice = 3,     // a: address, b: place in the shared memory, c: bytes
  kCopyToHost = 4,       // the same
  kLoad = 5,             // payload: the artifact -> its number
  kUnload = 6,           // a: number; no reply
  kRun = 7,              // a: number; payload: addresses of inputs, then outputs; b: how many inputs
  kSynchronize = 8,      //
  kTime = 9,             // as kRun, c: warm-up runs, d: iterations, e: flush the cache -> payload: microseconds
  kMeasureCopyRate = 10  // a: bytes -> payload: the rate
};

struct Request {
  Operation operation = Operation::kSynchronize;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
  int64_t d = 0;
  int64_t e = 0;
  std::string payload;
};

struct Reply {
  absl::Status status;  // with its reason
  int64_t value = 0;
  int64_t used_bytes = 0;  // of the device's pool, now
  int64_t reserved_bytes = 0;
  std::string payload;
};

class DeviceChannel {
 public:
  explicit DeviceChannel(int fd) : fd_(fd) {}  // owns it
  ~DeviceChannel();
  DeviceChannel(const DeviceChannel&) = delete;
  DeviceChannel& operator=(const DeviceChannel&) = delete;

  bool Send(const Request& request);
  bool Receive(Request& request);
  bool Send(const Reply& reply);
  bool Receive(Reply& reply);
  // Whether something can be received (or the end is reached) within that time.
  bool Await(int milliseconds) const;
  // A descriptor for the other end. The first message of a channel.
  bool SendDescriptor(int fd);
  int ReceiveDescriptor();  // -1 where none comes
  int fd() const { return fd_; }

 private:
  bool SendBytes(const void* bytes, size_t count);
  bool ReceiveBytes(void* bytes, size_t count);
  bool ReceivePayload(std::string& payload, uint64_t count);

  const int fd_;
};

// A block that two processes see. Its first page is for control, the rest for data.
class SharedMemory {
 public:
  static constexpr int64_t kDataBytes = 32 << 20;

  // Null where the system gives none.
  static std::unique_ptr<SharedMemory> Create();
  static std::unique_ptr<SharedMemory> Map(int fd);  // takes the descriptor
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return fd_; }
  char* data() const { return base_ + kControlBytes; }
  // Not 0: the run that goes on is to stop.
  std::atomic<uint32_t>& stop() const { return *reinterpret_cast<std::atomic<uint32_t>*>(base_); }

 private:
  static constexpr int64_t kControlBytes = 4096;
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  SharedMemory(int fd, char* base) : fd_(fd), base_(base) {}

  const int fd_;
  char* const base_;
};

}  // namespace fuseline::device_worker
