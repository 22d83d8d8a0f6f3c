#include "server/cache/redis_lease.h"

#include <openssl/rand.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

// Removes, or prolongs, a key only if it has our value: between a look and a step of our own another could take it.
constexpr char kReleaseScript[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
constexpr char kRenewScript[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";
constexpr size_t kKeysOfOnePoll = 256;
constexpr size_t kMostOrphans = 10'000;  // and overdue keys

// Unlike any other lease's, wherever and whenever that was made.
std::string NewToken() {
  std::array<uint8_t, 32> bytes{};
  if (RAND_bytes(bytes.data(), 16) != 1) return "";
  return HexOf(bytes).substr(0, 32);
}

std::string Millis(absl::Duration duration) {
  return StrCat(std::max<int64_t>(1, absl::ToInt64Milliseconds(duration)));
}

}  // namespace

RedisBuildCoordinator::RedisBuildCoordinator(RedisClient& client, SharedWriteQueue& writes, const SharedKeys& keys,
                                             const RedisLeaseOptions& options)
    : client_(client), writes_(writes), keys_(keys), options_(options) {
  // Before the threads, which look at it, and ended after them.
  if (options_.subscribe) {
    subscriber_ = std::make_unique<RedisSubscriber>(
        client_, keys_.Channel(),
        [this](std::string_view message) {
          Fingerprint key;
          if (message.size() != key.bytes.size()) return;
          memcpy(key.bytes.data(), message.data(), message.size());
          WakeWatched(key, false);
        },
        [this] {
          absl::MutexLock lock(&mutex_);
          poll_now_ = true;  // for what was said while nobody listened
        });
  }
  try {
    renewal_ = std::thread([this] { Renew(); });
    waking_ = std::thread([this] { Wake(); });
  } catch (const std::system_error&) {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;  // everybody builds
  }
}

RedisBuildCoordinator::~RedisBuildCoordinator() { Stop(); }

void RedisBuildCoordinator::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
  }
  if (renewal_.joinable()) renewal_.join();
  if (waking_.joinable()) waking_.join();
  subscriber_.reset();
}

void RedisBuildCoordinator::OnWake(std::function<void(const Fingerprint&)> wake) {
  absl::MutexLock lock(&mutex_);
  wake_ = std::move(wake);
}

RedisBuildCoordinator::Stats RedisBuildCoordinator::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.held = static_cast<int64_t>(held_.size());
  stats.watched = static_cast<int64_t>(watched_.size());
  return stats;
}

Claim RedisBuildCoordinator::TryClaim(const Fingerprint& key) {
  const std::string token = NewToken();
  {
    absl::MutexLock lock(&mutex_);
    if (is_closing_ || token.empty()) return Claim::kUnavailable;
    if (overdue_.erase(key) > 0) return Claim::kUnavailable;
    watched_.try_emplace(
        key, Watch{false, absl::Now()});  // before we ask, so that nothing is missed between the answer and this
  }
  // The index is looked at after the lease is ours: whoever had it has written before letting go.
  const std::string lease = keys_.Lease(key);
  const std::vector<RoutedCommand> commands = {{{"SET", lease, token, "NX", "PX", Millis(options_.lease)}, lease},
                                               {{"GET", lease}, lease},
                                               {{"EXISTS", keys_.Index(key)}, lease}};
  const bool was_there = client_.state() == BreakerState::kClosed;
  absl::StatusOr<std::vector<RespValue>> replies = client_.Run(commands);
  // A moment of bad luck must not make it two builds.
  if (!replies.ok() && was_there && client_.WaitUntilClosed(options_.patience)) replies = client_.Run(commands);
  absl::MutexLock lock(&mutex_);
  // A batch that was sent twice, over a connection that broke, finds its own lease.
  const bool is_mine = replies.ok() && (*replies)[1].is_string() && (*replies)[1].text == token;
  const bool is_published = replies.ok() && (*replies)[2].integer == 1;
  const bool is_other = replies.ok() && !is_mine && (*replies)[1].is_string();
  if (is_other && !is_published) {
    ++stats_.waited;
    // Not there any more: it has been woken already.
    if (const auto it = watched_.find(key); it != watched_.end()) it->second.is_others = true;
    return Claim::kOthers;
  }
  watched_.erase(key);
  if (is_published) {
    if (is_mine) {
      writes_.Push({0, [this, release = ReleaseCommand(key, token)] { return client_.Run({release}).status(); }});
    }
    return Claim::kPublished;
  }
  if (!is_mine) return Claim::kUnavailable;
  held_[key] = token;
  ++stats_.acquired;
  if (orphans_.erase(key) > 0) ++stats_.taken_over;
  return Claim::kMine;
}

void RedisBuildCoordinator::Release(const Fingerprint& key) {
  std::string token;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = held_.find(key);
    if (it == held_.end()) return;
    token = it->second;
  }
  // Held, and so renewed, until what was put before has been written.
  SharedWriteQueue::Work work;
  work.run = [this, key, token] {
    Forget(key, token);  // first: what is renewed after its release would stay until it expires
    const std::string message(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
    return client_.Run({ReleaseCommand(key, token), {{"PUBLISH", keys_.Channel(), message}, keys_.Lease(key)}})
        .status();
  };
  work.dropped = [this, key, token] { Forget(key, token); };  // it expires
  writes_.Push(std::move(work));
}

RoutedCommand RedisBuildCoordinator::ReleaseCommand(const Fingerprint& key, const std::string& token) const {
  const std::string lease = keys_.Lease(key);
  return {{"EVAL", kReleaseScript, "1", lease, token}, lease};
}

void RedisBuildCoordinator::Forget(const Fingerprint& key, const std::string& token) {
  absl::MutexLock lock(&mutex_);
  const auto it = held_.find(key);
  if (it != held_.end() && it->second == token) held_.erase(it);
}

void RedisBuildCoordinator::Renew() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_ || !held_.empty(); };
  const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
  while (true) {
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_closing), options_.lease / 3)) return;
    }
    RenewAll();
  }
}

void RedisBuildCoordinator::RenewAll() {
  std::vector<std::pair<Fingerprint, std::string>> held;
  {
    absl::MutexLock lock(&mutex_);
    held.assign(held_.begin(), held_.end());
  }
  const std::string millis = Millis(options_.lease);
  for (size_t from = 0; from < held.size(); from += kKeysOfOnePoll) {
    const size_t size = std::min(kKeysOfOnePoll, held.size() - from);
    std::vector<RoutedCommand> commands;
    for (size_t i = from; i < from + size; ++i) {
      const std::string lease = keys_.Lease(held[i].first);
      commands.push_back({{"EVAL", kRenewScript, "1", lease, held[i].second, millis}, lease});
      // Where Redis has come back without it.
      commands.push_back({{"SET", lease, held[i].second, "NX", "PX", millis}, lease});
    }
    const absl::StatusOr<std::vector<RespValue>> replies = client_.Run(commands);
    if (!replies.ok()) return;  // it is tried again
    for (size_t i = 0; i < size; ++i) {
      const auto& [key, token] = held[from + i];
      if ((*replies)[2 * i].integer == 1) continue;
      const RespValue& set_anew = (*replies)[2 * i + 1];
      bool is_released = false;
      {
        absl::MutexLock lock(&mutex_);
        const auto it = held_.find(key);
        is_released = it == held_.end() || it->second != token;
        if (!is_released && set_anew.is_nil()) {
          held_.erase(it);
          ++stats_.lost;
        }
      }
      if (is_released && !set_anew.is_nil())
        writes_.Push({0, [this, release = ReleaseCommand(key, token)] { return client_.Run({release}).status(); }});
    }
  }
}

void RedisBuildCoordinator::WakeWatched(const Fingerprint& key, bool expired) {
  absl::MutexLock lock(&mutex_);
  if (watched_.erase(key) == 0) return;
  if (expired && orphans_.size() < kMostOrphans) orphans_.insert(key);
  to_wake_.push_back(key);
}

void RedisBuildCoordinator::Wake() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || !to_wake_.empty() || !watched_.empty();
  };
  const auto is_urgent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || !to_wake_.empty() || poll_now_;
  };
  absl::Time polled = absl::Now();
  while (true) {
    std::deque<Fingerprint> keys;
    std::function<void(const Fingerprint&)> wake;
    bool poll = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!has_work()) {
        mutex_.Await(absl::Condition(&has_work));
        polled = absl::Now();
      }
      const bool heard = subscriber_ != nullptr && subscriber_->is_subscribed();
      const absl::Time next_poll = polled + (heard ? options_.poll : options_.poll_unsubscribed);
      poll = !mutex_.AwaitWithDeadline(absl::Condition(&is_urgent), next_poll) || poll_now_;
      if (is_closing_) return;
      poll_now_ = false;
      keys.swap(to_wake_);
      wake = wake_;
    }
    for (const Fingerprint& key : keys) {
      if (wake) wake(key);
    }
    if (!poll) continue;
    Poll();
    polled = absl::Now();
  }
}

void RedisBuildCoordinator::Poll() {
  std::vector<Fingerprint> watched;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = watched_.begin(); it != watched_.end();) {
      const auto watch = it++;
      if (watch->second.is_others && absl::Now() - watch->second.since > options_.longest_wait) {
        if (overdue_.size() < kMostOrphans) overdue_.insert(watch->first);
        to_wake_.push_back(watch->first);
        watched_.erase(watch);
      } else if (watch->second.is_others) {
        watched.push_back(watch->first);
      }
    }
  }
  for (size_t from = 0; from < watched.size(); from += kKeysOfOnePoll) {
    const size_t size = std::min(kKeysOfOnePoll, watched.size() - from);
    std::vector<RoutedCommand> commands;
    for (size_t i = from; i < from + size; ++i) {
      const std::string lease = keys_.Lease(watched[i]);
      // The lease first: its holder writes the index before it lets go.
      commands.push_back({{"EXISTS", lease}, lease});
      commands.push_back({{"EXISTS", keys_.Index(watched[i])}, lease});
    }
    const absl::StatusOr<std::vector<RespValue>> replies = client_.Run(commands);
    for (size_t i = 0; i < size; ++i) {
      const bool has_lease = replies.ok() && (*replies)[2 * i].integer == 1;
      const bool is_published = replies.ok() && (*replies)[2 * i + 1].integer == 1;
      if (!has_lease || is_published) WakeWatched(watched[from + i], replies.ok() && !is_published);
    }
  }
}

}  // namespace fuseline::cache
