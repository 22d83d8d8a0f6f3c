#include <atomic>
#include <deque>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
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

  StoreStats Stats() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats;
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
  EXPECT_EQ(Stats().joins, joined);
  EXPECT_EQ(Stats().builds, 1);
}

TEST_F(SingleFlightArtifactStoreTest, DifferentKeysAreBuiltAtTheSameTime) {
  BuildPoolOptions options;
  options.threads = 2;
  store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
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

// A build that reports its beginning, then waits until it may end or is told to stop.
class SlowBuild {
 public:
  Builder builder(const Fingerprint& key) {
    return [this, key](const BuildControl& control) -> absl::StatusOr<ArtifactPtr> {
      ++begun_;
      begin_.Notify();
      while (!go_on_) {
        if (absl::Status status = control.stop(); !status.ok()) {
          stopped_.Notify();
          return status;
        }
        absl::SleepFor(absl::Milliseconds(1));
      }
      return status_.ok() ? absl::StatusOr<ArtifactPtr>(StoredArtifact(key, "kernel")) : status_;
    };
  }
  void WaitUntilBegun() { begin_.WaitForNotification(); }
  void WaitUntilStopped() { stopped_.WaitForNotification(); }
  void End(const absl::Status& status = absl::OkStatus()) {
    status_ = status;
    go_on_ = true;
  }
  int begun() const { return begun_; }

 private:
  absl::Notification begin_;
  absl::Notification stopped_;
  absl::Status status_;
  std::atomic<bool> go_on_{false};
  std::atomic<int> begun_{0};
};

// Asks on a thread of its own, and leaves when told to.
class Caller {
 public:
  explicit Caller(const std::function<absl::StatusOr<Lookup>(const WaitOptions&)>& ask) {
    WaitOptions wait;
    wait.stop = [this] { return has_left_ ? absl::CancelledError("the client left") : absl::OkStatus(); };
    thread_ = std::thread([this, ask, wait] { status_ = ask(wait).status(); });
  }
  // What it was told.
  absl::Status Leave() {
    has_left_ = true;
    thread_.join();
    return status_;
  }

 private:
  std::atomic<bool> has_left_{false};
  absl::Status status_;
  std::thread thread_;
};

Builder Quick(const Fingerprint& key) {
  return [key](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(StoredArtifact(key, "kernel")); };
}

// Waits until `count` requests have joined a build of another's.
void WaitForJoins(const ArtifactStore& store, int64_t count) {
  StoreStats stats;
  do {
    absl::SleepFor(absl::Milliseconds(1));
    stats = {};
    store.AddStats(stats);
  } while (stats.joins < count);
}

TEST_F(SingleFlightArtifactStoreTest, FiftyKeysFromSixtyFourThreadsAreFiftyBuilds) {
  constexpr int kKeys = 50;
  constexpr int kThreads = 64;
  BuildPoolOptions options;
  options.threads = 4;
  store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < kKeys; ++k) {
        const Fingerprint key = KeyOf((k * 7 + t) % kKeys);
        const auto found = store_->GetOrBuild(key, [key](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
          absl::SleepFor(absl::Milliseconds(1));
          return StoredArtifact(key, "kernel");
        });
        if (!found.ok() || found->artifact == nullptr || found->artifact->fingerprint != key) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Stats().builds, kKeys);
  EXPECT_EQ(Stats().build_errors, 0);
  EXPECT_EQ(inner_.puts, kKeys);
}

TEST_F(SingleFlightArtifactStoreTest, ArtifactIsKeptBeforeAnybodyIsGivenIt) {
  for (int n = 1; n <= 50; ++n) {
    ASSERT_THAT(store_->GetOrBuild(KeyOf(n), Quick(KeyOf(n))), IsOk());
    absl::MutexLock lock(&inner_.mutex);
    ASSERT_EQ(inner_.puts, n);
  }
}

TEST_F(SingleFlightArtifactStoreTest, ErrorIsSharedWithThoseWhoWaitAndNotKept) {
  SlowBuild slow;
  absl::Status leader, follower;
  std::thread first([&] { leader = store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1))).status(); });
  slow.WaitUntilBegun();
  std::thread second([&] { follower = store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1))).status(); });
  WaitForJoins(*store_, 1);
  slow.End(absl::InternalError("compiler"));
  first.join();
  second.join();
  EXPECT_THAT(leader, StatusIs(absl::StatusCode::kInternal, "compiler"));
  EXPECT_THAT(follower, StatusIs(absl::StatusCode::kInternal, "compiler"));
  EXPECT_EQ(slow.begun(), 1);
  EXPECT_EQ(Stats().build_errors, 1);
  const auto again = store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1)));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->outcome, Outcome::kMiss);
  EXPECT_EQ(Stats().builds, 1);
}

TEST_F(SingleFlightArtifactStoreTest, CallerLeavesAtItsDeadlineAndTheBuildGoesOnForTheOthers) {
  SlowBuild slow;
  std::thread patient([&] {
    const auto found = store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)));
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->outcome, Outcome::kMiss);
    EXPECT_GT(found->build_time, absl::Milliseconds(50));
  });
  slow.WaitUntilBegun();
  WaitOptions hasty;
  hasty.deadline = absl::Now() + absl::Milliseconds(50);
  const absl::Time start = absl::Now();
  EXPECT_THAT(store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1)), hasty),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  slow.End();
  patient.join();
  EXPECT_EQ(Stats().builds, 1);
}

TEST_F(SingleFlightArtifactStoreTest, LeaderThatLeftFindsItsBuildByAskingAgain) {
  SlowBuild slow;
  Caller leader([&](const WaitOptions& wait) { return store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)), wait); });
  slow.WaitUntilBegun();
  EXPECT_THAT(leader.Leave(), StatusIs(absl::StatusCode::kCancelled, "the client left"));
  std::thread again([&] {
    const auto found = store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)));
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->outcome, Outcome::kJoined);
  });
  WaitForJoins(*store_, 1);
  slow.End();
  again.join();
  EXPECT_EQ(slow.begun(), 1);
}

TEST_F(SingleFlightArtifactStoreTest, BuildThatNobodyWaitsForStopsAfterTheLingerAndIsBegunAnew) {
  BuildPoolOptions options;
  options.linger = absl::Milliseconds(20);
  store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
  SlowBuild slow;
  Caller caller([&](const WaitOptions& wait) { return store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)), wait); });
  slow.WaitUntilBegun();
  EXPECT_THAT(caller.Leave(), StatusIs(absl::StatusCode::kCancelled, ""));
  slow.WaitUntilStopped();
  const auto again = store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1)));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->outcome, Outcome::kMiss);
}

TEST_F(SingleFlightArtifactStoreTest, QueuedBuildThatNobodyWantsNeverBegins) {
  BuildPoolOptions options;
  options.linger = absl::ZeroDuration();
  store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
  SlowBuild slow, unwanted;
  std::thread first([&] { EXPECT_THAT(store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1))), IsOk()); });
  slow.WaitUntilBegun();
  WaitOptions hasty;
  hasty.deadline = absl::Now() + absl::Milliseconds(20);
  EXPECT_THAT(store_->GetOrBuild(KeyOf(2), unwanted.builder(KeyOf(2)), hasty),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_EQ(Stats().builds_waiting, 1);
  slow.End();
  first.join();
  EXPECT_THAT(store_->GetOrBuild(KeyOf(3), Quick(KeyOf(3))), IsOk());  // behind it in the queue
  EXPECT_EQ(unwanted.begun(), 0);
  EXPECT_EQ(Stats().builds_waiting, 0);
}

TEST_F(SingleFlightArtifactStoreTest, FullQueueRefusesAtOnce) {
  BuildPoolOptions options;
  options.max_waiting = 2;
  options.linger = absl::ZeroDuration();
  store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
  SlowBuild slow;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_THAT(store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1))), IsOk()); });
  slow.WaitUntilBegun();
  WaitOptions hasty;
  hasty.deadline = absl::Now() + absl::Milliseconds(30);
  EXPECT_THAT(store_->GetOrBuild(KeyOf(4), Quick(KeyOf(4)), hasty), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  for (int n : {2, 3}) {
    absl::Notification queued;
    WaitOptions wait;
    wait.on_stage = [&](BuildStage stage) {
      if (stage == BuildStage::kQueued) queued.Notify();
    };
    threads.emplace_back([&, n, wait] { EXPECT_THAT(store_->GetOrBuild(KeyOf(n), Quick(KeyOf(n)), wait), IsOk()); });
    queued.WaitForNotification();
  }
  // The one that nobody waits for has made room for the second.
  const absl::Status refused = store_->GetOrBuild(KeyOf(5), Quick(KeyOf(5))).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "2 builds wait"));
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kQueueFull);
  EXPECT_EQ(GetErrorReason(store_->BuildAnew(Quick(KeyOf(5))).status()), ErrorReason::kQueueFull);
  slow.End();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(store_->GetOrBuild(KeyOf(5), Quick(KeyOf(5))), IsOk());
}

TEST_F(SingleFlightArtifactStoreTest, CallersHearTheStagesInOrderOnTheirOwnThreads) {
  const auto listen = [](std::vector<BuildStage>& heard) {
    WaitOptions wait;
    wait.on_stage = [&heard, thread = std::this_thread::get_id()](BuildStage stage) {
      EXPECT_EQ(std::this_thread::get_id(), thread);
      heard.push_back(stage);
    };
    return wait;
  };
  const std::vector<BuildStage> all = {BuildStage::kCacheCheck, BuildStage::kQueued, BuildStage::kBuilding,
                                       BuildStage::kDone};
  SlowBuild slow;
  std::vector<BuildStage> leader, follower, hit, failed;
  std::thread first([&] { EXPECT_THAT(store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)), listen(leader)), IsOk()); });
  slow.WaitUntilBegun();
  std::thread second(
      [&] { EXPECT_THAT(store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)), listen(follower)), IsOk()); });
  WaitForJoins(*store_, 1);
  slow.End();
  first.join();
  second.join();
  EXPECT_EQ(leader, all);
  EXPECT_EQ(follower, all);
  EXPECT_THAT(store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1)), listen(hit)), IsOk());
  EXPECT_EQ(hit, (std::vector<BuildStage>{BuildStage::kCacheCheck, BuildStage::kDone}));
  const Builder broken = [](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(absl::InternalError("bad")); };
  EXPECT_FALSE(store_->GetOrBuild(KeyOf(2), broken, listen(failed)).ok());
  EXPECT_EQ(failed, std::vector<BuildStage>(all.begin(), all.end() - 1));
}

TEST_F(SingleFlightArtifactStoreTest, BuildAnewNeitherLooksNorKeepsNorIsJoined) {
  ASSERT_THAT(store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1))), IsOk());
  const auto built = store_->BuildAnew(Quick(KeyOf(1)));
  ASSERT_THAT(built, IsOk());
  EXPECT_EQ(built->outcome, Outcome::kMiss);
  EXPECT_EQ(inner_.puts, 1);
  EXPECT_EQ(Stats().builds, 2);
  // Nobody can ask for it again, so it does not outlive its caller.
  SlowBuild slow;
  Caller caller([&](const WaitOptions& wait) { return store_->BuildAnew(slow.builder(KeyOf(1)), wait); });
  slow.WaitUntilBegun();
  EXPECT_THAT(caller.Leave(), StatusIs(absl::StatusCode::kCancelled, ""));
  slow.WaitUntilStopped();
}

TEST_F(SingleFlightArtifactStoreTest, BuilderThatThrowsFailsItsRequestAlone) {
  const Builder thrower = [](const BuildControl&) -> absl::StatusOr<ArtifactPtr> { throw std::bad_alloc(); };
  EXPECT_THAT(store_->GetOrBuild(KeyOf(1), thrower), StatusIs(absl::StatusCode::kInternal, "bad_alloc"));
  EXPECT_THAT(store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1))), IsOk());
}

TEST_F(SingleFlightArtifactStoreTest, DrainLetsWantedBuildsEndAndRefusesNewOnes) {
  SlowBuild slow;
  std::thread waiting([&] { EXPECT_THAT(store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1))), IsOk()); });
  slow.WaitUntilBegun();
  SlowBuild abandoned;
  WaitOptions hasty;
  hasty.deadline = absl::Now() + absl::Milliseconds(20);
  EXPECT_FALSE(store_->GetOrBuild(KeyOf(2), abandoned.builder(KeyOf(2)), hasty).ok());
  std::thread drain([&] { store_->Drain(); });
  absl::Status refused;
  do {
    hasty.deadline = absl::Now() + absl::Milliseconds(5);
    refused = store_->GetOrBuild(KeyOf(3), Quick(KeyOf(3)), hasty).status();
  } while (!absl::IsUnavailable(refused));
  slow.End();
  waiting.join();
  drain.join();
  EXPECT_EQ(abandoned.begun(), 0);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kDraining);
  EXPECT_THAT(store_->GetOrBuild(KeyOf(1), Quick(KeyOf(1))), IsOk());  // a hit
}

TEST_F(SingleFlightArtifactStoreTest, DestructionStopsWhatNobodyWaitsFor) {
  SlowBuild slow;
  Caller caller([&](const WaitOptions& wait) { return store_->GetOrBuild(KeyOf(1), slow.builder(KeyOf(1)), wait); });
  slow.WaitUntilBegun();
  EXPECT_FALSE(caller.Leave().ok());
  store_.reset();
  slow.WaitUntilStopped();
}

// Answers as it is told, and lets the test wake.
class FakeCoordinator : public BuildCoordinator {
 public:
  void OnWake(std::function<void(const Fingerprint&)> wake) override { wake_ = std::move(wake); }
  Claim TryClaim(const Fingerprint& key) override {
    Claim claim = Claim::kMine;
    std::function<void()> during;
    {
      absl::MutexLock lock(&mutex_);
      ++claims_;
      if (!answers_.empty()) {
        claim = answers_.front();
        answers_.pop_front();
      }
      during.swap(during_next_claim_);
    }
    if (during) during();
    return claim;
  }
  void Release(const Fingerprint& key) override {
    absl::MutexLock lock(&mutex_);
    ++releases_;
    if (at_release_) at_release_();
  }
  void Stop() override {}

  void Answer(std::deque<Claim> answers) {
    absl::MutexLock lock(&mutex_);
    answers_ = std::move(answers);
  }
  void DuringNextClaim(std::function<void()> action) {
    absl::MutexLock lock(&mutex_);
    during_next_claim_ = std::move(action);
  }
  void AtRelease(std::function<void()> action) {
    absl::MutexLock lock(&mutex_);
    at_release_ = std::move(action);
  }
  void Wake(const Fingerprint& key) { wake_(key); }
  int claims() const {
    absl::MutexLock lock(&mutex_);
    return claims_;
  }
  int releases() const {
    absl::MutexLock lock(&mutex_);
    return releases_;
  }

 private:
  std::function<void(const Fingerprint&)> wake_;
  mutable absl::Mutex mutex_;
  std::deque<Claim> answers_ ABSL_GUARDED_BY(mutex_);  // then kMine
  std::function<void()> during_next_claim_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> at_release_ ABSL_GUARDED_BY(mutex_);
  int claims_ ABSL_GUARDED_BY(mutex_) = 0;
  int releases_ ABSL_GUARDED_BY(mutex_) = 0;
};

class CoordinatedBuildsTest : public ::testing::Test {
 protected:
  CoordinatedBuildsTest() {
    inner_.outcome = Outcome::kSharedHit;
    BuildPoolOptions options;
    options.threads = 1;
    options.coordinator = coordinator_;
    store_ = MakeSingleFlightStore(std::make_unique<FakeArtifactStore>(inner_), options);
  }
  absl::StatusOr<Lookup> Ask(int n, const WaitOptions& wait = {}) {
    return store_->GetOrBuild(
        KeyOf(n),
        [this, n](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
          ++builds_;
          return StoredArtifact(KeyOf(n), "built here");
        },
        wait);
  }
  // As another server does, through the shared level.
  void PutByAnother(int n) {
    absl::MutexLock lock(&inner_.mutex);
    inner_.entries[KeyOf(n)] = StoredArtifact(KeyOf(n), "built elsewhere");
  }
  int64_t Waiting() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.builds_waiting;
  }
  // `claims`: how often was asked by then. Before that, what waits does so for the thread that asks.
  void AwaitParked(int64_t flights, int claims) const {
    while (coordinator_->claims() < claims || Waiting() != flights) absl::SleepFor(absl::Milliseconds(1));
  }

  FakeStoreState inner_;
  const std::shared_ptr<FakeCoordinator> coordinator_ = std::make_shared<FakeCoordinator>();
  std::atomic<int> builds_{0};
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(CoordinatedBuildsTest, BuildOfAnotherServerIsWaitedForWithoutAThread) {
  coordinator_->Answer({Claim::kOthers});
  absl::StatusOr<Lookup> first;
  absl::StatusOr<Lookup> joined;
  std::thread waits([&] { first = Ask(1); });
  AwaitParked(1, 1);
  std::thread joins([&] { joined = Ask(1); });
  // The only thread is free for others.
  const auto other = Ask(2);
  ASSERT_OK(other);
  EXPECT_EQ(other->outcome, Outcome::kMiss);
  while (true) {
    StoreStats stats;
    store_->AddStats(stats);
    if (stats.joins == 1) break;
    absl::SleepFor(absl::Milliseconds(1));
  }
  PutByAnother(1);
  coordinator_->Wake(KeyOf(1));
  waits.join();
  joins.join();
  ASSERT_OK(first);
  EXPECT_EQ(first->outcome, Outcome::kSharedHit);
  EXPECT_EQ(first->artifact->kernels[0].bytes, "built elsewhere");
  ASSERT_OK(joined);
  EXPECT_EQ(joined->outcome, Outcome::kJoined);
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(Waiting(), 0);
}

TEST_F(CoordinatedBuildsTest, WakeThatComesBeforeTheAnswerIsNotLost) {
  coordinator_->Answer({Claim::kOthers});
  coordinator_->DuringNextClaim([this] {
    PutByAnother(1);
    coordinator_->Wake(KeyOf(1));
  });
  const auto found = Ask(1);
  ASSERT_OK(found);
  EXPECT_EQ(found->outcome, Outcome::kSharedHit);
  EXPECT_EQ(builds_, 0);
}

TEST_F(CoordinatedBuildsTest, BuildThatAnotherGaveUpIsTakenOver) {
  coordinator_->Answer({Claim::kOthers, Claim::kOthers});
  absl::StatusOr<Lookup> result;
  std::thread waits([&] { result = Ask(1); });
  AwaitParked(1, 1);
  coordinator_->Wake(KeyOf(1));  // a third one has it now
  AwaitParked(1, 2);
  coordinator_->Wake(KeyOf(1));
  waits.join();
  ASSERT_OK(result);
  EXPECT_EQ(result->outcome, Outcome::kMiss);
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(coordinator_->releases(), 1);
}

TEST_F(CoordinatedBuildsTest, ClaimIsReleasedOnceTheArtifactIsKept) {
  coordinator_->AtRelease([this] {
    absl::MutexLock lock(&inner_.mutex);
    EXPECT_EQ(inner_.puts, 1);
  });
  ASSERT_OK(Ask(1));
  EXPECT_EQ(coordinator_->releases(), 1);
  const auto failed = store_->GetOrBuild(
      KeyOf(2), [](const BuildControl&) -> absl::StatusOr<ArtifactPtr> { return Internal("no compiler"); });
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, "no compiler"));
  EXPECT_EQ(coordinator_->releases(), 2) << "others try it too";
}

TEST_F(CoordinatedBuildsTest, WithoutAnybodyToAskItIsBuilt) {
  coordinator_->Answer({Claim::kUnavailable});
  const auto built = Ask(1);
  ASSERT_OK(built);
  EXPECT_EQ(built->outcome, Outcome::kMiss);
  EXPECT_EQ(coordinator_->releases(), 0);
}

TEST_F(CoordinatedBuildsTest, WhatIsSaidToBeThereAndNeverIsIsBuilt) {
  coordinator_->Answer(std::deque<Claim>(100, Claim::kPublished));
  const auto built = Ask(1);
  ASSERT_OK(built);
  EXPECT_EQ(built->outcome, Outcome::kMiss);
  EXPECT_LT(coordinator_->claims(), 10);
}

TEST_F(CoordinatedBuildsTest, DrainingWaitsForAnotherServerOnlyWhileSomebodyWaits) {
  coordinator_->Answer({Claim::kOthers, Claim::kOthers});
  WaitOptions wait;
  wait.deadline = absl::Now() + absl::Milliseconds(50);
  EXPECT_THAT(Ask(1, wait), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  absl::StatusOr<Lookup> result;
  std::thread waits([&] { result = Ask(2); });
  AwaitParked(2, 2);
  std::thread drains([&] { store_->Drain(); });
  AwaitParked(1, 2);  // the one that nobody waits for has gone
  PutByAnother(2);
  coordinator_->Wake(KeyOf(2));
  drains.join();
  waits.join();
  ASSERT_OK(result);
  EXPECT_EQ(result->outcome, Outcome::kSharedHit);
}

}  // namespace
}  // namespace fuseline::cache
