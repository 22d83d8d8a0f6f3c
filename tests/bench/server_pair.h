// A process with two servers for benchmarks: Fuseline's, with the engine and the CPU target, and one that does nothing
// but move bytes through gRPC, which is what Fuseline's is measured against. The caller's process is the client of
// both. Thread-safety: thread-compatible. To be started before the caller's process uses gRPC, since it forks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace fuseline::bench {

// The plain server serves methods of fuseline.v1.ExecuteService. DeleteTensor: an empty answer at once. PutTensor:
// takes all messages and throws them away. GetTensor: as many bytes as the handle says, in chunks of kPlainChunkBytes.
// ExecuteStream: takes all messages, then sends as many bytes. All bytes are sent from one block.
inline constexpr int64_t kPlainChunkBytes = 1 << 20;

class ServerPair {
 public:
  static absl::StatusOr<std::unique_ptr<ServerPair>> Start();
  // Ends the process.
  ~ServerPair();
  ServerPair(const ServerPair&) = delete;
  ServerPair& operator=(const ServerPair&) = delete;

  const std::string& fuseline_address() const { return fuseline_address_; }
  const std::string& plain_address() const { return plain_address_; }

 private:
  ServerPair(pid_t process, int stop_pipe, int fuseline_port, int plain_port);

  const pid_t process_;
  const int stop_pipe_;  // closing it stops the servers
  const std::string fuseline_address_;
  const std::string plain_address_;
};

}  // namespace fuseline::bench
