// Hears what is published on one channel of Redis, on a connection and a thread of its own; connects again whenever
// that is lost. What is published while it is not connected is not heard, so its user polls as well. Pipeline: PUBLISH
// -> RedisSubscriber -> callback. Thread-safety: thread-safe; the callbacks are called on its thread. Tested by
// tests/unit/server/redis_client_test.cc
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/cache/redis_client.h"

namespace fuseline::cache {

class RedisSubscriber {
 public:
  // `client` must outlive it. `on_subscribed`: from now on messages are heard.
  RedisSubscriber(RedisClient& client, std::string channel, std::function<void(std::string_view message)> on_message,
                  std::function<void()> on_subscribed);
  ~RedisSubscriber();
  RedisSubscriber(const RedisSubscriber&) = delete;
  RedisSubscriber& operator=(const RedisSubscriber&) = delete;

  bool is_subscribed() const { return is_subscribed_; }

 private:
  void Listen();
  void Hear(RedisConnection& connection);

  RedisClient& client_;
  const std::string channel_;
  const std::function<void(std::string_view)> on_message_;
  const std::function<void()> on_subscribed_;
  std::atomic<bool> is_subscribed_{false};
  absl::Mutex mutex_;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  RedisConnection* current_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that the thread waits on
  std::thread thread_;
};

}  // namespace fuseline::cache
