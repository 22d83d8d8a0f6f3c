#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/fake_artifact_store.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::FakeArtifactStore;
using ::fuseline::testing::FakeStoreState;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

class SingleFlightArtifactStoreTest : public ::testing::Test {
 protected:
  FakeStoreState inner_;
  std::unique_ptr<ArtifactStore> store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_));

  int64_t Joins() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.joins;
  }
};

TEST_F(SingleFlightArtifactStoreTest, ManyThreadsThatAskForOneKeyShareOneBuild) {
  constexpr int kThreads = 64;
  std::atomic<int> builds{0};
  std::atomic<int> joined{0};
  std::atomic<int> missed{0};
  std::atomic<int> hits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto found = store_->GetOrBuild(KeyOf(1), [&](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
        ++builds;
        absl::SleepFor(absl::Milliseconds(50));
        return StoredArtifact(KeyOf(1), "kernel");
      });
      if (!found.ok() || found->artifact == nullptr) return;
      joined += found->outcome == Outcome::kJoined;
      missed += found->outcome == Outcome::kMiss;
      hits += found->outcome == Outcome::kDiskHit;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(missed, 1);
  EXPECT_EQ(joined + missed + hits, kThreads);
  EXPECT_EQ(Joins(), joined);
}

TEST_F(SingleFlightArtifactStoreTest, DifferentKeysAreBuiltAtTheSameTime) {
  absl::Notification first_building;
  absl::Notification second_done;
  std::thread first([&] {
    const auto found = store_->GetOrBuild(KeyOf(1), [&](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
      first_building.Notify();
      second_done.WaitForNotification();
      return StoredArtifact(KeyOf(1), "a");
    });
    EXPECT_THAT(found, IsOk());
  });
  first_building.WaitForNotification();
  EXPECT_THAT(
      store_->GetOrBuild(
          KeyOf(2), [](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(StoredArtifact(KeyOf(2), "b")); }),
      IsOk());
  second_done.Notify();
  first.join();
}

// Runs one leader whose build ends with `leader_status`, and a follower that asks while it is under way.
struct Followed {
  absl::Status leader;
  absl::StatusOr<Lookup> follower = absl::UnknownError("not run");
  int follower_builds = 0;
};
Followed RunLeaderAndFollower(ArtifactStore& store, FakeStoreState& inner, const absl::Status& leader_status) {
  Followed result;
  absl::Notification leading;
  absl::Notification go_on;
  std::thread leader([&] {
    result.leader = store
                        .GetOrBuild(KeyOf(1),
                                    [&](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
                                      leading.Notify();
                                      go_on.WaitForNotification();
                                      return leader_status;
                                    })
                        .status();
  });
  leading.WaitForNotification();
  int gets = 0;
  {
    absl::MutexLock lock(&inner.mutex);
    gets = inner.gets;
  }
  std::thread follower([&] {
    result.follower = store.GetOrBuild(KeyOf(1), [&](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
      ++result.follower_builds;
      return StoredArtifact(KeyOf(1), "kernel");
    });
  });
  // The follower has looked, and is about to wait.
  while (true) {
    absl::MutexLock lock(&inner.mutex);
    if (inner.gets > gets) break;
  }
  absl::SleepFor(absl::Milliseconds(50));
  go_on.Notify();
  leader.join();
  follower.join();
  return result;
}

TEST_F(SingleFlightArtifactStoreTest, ErrorIsSharedWithThoseWhoWaitAndNotKept) {
  const Followed result = RunLeaderAndFollower(*store_, inner_, absl::InternalError("compiler"));
  EXPECT_THAT(result.leader, StatusIs(absl::StatusCode::kInternal, "compiler"));
  EXPECT_THAT(result.follower, StatusIs(absl::StatusCode::kInternal, "compiler"));
  EXPECT_EQ(result.follower_builds, 0);
  EXPECT_THAT(store_->GetOrBuild(
                  KeyOf(1),
                  [](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(StoredArtifact(KeyOf(1), "kernel")); }),
              IsOk());
}

TEST_F(SingleFlightArtifactStoreTest, CancelledLeaderIsReplacedByAFollower) {
  for (const absl::Status& status : {absl::CancelledError("left"), absl::DeadlineExceededError("late")}) {
    inner_.entries.clear();
    const Followed result = RunLeaderAndFollower(*store_, inner_, status);
    EXPECT_EQ(result.leader.code(), status.code());
    ASSERT_THAT(result.follower, IsOk());
    EXPECT_NE(result.follower->artifact, nullptr);
    EXPECT_EQ(result.follower_builds, 1);
  }
}

}  // namespace
}  // namespace fuseline::cache
