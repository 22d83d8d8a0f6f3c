#include "server/compiler/frame_channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace fuseline::compiler {
namespace {

constexpr size_t kHeaderBytes = sizeof(uint32_t) + 1;
// How much a claimed length may reserve before bytes come.
constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kGiveUpPollMs = 20;
constexpr int64_t kLongestPollMs = 60'000;

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

FrameChannel::FrameChannel(int fd) : fd_(fd) {}

FrameChannel::~FrameChannel() { close(fd_); }

FrameResult FrameChannel::Await(short events, const FrameWait& wait) const {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(wait.deadline - absl::Now() + absl::Microseconds(999));
    if (left_ms <= 0) return FrameResult::kTimedOut;
    pollfd poll_fd = {fd_, events, 0};
    const int64_t wait_ms = std::min(left_ms, wait.give_up ? kGiveUpPollMs : kLongestPollMs);
    const int ready = poll(&poll_fd, 1, static_cast<int>(wait_ms));
    if (ready > 0) return FrameResult::kOk;  // also at a hang-up, which the next call on the socket reports
    if (ready < 0 && errno != EINTR) return FrameResult::kClosed;
    if (wait.give_up && wait.give_up()) return FrameResult::kGivenUp;
  }
}

FrameResult FrameChannel::ReadBytes(char* bytes, size_t count, const FrameWait& wait) {
  while (count > 0) {
    const ssize_t got = recv(fd_, bytes, count, MSG_DONTWAIT);
    if (got == 0) return FrameResult::kClosed;
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    } else if (WouldBlock(errno)) {
      if (const FrameResult ready = Await(POLLIN, wait); ready != FrameResult::kOk) return ready;
    } else if (errno != EINTR) {
      return FrameResult::kClosed;
    }
  }
  return FrameResult::kOk;
}

FrameResult FrameChannel::WriteBytes(const char* bytes, size_t count, const FrameWait& wait) {
  while (count > 0) {
    const ssize_t sent = send(fd_, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes += sent;
      count -= static_cast<size_t>(sent);
    } else if (WouldBlock(errno)) {
      if (const FrameResult ready = Await(POLLOUT, wait); ready != FrameResult::kOk) return ready;
    } else if (errno != EINTR) {
      return FrameResult::kClosed;
    }
  }
  return FrameResult::kOk;
}

FrameResult FrameChannel::Write(FrameType type, std::string_view payload, const FrameWait& wait) {
  if (payload.size() > kMaxFrameBytes) return FrameResult::kMalformed;
  char header[kHeaderBytes];
  const uint32_t size = static_cast<uint32_t>(payload.size());
  memcpy(header, &size, sizeof(size));
  header[sizeof(size)] = static_cast<char>(type);
  const FrameResult result = WriteBytes(header, sizeof(header), wait);
  return result == FrameResult::kOk ? WriteBytes(payload.data(), payload.size(), wait) : result;
}

FrameResult FrameChannel::Read(FrameType type, std::string& payload, const FrameWait& wait) {
  payload.clear();
  char header[kHeaderBytes];
  if (const FrameResult result = ReadBytes(header, sizeof(header), wait); result != FrameResult::kOk) return result;
  uint32_t size = 0;
  memcpy(&size, header, sizeof(size));
  if (size > kMaxFrameBytes || header[sizeof(size)] != static_cast<char>(type)) return FrameResult::kMalformed;
  while (payload.size() < size) {
    const size_t begin = payload.size();
    payload.resize(begin + std::min(kChunkBytes, size - begin));
    const FrameResult result = ReadBytes(payload.data() + begin, payload.size() - begin, wait);
    if (result != FrameResult::kOk) return result;
  }
  return FrameResult::kOk;
}

bool FrameChannel::HasInput() const {
  pollfd poll_fd = {fd_, POLLIN, 0};
  return poll(&poll_fd, 1, 0) != 0;
}

}  // namespace fuseline::compiler
