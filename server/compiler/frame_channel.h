// Length-prefixed messages over a stream socket, between this process and one worker.
// Pipeline: worker_messages <-> FrameChannel <-> socket. A frame is its payload's length (4 bytes, the machine's byte
// order: both ends are the same program), its type (1 byte) and the payload. Ownership: owns the descriptor.
// Errors: FrameResult; after any but kOk the channel is of no more use. Thread-safety: thread-compatible.
// Blocking: as FrameWait says. Tested by tests/unit/compiler/frame_channel_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace fuseline::compiler {

enum class FrameType : uint8_t { kSetup = 1, kReady = 2, kRequest = 3, kBegun = 4, kReply = 5 };

// Longer frames are malformed: the largest kernels have sources of some hundred KB.
inline constexpr uint32_t kMaxFrameBytes = 256u << 20;

enum class FrameResult : uint8_t {
  kOk,
  kClosed,     // the other end is gone
  kTimedOut,   // past the deadline
  kGivenUp,    // `give_up` said so
  kMalformed,  // too long, of another type, or cut off
};

struct FrameWait {
  absl::Time deadline = absl::InfiniteFuture();
  std::function<bool()> give_up;  // asked every few ms while waiting; may be empty
};

class FrameChannel {
 public:
  explicit FrameChannel(int fd);  // a connected stream socket
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;

  // kMalformed where the payload is too long to send; nothing is sent then.
  FrameResult Write(FrameType type, std::string_view payload, const FrameWait& wait = {});
  // The payload of the next frame, which must be of `type`.
  FrameResult Read(FrameType type, std::string& payload, const FrameWait& wait = {});
  // Whether something has come, or the other end is gone. Does not block.
  bool HasInput() const;
  int fd() const { return fd_; }

 private:
  // Waits until the socket is ready for `events`.
  FrameResult Await(short events, const FrameWait& wait) const;
  FrameResult ReadBytes(char* bytes, size_t count, const FrameWait& wait);
  FrameResult WriteBytes(const char* bytes, size_t count, const FrameWait& wait);

  const int fd_;
};

}  // namespace fuseline::compiler
