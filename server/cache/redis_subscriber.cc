#include "server/cache/redis_subscriber.h"

#include <memory>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fuseline::cache {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(500);
constexpr absl::Duration kConnectLimit = absl::Seconds(1);
// A silent server is asked for a sign of life, and left when that does not come.
constexpr absl::Duration kSilence = absl::Seconds(2);

}  // namespace

RedisSubscriber::RedisSubscriber(RedisClient& client, std::string channel,
                                 std::function<void(std::string_view)> on_message, std::function<void()> on_subscribed)
    : client_(client),
      channel_(std::move(channel)),
      on_message_(std::move(on_message)),
      on_subscribed_(std::move(on_subscribed)) {
  try {
    thread_ = std::thread([this] { Listen(); });
  } catch (const std::system_error&) {
    // Without a thread nothing is heard: its user polls.
  }
}

RedisSubscriber::~RedisSubscriber() {
  {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
    if (current_ != nullptr) current_->Shutdown();
  }
  if (thread_.joinable()) thread_.join();
}

void RedisSubscriber::Listen() {
  const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
  while (true) {
    if (client_.WaitUntilClosed(kRetry)) {
      absl::StatusOr<std::unique_ptr<RedisConnection>> connection = client_.Connect(kConnectLimit);
      if (connection.ok()) {
        {
          absl::MutexLock lock(&mutex_);
          if (is_closing_) return;
          current_ = connection->get();
        }
        Hear(**connection);
        absl::MutexLock lock(&mutex_);
        current_ = nullptr;
        is_subscribed_ = false;
      }
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&is_closing), kRetry / 5)) return;
  }
}

// Until the connection is lost, or the client has lost its own, which may be the end of this server as a master.
void RedisSubscriber::Hear(RedisConnection& connection) {
  const int64_t times_opened = client_.times_opened();
  if (!connection.Send({{"SUBSCRIBE", channel_}}, absl::Now() + kConnectLimit).ok()) return;
  bool is_asked = false;
  while (client_.times_opened() == times_opened) {
    const absl::StatusOr<RespValue> heard = connection.Receive(absl::Now() + kSilence);
    if (!heard.ok()) {
      if (!absl::IsDeadlineExceeded(heard.status()) || is_asked) return;
      if (!connection.Send({{"PING"}}, absl::Now() + kSilence).ok()) return;
      is_asked = true;
      continue;
    }
    is_asked = false;
    if (heard->is_error()) return;
    if (heard->elements.size() < 3) continue;  // the answer to PING
    if (heard->elements[0].text == "subscribe") {
      is_subscribed_ = true;
      on_subscribed_();
    } else if (heard->elements[0].text == "message") {
      on_message_(heard->elements[2].text);
    }
  }
}

}  // namespace fuseline::cache
