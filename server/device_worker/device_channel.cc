#include "server/device_worker/device_channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "common/status/error.h"

namespace fuseline::device_worker {
namespace {

// The largest artifacts have constants of some hundred MB.
constexpr uint64_t kMaxPayloadBytes = 2ull << 30;

struct RequestHeader {
  uint32_t operation;
  uint32_t unused;
  int64_t arguments[5];
  uint64_t payload_bytes;
};

struct ReplyHeader {
  int32_t code;
  int32_t reason;
  int64_t value;
  int64_t used_bytes;
  int64_t reserved_bytes;
  uint64_t payload_bytes;  // of the message where the code is not OK
};

}  // namespace

DeviceChannel::~DeviceChannel() { close(fd_); }

bool DeviceChannel::SendBytes(const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = send(fd_, from, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool DeviceChannel::ReceiveBytes(void* bytes, size_t count) {
  char* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t received = recv(fd_, to, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    to += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

bool DeviceChannel::ReceivePayload(std::string& payload, uint64_t count) {
  if (count > kMaxPayloadBytes) return false;
  payload.resize(count);
  return ReceiveBytes(payload.data(), count);
}

bool DeviceChannel::Send(const Request& request) {
  const RequestHeader header = {static_cast<uint32_t>(request.operation),
                                0,
                                {request.a, request.b, request.c, request.d, request.e},
                                request.payload.size()};
  if (request.payload.size() > kMaxPayloadBytes) return false;
  return SendBytes(&header, sizeof(header)) && SendBytes(request.payload.data(), request.payload.size());
}

bool DeviceChannel::Receive(Request& request) {
  RequestHeader header;
  if (!ReceiveBytes(&header, sizeof(header))) return false;
  request.operation = static_cast<Operation>(header.operation);
  request.a = header.arguments[0];
  request.b = header.arguments[1];
  request.c = header.arguments[2];
  request.d = header.arguments[3];
  request.e = header.arguments[4];
  return ReceivePayload(request.payload, header.payload_bytes);
}

bool DeviceChannel::Send(const Reply& reply) {
  const std::string message(reply.status.message().data(), reply.status.message().size());
  const std::string& payload = reply.status.ok() ? reply.payload : message;
  const ReplyHeader header = {static_cast<int32_t>(reply.status.code()),
                              static_cast<int32_t>(GetErrorReason(reply.status)),
                              reply.value,
                              reply.used_bytes,
                              reply.reserved_bytes,
                              payload.size()};
  return SendBytes(&header, sizeof(header)) && SendBytes(payload.data(), payload.size());
}

bool DeviceChannel::Receive(Reply& reply) {
  ReplyHeader header;
  if (!ReceiveBytes(&header, sizeof(header))) return false;
  reply.value = header.value;
  reply.used_bytes = header.used_bytes;
  reply.reserved_bytes = header.reserved_bytes;
  std::string payload;
  if (!ReceivePayload(payload, header.payload_bytes)) return false;
  if (header.code == 0) {
    reply.status = absl::OkStatus();
    reply.payload = std::move(payload);
  } else {
    reply.status =
        MakeError(static_cast<absl::StatusCode>(header.code), static_cast<ErrorReason>(header.reason), "", payload);
  }
  return true;
}

bool DeviceChannel::Await(int milliseconds) const {
  pollfd poll_fd = {fd_, POLLIN, 0};
  return poll(&poll_fd, 1, milliseconds) > 0;
}

bool DeviceChannel::SendDescriptor(int fd) {
  char byte = 0;
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  ssize_t sent;
  do {
    sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == 1;
}

int DeviceChannel::ReceiveDescriptor() {
  char byte = 0;
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  const cmsghdr* const header = received == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) return -1;
  int fd = -1;
  memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

std::unique_ptr<SharedMemory> SharedMemory::Create() {
  const int fd = memfd_create("fuseline-device", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  if (ftruncate(fd, kControlBytes + kDataBytes) != 0) {
    close(fd);
    return nullptr;
  }
  return Map(fd);
}

std::unique_ptr<SharedMemory> SharedMemory::Map(int fd) {
  void* const base = mmap(nullptr, kControlBytes + kDataBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  return std::unique_ptr<SharedMemory>(new SharedMemory(fd, static_cast<char*>(base)));
}

SharedMemory::~SharedMemory() {
  munmap(base_, kControlBytes + kDataBytes);
  close(fd_);
}

}  // namespace fuseline::device_worker
