// The messages of a streaming call, one at a time, for a handler that may block.
// Pipeline: gRPC's callbacks -> StreamGate -> MessageReader, MessageWriter -> handler.
// One message is read ahead and one is on its way out; a client that sends or takes nothing for the idle time ends its
// call with DEADLINE_EXCEEDED. Thread-safety: a reader and a writer may be used by one thread each.
// Tested by tests/unit/service/message_stream_test.cc
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace fuseline::service {

template <typename Message>
class MessageReader {
 public:
  virtual ~MessageReader() = default;
  // False where the client has sent its last message. What `message` held before may be used for a later one. Errors:
  // CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (too many bytes of requests in the server).
  virtual absl::StatusOr<bool> Read(Message& message) = 0;
};

template <typename Message>
class MessageWriter {
 public:
  virtual ~MessageWriter() = default;
  // Blocks until the message before has left. Errors: CANCELLED, DEADLINE_EXCEEDED; the call can't go on then.
  virtual absl::Status Write(Message message) = 0;
};

// Where the handler's thread waits for gRPC's. A direction is an operation of gRPC at a time: begun by the handler's
// thread, done by a callback.
class StreamGate {
 public:
  StreamGate(absl::Duration idle, absl::Time deadline) : idle_(idle), deadline_(deadline) {}

  enum class Direction : uint8_t { kRead, kWrite };

  // The handler's side. Begin: the operation starts now. Wait: until none is under way; true where the last one went
  // well, false where it did not (or none was begun). Errors: CANCELLED, DEADLINE_EXCEEDED.
  void Begin(Direction direction) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<bool> Wait(Direction direction) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits however long it takes.
  void WaitUntilDone(Direction direction) ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_under_way(Direction direction) const ABSL_LOCKS_EXCLUDED(mutex_);

  // gRPC's side.
  void Done(Direction direction, bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Side {
    bool under_way = false;
    bool ok = false;
  };
  const Side& side(Direction direction) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return direction == Direction::kRead ? read_ : write_;
  }

  const absl::Duration idle_;
  const absl::Time deadline_;
  mutable absl::Mutex mutex_;
  Side read_ ABSL_GUARDED_BY(mutex_);
  Side write_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fuseline::service
