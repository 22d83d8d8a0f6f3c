// Commands to Redis, whatever its topology: finds the master (single server, Sentinel, Cluster), keeps connections, and
// stands between the callers and a server that is down or slow (circuit breaker).
// Pipeline: RoutedCommand[] -> RedisClient::Run -> RespValue[].
// While the breaker is closed, a thread of the client's asks now and then whether the servers still answer. The first
// operation that fails opens it: from then on every caller is told so at once, and the thread alone tries to come back,
// at once and then after a while that doubles from try to try. It also looks up names and asks Sentinels and cluster
// nodes where the masters are, so that no caller waits for that. Thread-safety: thread-safe. Blocking: Run, until its
// time limit at most. Tested by tests/unit/server/redis_client_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/cache/redis_address.h"
#include "server/cache/redis_connection.h"

namespace fuseline::cache {

struct RoutedCommand {
  RedisCommand words;
  std::string key;  // whose place in a cluster decides where the command goes
};

// Never renumber: the numbers are a metric's values.
enum class BreakerState : uint8_t { kClosed = 0, kHalfOpen = 1, kOpen = 2 };
std::string_view BreakerStateName(BreakerState state);  // "closed", "half-open", "open"

struct RedisClientOptions {
  RedisAddress address;
  std::string user;
  std::string password;
  TlsFiles tls;
  absl::Duration timeout = absl::Milliseconds(250);      // of one Run, where the caller does not say
  absl::Duration first_retry = absl::Milliseconds(500);  // after a first one at once
  absl::Duration longest_retry = absl::Seconds(10);
  absl::Duration health_interval = absl::Seconds(2);
  std::function<void(const std::string& line)> report;  // may be empty
};

class RedisClient {
 public:
  // Tries to connect for a second or so, so that the first caller finds it connected; goes on without in any case.
  // Errors: INVALID_ARGUMENT (kOptionInvalid) for TLS files; RESOURCE_EXHAUSTED where there is no thread.
  static absl::StatusOr<std::unique_ptr<RedisClient>> Create(const RedisClientOptions& options);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  // Runs commands, those for one server in one batch and in their order there, and gives their replies in order, error
  // replies too. Errors: UNAVAILABLE, DEADLINE_EXCEEDED, PERMISSION_DENIED, RESOURCE_EXHAUSTED for too many callers
  // (kInputOutput); none of the commands, some or all may have been carried out then.
  absl::StatusOr<std::vector<RespValue>> Run(const std::vector<RoutedCommand>& commands, absl::Duration limit);
  absl::StatusOr<std::vector<RespValue>> Run(const std::vector<RoutedCommand>& commands) {
    return Run(commands, options_.timeout);
  }

  // A connection of the caller's own, to a server on which messages published through Run are heard.
  absl::StatusOr<std::unique_ptr<RedisConnection>> Connect(absl::Duration limit);

  BreakerState state() const;
  std::string reason() const;  // why it is not closed
  int64_t times_opened() const { return times_opened_; }
  int64_t failures() const { return failures_; }  // calls of Run that failed, without those that were not tried
  // Returns when the breaker is closed, at the deadline, or when `Close` has been called; whether it is closed.
  bool WaitUntilClosed(absl::Duration limit);
  // Run fails from now on; nobody waits for anything any more.
  void Close();

 private:
  struct Node {
    explicit Node(SocketAddress where) : address(std::move(where)) {}
    const SocketAddress address;
    absl::Mutex mutex;
    std::vector<std::unique_ptr<RedisConnection>> idle ABSL_GUARDED_BY(mutex);
    int open ABSL_GUARDED_BY(mutex) = 0;  // taken by callers
  };
  using NodePtr = std::shared_ptr<Node>;
  // Immutable once it is in use.
  struct Topology {
    std::vector<NodePtr> masters;
    std::vector<uint16_t> master_of_slot;  // empty: there is one master
  };
  struct Pending;
  class Batch;

  explicit RedisClient(RedisClientOptions options) : options_(std::move(options)) {}

  void Maintain();
  void SetRetry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refresh(bool keep_connections);
  absl::StatusOr<Topology> FindSingle(absl::Time deadline);
  absl::StatusOr<Topology> FindBySentinel(absl::Time deadline);
  absl::StatusOr<Topology> FindCluster(absl::Time deadline);
  absl::StatusOr<Topology> ReadSlots(const RedisEndpoint& asked, const RespValue& reply, absl::Time deadline);
  absl::StatusOr<std::unique_ptr<RedisConnection>> OpenEndpoint(const RedisEndpoint& endpoint, bool is_sentinel,
                                                                absl::Time deadline);
  absl::Status CheckHealth();
  NodePtr NodeAt(const SocketAddress& address);

  absl::StatusOr<std::vector<RespValue>> TryRun(const std::vector<RoutedCommand>& commands, absl::Time deadline);
  absl::StatusOr<std::unique_ptr<RedisConnection>> Take(Node& node, bool fresh, absl::Time deadline, bool& reused);
  void GiveBack(Node& node, std::unique_ptr<RedisConnection> connection);
  void Failed(const absl::Status& status);
  std::shared_ptr<const Topology> topology() const;

  const RedisClientOptions options_;
  RedisConnection::Options connection_options_;  // set by Create
  std::atomic<int64_t> times_opened_{0};
  std::atomic<int64_t> failures_{0};

  mutable absl::Mutex mutex_;
  std::shared_ptr<const Topology> topology_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, NodePtr> nodes_ ABSL_GUARDED_BY(mutex_);  // by "host:port"
  BreakerState state_ ABSL_GUARDED_BY(mutex_) = BreakerState::kHalfOpen;
  std::string reason_ ABSL_GUARDED_BY(mutex_) = "not connected yet";
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool refresh_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_tried_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_reported_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration retry_ ABSL_GUARDED_BY(mutex_);  // the next time
  absl::Time retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time closed_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;  // set by Create
};

}  // namespace fuseline::cache
