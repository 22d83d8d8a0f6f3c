#include "server/device_worker/worker_connection.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/spawn_process.h"
#include "server/device_worker/worker_device.h"

namespace fuseline::device_worker {
namespace {

// Opening a GPU takes half a second, on a machine with many busy ones several.
constexpr int kHelloMillis = 60'000;
constexpr int kStopCheckMillis = 5;
constexpr int64_t kSmallestBlock = 512;

absl::Status LostError(std::string_view reason) {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "", reason);
}

// Eight sizes for each power of two, so that blocks fit again.
int64_t BlockBytes(int64_t size_bytes) {
  int64_t step = kSmallestBlock;
  while (step * 16 < size_bytes) step *= 2;
  return std::max((size_bytes + step - 1) / step * step, kSmallestBlock);
}

}  // namespace

absl::StatusOr<std::shared_ptr<WorkerConnection>> WorkerConnection::Start(const std::vector<std::string>& command,
                                                                          const std::string& spec) {
  std::unique_ptr<SharedMemory> memory = SharedMemory::Create();
  if (memory == nullptr) return LostError("no shared memory for a device's process");
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return LostError(StrCat("no socket for a device's process: ", strerror(errno)));
  compiler::SpawnOptions options;
  options.argv = command;
  options.argv.push_back(kDeviceWorkerArgument);
  options.argv.push_back(spec);
  options.extra_fd = sockets[1];
  pid_t pid = 0;
  const int error = compiler::SpawnProcess(options, pid);
  close(sockets[1]);
  if (error != 0) {
    close(sockets[0]);
    return LostError(StrCat("can't start a device's process: ", strerror(error)));
  }
  std::shared_ptr<WorkerConnection> connection(new WorkerConnection(pid, sockets[0], std::move(memory)));
  absl::MutexLock lock(&connection->mutex_);
  if (!connection->channel_.SendDescriptor(connection->memory_->fd()))
    return connection->Lose("the device's process has ended");
  return connection;
}

WorkerConnection::~WorkerConnection() { End(); }

void WorkerConnection::End() {
  absl::MutexLock lock(&end_mutex_);
  if (ended_) return;
  ended_ = true;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<Reply> WorkerConnection::ReadHello() {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  if (!channel_.Await(kHelloMillis)) return Lose("the device's process does not answer");
  FUSELINE_ASSIGN_OR_RETURN(Reply hello, Receive());
  if (!hello.status.ok()) return hello.status;
  memory_bytes_ = hello.value;
  absl::MutexLock free_lock(&free_mutex_);
  max_free_bytes_ = memory_bytes_ / 4;
  return hello;
}

absl::Status WorkerConnection::Lose(std::string_view reason) {
  if (lost_.ok()) lost_ = LostError(reason);
  return lost_;
}

absl::Status WorkerConnection::Send(const Request& request) {
  if (!lost_.ok()) return lost_;
  return channel_.Send(request) ? absl::OkStatus() : Lose("the device's process has ended");
}

absl::StatusOr<Reply> WorkerConnection::Receive() {
  if (!lost_.ok()) return lost_;
  Reply reply;
  if (!channel_.Receive(reply)) return Lose("the device's process has ended");
  if (GetErrorReason(reply.status) == ErrorReason::kNoHealthyDevice)
    return Lose(std::string_view(reply.status.message().data(), reply.status.message().size()));
  absl::MutexLock lock(&free_mutex_);
  usage_ = {reply.used_bytes, reply.reserved_bytes};
  return reply;
}

absl::Status WorkerConnection::FinishCopies(int64_t left) {
  while (copies_ > left) {
    FUSELINE_ASSIGN_OR_RETURN(const Reply reply, Receive());
    --copies_;
    // Nobody waits for it: who reads what was not copied must hear of it.
    if (!reply.status.ok()) {
      return Lose(StrCat("a copy to the device failed: ",
                         std::string_view(reply.status.message().data(), reply.status.message().size())));
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerConnection::SendReleases() {
  std::vector<Request> releases;
  {
    absl::MutexLock lock(&free_mutex_);
    releases.swap(releases_);
  }
  for (const Request& release : releases) FUSELINE_RETURN_IF_ERROR(Send(release));
  return absl::OkStatus();
}

absl::StatusOr<Reply> WorkerConnection::Call(const Request& request, const launch::StopCheck& stop) {
  absl::MutexLock lock(&mutex_);
  return CallLocked(request, stop);
}

absl::StatusOr<Reply> WorkerConnection::CallLocked(const Request& request, const launch::StopCheck& stop) {
  FUSELINE_RETURN_IF_ERROR(SendReleases());
  memory_->stop().store(0, std::memory_order_relaxed);
  FUSELINE_RETURN_IF_ERROR(Send(request));
  FUSELINE_RETURN_IF_ERROR(FinishCopies(0));
  absl::Status stopped;
  while (stop && stopped.ok() && !channel_.Await(kStopCheckMillis)) {
    stopped = stop();
    if (!stopped.ok()) memory_->stop().store(1, std::memory_order_relaxed);
  }
  FUSELINE_ASSIGN_OR_RETURN(Reply reply, Receive());
  if (reply.status.ok()) return reply;
  return stopped.ok() ? reply.status : stopped;
}

std::shared_ptr<void> WorkerConnection::MakeBlock(int64_t address, int64_t block_bytes) {
  return std::shared_ptr<void>(reinterpret_cast<void*>(address), [self = shared_from_this(), block_bytes](void* block) {
    self->Release(reinterpret_cast<int64_t>(block), block_bytes);
  });
}

absl::StatusOr<std::shared_ptr<void>> WorkerConnection::Allocate(int64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  if (size_bytes < 0 || size_bytes > memory_bytes_) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     StrCat("the device has ", memory_bytes_, " bytes of memory, not ", size_bytes));
  }
  const int64_t block_bytes = BlockBytes(size_bytes);
  {
    absl::MutexLock free_lock(&free_mutex_);
    if (const auto it = free_.find(block_bytes); it != free_.end()) {
      const int64_t address = it->second.back();
      it->second.pop_back();
      if (it->second.empty()) free_.erase(it);
      free_bytes_ -= block_bytes;
      return MakeBlock(address, block_bytes);
    }
  }
  Request request;
  request.operation = Operation::kAllocate;
  request.a = block_bytes;
  absl::StatusOr<Reply> reply = CallLocked(request, nullptr);
  if (!reply.ok() && GetErrorReason(reply.status()) == ErrorReason::kDeviceMemory) {
    {
      absl::MutexLock free_lock(&free_mutex_);
      for (const auto& [bytes, addresses] : free_) {
        for (const int64_t address : addresses) releases_.push_back({Operation::kFree, address, 0, 0, 0, 0, ""});
      }
      free_.clear();
      free_bytes_ = 0;
    }
    reply = CallLocked(request, nullptr);
  }
  if (!reply.ok()) return reply.status();
  return MakeBlock(reply->value, block_bytes);
}

// Reused right away: the worker does everything in the order of the requests.
void WorkerConnection::Release(int64_t address, int64_t block_bytes) {
  absl::MutexLock lock(&free_mutex_);
  if (free_bytes_ + block_bytes > max_free_bytes_) {
    releases_.push_back({Operation::kFree, address, 0, 0, 0, 0, ""});
    return;
  }
  free_[block_bytes].push_back(address);
  free_bytes_ += block_bytes;
}

void WorkerConnection::Unload(int64_t artifact) {
  absl::MutexLock lock(&free_mutex_);
  releases_.push_back({Operation::kUnload, artifact, 0, 0, 0, 0, ""});
}

launch::MemoryUsage WorkerConnection::usage() const {
  absl::MutexLock lock(&free_mutex_);
  return {std::max<int64_t>(0, usage_.used_bytes - free_bytes_), usage_.reserved_bytes};
}

absl::Status WorkerConnection::CopyToDevice(void* device, const void* host, int64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  FUSELINE_RETURN_IF_ERROR(SendReleases());
  for (int64_t offset = 0; offset < size_bytes; offset += kPieceBytes) {
    FUSELINE_RETURN_IF_ERROR(FinishCopies(kPieces - 1));
    const int64_t place = next_piece_ * kPieceBytes;
    next_piece_ = (next_piece_ + 1) % kPieces;
    const int64_t bytes = std::min(kPieceBytes, size_bytes - offset);
    memcpy(memory_->data() + place, static_cast<const char*>(host) + offset, static_cast<size_t>(bytes));
    FUSELINE_RETURN_IF_ERROR(
        Send({Operation::kCopyToDevice, reinterpret_cast<int64_t>(device) + offset, place, bytes, 0, 0, ""}));
    ++copies_;
  }
  return absl::OkStatus();
}

absl::Status WorkerConnection::CopyToHost(void* host, const void* device, int64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  FUSELINE_RETURN_IF_ERROR(SendReleases());
  FUSELINE_RETURN_IF_ERROR(FinishCopies(0));
  const int64_t count = (size_bytes + kPieceBytes - 1) / kPieceBytes;
  absl::Status status;
  for (int64_t asked = 0, got = 0; got < count; ++got) {
    for (; asked < count && asked < got + kPiecesAhead; ++asked) {
      const int64_t offset = asked * kPieceBytes;
      FUSELINE_RETURN_IF_ERROR(
          Send({Operation::kCopyToHost, reinterpret_cast<int64_t>(device) + offset, asked % kPieces * kPieceBytes,
                std::min(kPieceBytes, size_bytes - offset), 0, 0, ""}));
    }
    FUSELINE_ASSIGN_OR_RETURN(const Reply reply, Receive());
    if (!reply.status.ok() && status.ok()) status = reply.status;
    const int64_t offset = got * kPieceBytes;
    memcpy(static_cast<char*>(host) + offset, memory_->data() + got % kPieces * kPieceBytes,
           static_cast<size_t>(std::min(kPieceBytes, size_bytes - offset)));
  }
  return status;
}

}  // namespace fuseline::device_worker
