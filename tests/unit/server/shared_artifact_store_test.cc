// The shared level against a real Redis server.
#include "server/cache/shared_artifact_store.h"

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/artifact/codec/artifact_codec.h"
#include "gtest/gtest.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/redis_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::KeyOf;
using ::fuseline::testing::RedisProcess;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;
using ::fuseline::testing::TemporaryFolder;

class SharedArtifactStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisProcess::IsInstalled()) GTEST_SKIP() << "no redis-server here";
    redis_ = std::make_unique<RedisProcess>();
    ASSERT_TRUE(redis_->running()) << redis_->log();
    options_.url = redis_->url();
    options_.timeout = absl::Seconds(2);  // for a loaded machine
  }

  // Tried to connect, well or not.
  SharedLevel TryToOpen(std::shared_ptr<RecordSigner> signer = nullptr) {
    absl::StatusOr<SharedLevel> level = OpenSharedLevel(options_, std::move(signer), nullptr);
    EXPECT_OK(level);
    if (!level.ok()) return {};
    EXPECT_TRUE(Eventually([&] { return Stats(*level->store).reason != "not connected yet"; }));
    return *std::move(level);
  }
  SharedLevel Open(std::shared_ptr<RecordSigner> signer = nullptr) {
    SharedLevel level = TryToOpen(std::move(signer));
    EXPECT_TRUE(Eventually([&] { return Stats(*level.store).available; })) << Stats(*level.store).reason;
    return level;
  }
  static LevelStats Stats(const ArtifactStore& store) {
    StoreStats stats;
    store.AddStats(stats);
    return stats.levels.empty() ? LevelStats{} : stats.levels[0];
  }
  static SharedCacheStats SharedStats(const ArtifactStore& store) {
    StoreStats stats;
    store.AddStats(stats);
    return stats.shared.value_or(SharedCacheStats{});
  }
  static bool IsHit(const absl::StatusOr<Lookup>& found) { return found.ok() && found->artifact != nullptr; }
  // The names of keys, one a line.
  std::string Keys(const std::string& pattern) const { return redis_->Cli({"KEYS", pattern}); }
  template <typename Claimed>
  static bool Eventually(Claimed claimed) {
    const absl::Time limit = absl::Now() + absl::Seconds(20);
    while (!claimed() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
    return claimed();
  }

  std::unique_ptr<RedisProcess> redis_;
  SharedCacheOptions options_;
};

TEST_F(SharedArtifactStoreTest, WhatOneServerPutsAnotherGets) {
  const SharedLevel one = Open();
  const SharedLevel other = Open();
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), std::string(20'000, '\0') + "\r\n$-1\r\n");
  EXPECT_FALSE(IsHit(other.store->Get(KeyOf(1))));
  ASSERT_OK(one.store->Put(KeyOf(1), artifact));
  one.store->Drain();
  const auto found = other.store->Get(KeyOf(1));
  ASSERT_TRUE(IsHit(found)) << found.status();
  EXPECT_EQ(SerializeArtifact(*found->artifact), SerializeArtifact(*artifact));
  EXPECT_EQ(found->outcome, Outcome::kSharedHit);
  EXPECT_FALSE(IsHit(other.store->Get(KeyOf(2))));
  EXPECT_EQ(Stats(*other.store).hits, 1);
  EXPECT_EQ(Stats(*other.store).misses, 2);
  EXPECT_EQ(Stats(*other.store).level, "redis");
  EXPECT_TRUE(Stats(*other.store).available);
  ASSERT_OK(other.store->Delete(KeyOf(1)));
  EXPECT_FALSE(IsHit(one.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, EqualKernelsAreKeptOnceAndNotSentAgain) {
  const SharedLevel level = Open();
  const std::string kernel(300'000, 'k');
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), kernel)));
  level.store->Drain();
  EXPECT_EQ(Keys("fuseline:1::b:*").size(), 3 * Keys("fuseline:1::b:*").find('\n') + 2) << "body, kernel and source";
  const auto sent = [this] {
    const std::string info = redis_->Cli({"INFO", "stats"});
    return std::stoll(info.substr(info.find("total_net_input_bytes:") + 22));
  };
  const int64_t before = sent();
  ASSERT_OK(level.store->Put(KeyOf(2), StoredArtifact(KeyOf(2), kernel)));
  level.store->Drain();
  EXPECT_LT(sent() - before, 100'000);
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(2))));
}

TEST_F(SharedArtifactStoreTest, EntryWithAMissingPartIsAMissAndIsDropped) {
  const SharedLevel level = Open();
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  ASSERT_OK(level.store->Put(KeyOf(1), artifact));
  level.store->Drain();
  ASSERT_EQ(redis_->Cli({"DEL", "fuseline:1::b:{" + ComputeDigest("kernel").ToHex() + "}"}), "1");
  EXPECT_FALSE(IsHit(level.store->Get(KeyOf(1))));
  EXPECT_EQ(Keys("fuseline:1::i:*"), "");
  ASSERT_OK(level.store->Put(KeyOf(1), artifact));
  level.store->Drain();
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, CorruptPartsAndRecordsAreDroppedAndCounted) {
  const SharedLevel level = Open();
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  const std::string index = "fuseline:1::i:{" + KeyOf(1).ToHex() + "}";
  const std::string blob = "fuseline:1::b:{" + ComputeDigest("kernel").ToHex() + "}";
  const std::string another = "fuseline:1::i:{" + KeyOf(2).ToHex() + "}";
  ASSERT_OK(level.store->Put(KeyOf(2), StoredArtifact(KeyOf(2), "another")));
  const std::vector<std::vector<std::string>> damages = {
      {"SET", blob, "kerneL"},                                                        // another of the same size
      {"SET", blob, ""},                                                              // empty
      {"SETRANGE", index, "3", "x"},                                                  // a digest of the record
      {"SET", index, "garbage"},                                                      //
      {"EVAL", "redis.call('COPY',KEYS[1],KEYS[2],'REPLACE')", "2", another, index},  // a valid one, of another key
  };
  int corrupt = 0;
  for (const std::vector<std::string>& damage : damages) {
    ASSERT_OK(level.store->Put(KeyOf(1), artifact));
    level.store->Drain();
    ASSERT_TRUE(IsHit(level.store->Get(KeyOf(1)))) << damage[1];
    redis_->Cli(damage);
    EXPECT_FALSE(IsHit(level.store->Get(KeyOf(1)))) << damage[0] << " " << damage[1];
    EXPECT_EQ(Stats(*level.store).corrupt, ++corrupt) << damage[0] << " " << damage[1];
    EXPECT_EQ(redis_->Cli({"EXISTS", index}), "0") << damage[0];
  }
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(2))));
}

TEST_F(SharedArtifactStoreTest, ValuesOfAnotherKindAreAMissAndAnError) {
  const SharedLevel level = Open();
  redis_->Cli({"LPUSH", "fuseline:1::i:{" + KeyOf(1).ToHex() + "}", "x"});
  EXPECT_THAT(level.store->Get(KeyOf(1)), StatusIs(absl::StatusCode::kInternal, "WRONGTYPE"));
  EXPECT_EQ(Stats(*level.store).errors, 1);
  EXPECT_TRUE(Stats(*level.store).available);
}

TEST_F(SharedArtifactStoreTest, EntriesExpireUnlessTheyAreUsed) {
  options_.ttl = absl::Hours(1);
  const SharedLevel level = Open();
  const std::string index = "fuseline:1::i:{" + KeyOf(1).ToHex() + "}";
  const std::string blob = "fuseline:1::b:{" + ComputeDigest("kernel").ToHex() + "}";
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  EXPECT_GT(std::stoi(redis_->Cli({"TTL", index})), 3500);
  EXPECT_GT(std::stoi(redis_->Cli({"TTL", blob})), 3500);
  redis_->Cli({"EXPIRE", index, "600"});
  redis_->Cli({"EXPIRE", blob, "600"});
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
  level.store->Drain();
  EXPECT_GT(std::stoi(redis_->Cli({"TTL", index})), 3500);
  EXPECT_GT(std::stoi(redis_->Cli({"TTL", blob})), 3500);
  options_.ttl = absl::ZeroDuration();
  const SharedLevel forever = Open();
  ASSERT_OK(forever.store->Put(KeyOf(2), StoredArtifact(KeyOf(2), "kept")));
  forever.store->Drain();
  EXPECT_EQ(redis_->Cli({"TTL", "fuseline:1::i:{" + KeyOf(2).ToHex() + "}"}), "-1");
}

TEST_F(SharedArtifactStoreTest, FullRedisCostsTheWriteAlone) {
  const SharedLevel level = Open();
  redis_->Cli({"CONFIG", "SET", "maxmemory", "1"});
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  EXPECT_EQ(SharedStats(*level.store).queue_drops, 1);
  EXPECT_TRUE(Stats(*level.store).available);
  EXPECT_EQ(level.coordinator->TryClaim(KeyOf(1)), Claim::kUnavailable);
  redis_->Cli({"CONFIG", "SET", "maxmemory", "0"});
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, RedisThatHangsCostsOneTimeLimitAndIsFoundAgain) {
  options_.timeout = absl::Milliseconds(200);
  const SharedLevel level = Open();
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  ASSERT_TRUE(IsHit(level.store->Get(KeyOf(1))));
  redis_->Pause();
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(IsHit(level.store->Get(KeyOf(1))));
  // Not 100 of them.
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_FALSE(Stats(*level.store).available);
  EXPECT_NE(SharedStats(*level.store).breaker_state, 0);
  EXPECT_GE(SharedStats(*level.store).breaker_opened, 1);
  EXPECT_EQ(level.coordinator->TryClaim(KeyOf(9)), Claim::kUnavailable);
  redis_->Resume();
  EXPECT_TRUE(Eventually([&] { return Stats(*level.store).available; }));
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, WritesWaitForARedisThatIsStartedAgainAndAreBounded) {
  options_.queue_bytes = 50'000;
  const SharedLevel level = Open();
  ASSERT_FALSE(IsHit(level.store->Get(KeyOf(1))));
  redis_->Kill();
  ASSERT_FALSE(IsHit(level.store->Get(KeyOf(1))));  // now it knows
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), std::string(20'000, 'a'))));
  ASSERT_OK(level.store->Put(KeyOf(2), StoredArtifact(KeyOf(2), std::string(40'000, 'b'))));
  EXPECT_EQ(SharedStats(*level.store).queue_drops, 1);
  EXPECT_GT(SharedStats(*level.store).queue_bytes, 20'000);
  EXPECT_LT(SharedStats(*level.store).queue_bytes, 50'000);
  redis_->Start();
  EXPECT_TRUE(Eventually([&] { return IsHit(level.store->Get(KeyOf(1))); }));
  EXPECT_FALSE(IsHit(level.store->Get(KeyOf(2))));
  EXPECT_TRUE(Eventually([&] { return SharedStats(*level.store).queue_bytes == 0; }));
}

TEST_F(SharedArtifactStoreTest, StartsWithoutRedisAndFindsItLater) {
  redis_->Kill();
  const SharedLevel level = TryToOpen();
  EXPECT_FALSE(Stats(*level.store).available);
  EXPECT_NE(Stats(*level.store).reason, "");
  EXPECT_THAT(level.store->Get(KeyOf(1)), StatusIs(absl::StatusCode::kUnavailable, ""));
  redis_->Start();
  EXPECT_TRUE(Eventually([&] { return Stats(*level.store).available; }));
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, EmptyRedisGetsWhatAServersDiskHas) {
  const TemporaryFolder folder;
  auto disk = MakeRocksDbStore(folder.path(), {});
  ASSERT_OK(disk);
  ASSERT_OK((*disk)->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  SharedLevel one = Open();
  const auto levels = MakeLazilyFilledStore(*std::move(disk), std::move(one.store));
  const SharedLevel other = Open();
  ASSERT_FALSE(IsHit(other.store->Get(KeyOf(1))));
  const auto found = levels->Get(KeyOf(1));
  ASSERT_TRUE(IsHit(found));
  EXPECT_EQ(found->outcome, Outcome::kDiskHit);
  levels->Drain();
  EXPECT_TRUE(IsHit(other.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, SharedHitFillsTheDiskInTheBackground) {
  const TemporaryFolder folder;
  const SharedLevel other = Open();
  ASSERT_OK(other.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  other.store->Drain();
  auto disk = MakeRocksDbStore(folder.path(), {});
  ASSERT_OK(disk);
  ArtifactStore& on_disk = **disk;
  SharedLevel one = Open();
  const auto levels = MakeLazilyFilledStore(*std::move(disk), std::move(one.store));
  const auto found = levels->Get(KeyOf(1));
  ASSERT_TRUE(IsHit(found));
  EXPECT_EQ(found->outcome, Outcome::kSharedHit);
  EXPECT_TRUE(Eventually([&] { return IsHit(on_disk.Get(KeyOf(1))); }));
}

TEST_F(SharedArtifactStoreTest, NamespacesDoNotSeeEachOther) {
  const auto signer = [](const std::string& name_space) {
    RecordSigner::Options options;
    options.name_space = name_space;
    auto made = RecordSigner::Create(options);
    EXPECT_OK(made);
    return *made;
  };
  const SharedLevel one = Open(signer("team {a}"));
  const SharedLevel other = Open(signer("team {b}"));
  ASSERT_OK(one.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  one.store->Drain();
  EXPECT_TRUE(IsHit(one.store->Get(KeyOf(1))));
  EXPECT_FALSE(IsHit(other.store->Get(KeyOf(1))));
  EXPECT_NE(Keys("fuseline:1:team%20%7Ba%7D:i:*"), "");
}

TEST_F(SharedArtifactStoreTest, UnsignedAndForeignEntriesAreDroppedWhereKeysAreConfigured) {
  const TemporaryFolder folder;
  const auto signer = [&](const std::string& key) {
    RecordSigner::Options options;
    options.key_file = folder.Write("keys", "main " + key + "\n");
    std::filesystem::permissions(options.key_file, std::filesystem::perms::owner_read);
    auto made = RecordSigner::Create(options);
    EXPECT_OK(made);
    std::filesystem::remove(options.key_file);
    return made.ok() ? *made : nullptr;
  };
  const SharedLevel signs = Open(signer(std::string(64, '1')));
  const SharedLevel unsigned_level = Open();
  const SharedLevel other_key = Open(signer(std::string(64, '2')));
  for (const SharedLevel* from : {&unsigned_level, &other_key}) {
    ASSERT_OK(from->store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
    from->store->Drain();
    EXPECT_FALSE(IsHit(signs.store->Get(KeyOf(1))));
    EXPECT_EQ(Keys("fuseline:1::i:*"), "");
  }
  EXPECT_EQ(Stats(*signs.store).corrupt, 2);
  ASSERT_OK(signs.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  signs.store->Drain();
  EXPECT_TRUE(IsHit(signs.store->Get(KeyOf(1))));
}

TEST_F(SharedArtifactStoreTest, PasswordsAndDatabasesAreUsed) {
  const TemporaryFolder folder;
  redis_->Cli({"CONFIG", "SET", "requirepass", "open sesame"});
  {
    const SharedLevel level = TryToOpen();
    EXPECT_FALSE(Stats(*level.store).available);
    EXPECT_NE(Stats(*level.store).reason.find("NOAUTH"), std::string::npos) << Stats(*level.store).reason;
  }
  options_.password_file = folder.Write("password", "wrong\n");
  {
    const SharedLevel level = TryToOpen();
    EXPECT_NE(Stats(*level.store).reason.find("WRONGPASS"), std::string::npos) << Stats(*level.store).reason;
  }
  options_.password_file = folder.Write("password", "open sesame\n");
  options_.user = "default";
  options_.url += "/5";
  const SharedLevel level = Open();
  ASSERT_OK(level.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  level.store->Drain();
  EXPECT_TRUE(IsHit(level.store->Get(KeyOf(1))));
  const std::vector<std::string> login = {"--no-auth-warning", "-a", "open sesame"};
  EXPECT_EQ(redis_->Cli({"DBSIZE"}, login), "0");
  std::vector<std::string> fifth = login;
  fifth.insert(fifth.end(), {"-n", "5"});
  EXPECT_EQ(redis_->Cli({"DBSIZE"}, fifth), "4");
}

// Those that docs/config.md names.
TEST_F(SharedArtifactStoreTest, FewPermissionsAreEnough) {
  const TemporaryFolder folder;
  const std::vector<std::string> permissions = {"+get",  "+set",  "+del",     "+exists",    "+pexpire",
                                                "+pttl", "+eval", "+publish", "+subscribe", "+ping"};
  std::vector<std::string> user = {"ACL",   "SETUSER",       "servers",       "on",
                                   ">pass", "~fuseline:1:*", "&fuseline:1:*", "-@all"};
  user.insert(user.end(), permissions.begin(), permissions.end());
  ASSERT_EQ(redis_->Cli(user), "OK");
  options_.user = "servers";
  options_.password_file = folder.Write("password", "pass\n");
  const SharedLevel one = Open();
  const SharedLevel other = Open();
  ASSERT_EQ(one.coordinator->TryClaim(KeyOf(1)), Claim::kMine);
  ASSERT_EQ(other.coordinator->TryClaim(KeyOf(1)), Claim::kOthers);
  ASSERT_OK(one.store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")));
  one.coordinator->Release(KeyOf(1));
  one.store->Drain();
  EXPECT_TRUE(IsHit(other.store->Get(KeyOf(1))));
  EXPECT_TRUE(Eventually([&] { return redis_->Cli({"PUBSUB", "CHANNELS"}) == "fuseline:1::built"; }));
  redis_->Cli({"SET", "fuseline:1::b:{" + ComputeDigest("kernel").ToHex() + "}", "bad"});
  EXPECT_FALSE(IsHit(other.store->Get(KeyOf(1))));
  ASSERT_OK(other.store->Delete(KeyOf(1)));
  EXPECT_EQ(SharedStats(*one.store).breaker_opened + SharedStats(*other.store).breaker_opened, 0);
  EXPECT_EQ(Stats(*one.store).errors + Stats(*other.store).errors, 0);
}

TEST(SharedLevelOptionsTest, WrongOptionsAreNamed) {
  SharedCacheOptions options;
  options.url = "nonsense";
  EXPECT_THAT(OpenSharedLevel(options, nullptr, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "shared_cache 'nonsense'"));
  options.url = "redis://127.0.0.1:1";
  options.password_file = "/no/such/file";
  EXPECT_THAT(OpenSharedLevel(options, nullptr, nullptr).status(),
              StatusIs(absl::StatusCode::kNotFound, "shared_cache_password_file"));
  options.password_file.clear();
  options.url = "rediss://127.0.0.1:1";
  options.ca_file = "/no/such/file";
  EXPECT_THAT(OpenSharedLevel(options, nullptr, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "shared_cache_ca_file"));
}

}  // namespace
}  // namespace fuseline::cache
