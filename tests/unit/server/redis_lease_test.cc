// Leases against a real Redis server: several coordinators stand for several servers.
#include "server/cache/redis_lease.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/redis_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::KeyOf;
using ::fuseline::testing::RedisProcess;

class RedisLeaseTest : public ::testing::Test {
 protected:
  // What a server has of Redis.
  struct Server {
    std::unique_ptr<RedisClient> client;
    std::unique_ptr<RedisBuildCoordinator> coordinator;
    std::unique_ptr<SharedWriteQueue> writes;
    absl::Mutex mutex;
    std::vector<Fingerprint> woken ABSL_GUARDED_BY(mutex);
    ~Server() {
      if (coordinator != nullptr) coordinator->Stop();
      if (writes != nullptr) writes->Close();
    }
    bool WaitForWake(const Fingerprint& key, absl::Duration limit = absl::Seconds(20)) {
      const auto has = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
        return std::find(woken.begin(), woken.end(), key) != woken.end();
      };
      absl::MutexLock lock(&mutex);
      return mutex.AwaitWithTimeout(absl::Condition(&has), limit);
    }
  };

  void SetUp() override {
    if (!RedisProcess::IsInstalled()) GTEST_SKIP() << "no redis-server here";
    redis_ = std::make_unique<RedisProcess>();
    ASSERT_TRUE(redis_->running()) << redis_->log();
  }

  std::unique_ptr<Server> Start(const RedisLeaseOptions& options = {}) {
    auto server = std::make_unique<Server>();
    RedisClientOptions client;
    client.address = *ParseRedisAddress(redis_->url());
    client.timeout = absl::Seconds(2);
    auto created = RedisClient::Create(client);
    EXPECT_OK(created);
    server->client = *std::move(created);
    EXPECT_TRUE(server->client->WaitUntilClosed(absl::Seconds(30)));
    server->writes = std::make_unique<SharedWriteQueue>(*server->client, 1 << 20);
    server->coordinator =
        std::make_unique<RedisBuildCoordinator>(*server->client, *server->writes, SharedKeys(""), options);
    server->coordinator->OnWake([s = server.get()](const Fingerprint& key) {
      absl::MutexLock lock(&s->mutex);
      s->woken.push_back(key);
    });
    return server;
  }
  // As a builder does when it is done.
  void Publish(Server& server, const Fingerprint& key) {
    const std::string index = SharedKeys("").Index(key);
    server.writes->Push({1, [&server, index] { return server.client->Run({{{"SET", index, "x"}, index}}).status(); }});
    server.coordinator->Release(key);
  }
  static std::string LeaseOf(const Fingerprint& key) { return SharedKeys("").Lease(key); }

  std::unique_ptr<RedisProcess> redis_;
};

TEST_F(RedisLeaseTest, OneBuildsAndTheOthersHearOfIt) {
  const auto one = Start();
  const auto other = Start();
  EXPECT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(2)), Claim::kMine);
  Publish(*one, KeyOf(1));
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kPublished);
  other->writes->Flush(absl::Seconds(10));
  EXPECT_EQ(redis_->Cli({"EXISTS", LeaseOf(KeyOf(1))}), "0");
  EXPECT_EQ(one->coordinator->stats().acquired, 1);
  EXPECT_EQ(one->coordinator->stats().held, 0);
  EXPECT_EQ(other->coordinator->stats().waited, 1);
  EXPECT_EQ(other->coordinator->stats().taken_over, 0);
}

TEST_F(RedisLeaseTest, MessagesAreHeardLongBeforeTheNextPoll) {
  RedisLeaseOptions options;
  options.poll = options.poll_unsubscribed = absl::Hours(1);
  const auto one = Start(options);
  const auto other = Start(options);
  // Heard only once it listens.
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (redis_->Cli({"PUBSUB", "NUMSUB", SharedKeys("").Channel()}).find("2") == std::string::npos &&
         absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  Publish(*one, KeyOf(1));
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
}

TEST_F(RedisLeaseTest, PollingFindsWhatWasNotHeard) {
  RedisLeaseOptions deaf;
  deaf.subscribe = false;
  deaf.poll_unsubscribed = absl::Milliseconds(20);
  const auto one = Start();
  const auto other = Start(deaf);
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  EXPECT_FALSE(other->WaitForWake(KeyOf(1), absl::Milliseconds(100))) << "it is still being built";
  Publish(*one, KeyOf(1));
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kPublished);
}

TEST_F(RedisLeaseTest, BuildThatFailsIsTriedByTheNext) {
  const auto one = Start();
  const auto other = Start();
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  one->coordinator->Release(KeyOf(1));
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
}

TEST_F(RedisLeaseTest, LeaseIsRenewedWhileItsHolderLivesAndTakenOverWhenItDies) {
  RedisLeaseOptions options;
  options.lease = absl::Seconds(2);
  options.poll = absl::Milliseconds(50);
  auto one = Start(options);
  const auto other = Start(options);
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  EXPECT_FALSE(other->WaitForWake(KeyOf(1), absl::Seconds(3)));
  one.reset();  // says nothing to anybody
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  EXPECT_EQ(other->coordinator->stats().taken_over, 1);
}

TEST_F(RedisLeaseTest, LeaseOfAnotherIsNeverRemoved) {
  RedisLeaseOptions options;
  options.lease = absl::Milliseconds(300);
  const auto one = Start(options);
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  redis_->Cli({"SET", LeaseOf(KeyOf(1)), "another's"});
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (one->coordinator->stats().lost == 0 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(one->coordinator->stats().lost, 1);
  EXPECT_EQ(one->coordinator->stats().held, 0);
  one->coordinator->Release(KeyOf(1));
  one->writes->Flush(absl::Seconds(10));
  EXPECT_EQ(redis_->Cli({"GET", LeaseOf(KeyOf(1))}), "another's");
}

TEST_F(RedisLeaseTest, LeaseThatNeverEndsIsNotWaitedForForEver) {
  RedisLeaseOptions options;
  options.longest_wait = absl::Milliseconds(200);
  options.poll = options.poll_unsubscribed = absl::Milliseconds(20);
  const auto one = Start(options);
  redis_->Cli({"SET", LeaseOf(KeyOf(1)), "nobody's"});
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  EXPECT_TRUE(one->WaitForWake(KeyOf(1)));
  EXPECT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kUnavailable) << "it is built, whoever else builds it";
  EXPECT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
}

TEST_F(RedisLeaseTest, OutageWakesThoseWhoWaitAndLeavesNobodyToAsk) {
  const auto one = Start();
  const auto other = Start();
  ASSERT_EQ(one->coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  redis_->Kill();
  EXPECT_TRUE(other->WaitForWake(KeyOf(1)));
  EXPECT_EQ(other->coordinator->TryClaim(KeyOf(1)), Claim::kUnavailable);
  // It comes back empty: the lease is set anew, not lost.
  redis_->Start();
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (redis_->Cli({"EXISTS", LeaseOf(KeyOf(1))}) != "1" && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(redis_->Cli({"EXISTS", LeaseOf(KeyOf(1))}), "1");
  EXPECT_EQ(one->coordinator->stats().lost, 0);
}

}  // namespace
}  // namespace fuseline::cache
