// One builder of each key in the cluster, by leases in Redis: a key with a random token and an expiry, set only where
// there is none, renewed while the build goes on, and removed by its holder alone once what it built is there. Waiters
// hear of that on a channel, and ask for themselves now and then in case they did not; a holder that dies leaves a
// lease that expires, and one of them takes over. Pipeline: see build_coordinator.h. Thread-safety: thread-safe; three
// threads of its own (renewal, waking, listening), which sleep while there is nothing to renew or to wait for.
// Tested by tests/unit/server/redis_lease_test.cc
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/cache/build_coordinator.h"
#include "server/cache/redis_client.h"
#include "server/cache/redis_subscriber.h"
#include "server/cache/shared_keys.h"
#include "server/cache/shared_write_queue.h"

namespace fuseline::cache {

struct RedisLeaseOptions {
  absl::Duration lease = absl::Seconds(10);
  // How often waiters ask for themselves: while messages are heard, and while they are not.
  absl::Duration poll = absl::Seconds(1);
  absl::Duration poll_unsubscribed = absl::Milliseconds(100);
  // How long a claim that failed waits for the server to be found again.
  absl::Duration patience = absl::Milliseconds(250);
  // No build of another is waited for any longer, whoever holds its lease and why.
  absl::Duration longest_wait = absl::Minutes(5);
  bool subscribe = true;  // false: for tests of the polling
};

class RedisBuildCoordinator final : public BuildCoordinator {
 public:
  struct Stats {
    int64_t held = 0;        // leases, now
    int64_t watched = 0;     // keys that others build, now
    int64_t acquired = 0;    // leases that were got
    int64_t waited = 0;      // claims that found another's lease
    int64_t taken_over = 0;  // of those acquired, after the lease of another had expired
    int64_t lost = 0;        // leases that another had before they were released
  };

  // `client` and `writes` must outlive it; the releases go through `writes`, so after what was put before them.
  RedisBuildCoordinator(RedisClient& client, SharedWriteQueue& writes, const SharedKeys& keys,
                        const RedisLeaseOptions& options);
  ~RedisBuildCoordinator() override;

  void OnWake(std::function<void(const Fingerprint&)> wake) override;
  Claim TryClaim(const Fingerprint& key) override;
  void Release(const Fingerprint& key) override;
  void Stop() override;
  Stats stats() const;

 private:
  struct Watch {
    bool is_others = false;  // another was seen to have it
    absl::Time since;
  };

  void Renew();
  void Wake();
  void RenewAll();
  void Poll();
  void WakeWatched(const Fingerprint& key, bool expired);
  void Forget(const Fingerprint& key, const std::string& token);
  RoutedCommand ReleaseCommand(const Fingerprint& key, const std::string& token) const;

  RedisClient& client_;
  SharedWriteQueue& writes_;
  const SharedKeys keys_;
  const RedisLeaseOptions options_;

  mutable absl::Mutex mutex_;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool poll_now_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(const Fingerprint&)> wake_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Fingerprint, std::string> held_ ABSL_GUARDED_BY(mutex_);  // their tokens
  absl::flat_hash_map<Fingerprint, Watch> watched_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Fingerprint> overdue_ ABSL_GUARDED_BY(mutex_);  // that were waited for long enough
  absl::flat_hash_set<Fingerprint> orphans_ ABSL_GUARDED_BY(mutex_);  // whose lease was seen to have expired
  std::deque<Fingerprint> to_wake_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread renewal_;
  std::thread waking_;
  std::unique_ptr<RedisSubscriber> subscriber_;
};

}  // namespace fuseline::cache
