#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecoveringArtifactStoreTest : public ::testing::Test {
 protected:
  void Make() {
    RecoveryOptions options;
    options.first_retry = absl::Milliseconds(5);
    options.longest_retry = absl::Milliseconds(20);
    options.report = [this](const std::string& line) {
      absl::MutexLock lock(&mutex_);
      reports_.push_back(line);
    };
    store_ = MakeRecoveringStore(
        "disk",
        [this](bool start_anew) -> absl::StatusOr<std::unique_ptr<ArtifactStore>> {
          absl::MutexLock lock(&mutex_);
          opened_anew_.push_back(start_anew);
          if (!open_status_.ok()) return open_status_;
          return std::make_unique<FakeArtifactStore>(inner_);
        },
        options);
  }
  LevelStats Stats() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.levels.at(0);
  }
  void WaitUntil(bool available) {
    while (Stats().available != available) absl::SleepFor(absl::Milliseconds(1));
  }
  void SetOpenStatus(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    open_status_ = status;
  }
  void SetInnerStatus(const absl::Status& status) {
    absl::MutexLock lock(&inner_.mutex);
    inner_.status = status;
  }
  std::vector<bool> OpenedAnew() {
    absl::MutexLock lock(&mutex_);
    return opened_anew_;
  }

  absl::Mutex mutex_;
  absl::Status open_status_;
  std::vector<bool> opened_anew_;
  std::vector<std::string> reports_;
  FakeStoreState inner_;
  const ArtifactPtr artifact_ = StoredArtifact(KeyOf(1), "kernel");
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(RecoveringArtifactStoreTest, LevelThatWorksIsPassedThrough) {
  Make();
  ASSERT_THAT(store_->Put(KeyOf(1), artifact_), IsOk());
  EXPECT_EQ(store_->Get(KeyOf(1))->artifact, artifact_);
  EXPECT_THAT(store_->Delete(KeyOf(1)), IsOk());
  EXPECT_EQ(store_->Get(KeyOf(1))->artifact, nullptr);
  EXPECT_EQ(Stats().level, "disk");
  EXPECT_TRUE(Stats().available);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(RecoveringArtifactStoreTest, LevelThatCanNotBeOpenedIsServedOnceItCan) {
  open_status_ = absl::UnavailableError("another server has it");
  Make();
  EXPECT_FALSE(Stats().available);
  EXPECT_EQ(Stats().reason, "another server has it");
  EXPECT_EQ(store_->Get(KeyOf(1))->artifact, nullptr);
  EXPECT_THAT(store_->Put(KeyOf(1), artifact_), StatusIs(absl::StatusCode::kUnavailable, "another server has it"));
  EXPECT_EQ(Stats().misses, 1);
  SetOpenStatus(absl::OkStatus());
  WaitUntil(true);
  ASSERT_THAT(store_->Put(KeyOf(1), artifact_), IsOk());
  EXPECT_EQ(store_->Get(KeyOf(1))->artifact, artifact_);
  EXPECT_GE(Stats().errors, 1);
  while (true) {
    absl::MutexLock lock(&mutex_);
    if (reports_.size() < 2) continue;
    EXPECT_THAT(reports_, ElementsAre(HasSubstr("another server has it"), HasSubstr("again")));
    break;
  }
}

TEST_F(RecoveringArtifactStoreTest, FailureTakesTheLevelOutUntilItCanBeOpenedAgain) {
  for (const bool on_put : {true, false}) {
    Make();
    SetOpenStatus(absl::InternalError("still full"));
    SetInnerStatus(absl::InternalError("disk full"));
    if (on_put) {
      EXPECT_THAT(store_->Put(KeyOf(1), artifact_), StatusIs(absl::StatusCode::kInternal, "disk full"));
    } else {
      EXPECT_THAT(store_->Get(KeyOf(1)), StatusIs(absl::StatusCode::kInternal, "disk full"));
    }
    EXPECT_FALSE(Stats().available);
    EXPECT_THAT(Stats().reason, HasSubstr("full"));
    while (Stats().reason != "still full") absl::SleepFor(absl::Milliseconds(1));
    EXPECT_THAT(store_->Get(KeyOf(1)), IsOk());
    SetInnerStatus(absl::OkStatus());
    SetOpenStatus(absl::OkStatus());
    WaitUntil(true);
    EXPECT_THAT(store_->Put(KeyOf(1), artifact_), IsOk());
    for (const bool anew : OpenedAnew()) EXPECT_FALSE(anew);
  }
}

TEST_F(RecoveringArtifactStoreTest, LossOfDataStartsTheLevelAnew) {
  Make();
  SetInnerStatus(absl::DataLossError("a block is damaged"));
  EXPECT_FALSE(store_->Put(KeyOf(1), artifact_).ok());
  SetInnerStatus(absl::OkStatus());
  WaitUntil(true);
  EXPECT_THAT(OpenedAnew(), ElementsAre(false, true));
}

TEST_F(RecoveringArtifactStoreTest, CountersSurviveReopening) {
  Make();
  SetInnerStatus(absl::InternalError("disk"));
  EXPECT_FALSE(store_->Get(KeyOf(1)).ok());
  EXPECT_EQ(Stats().evictions, 3);  // while it is not served
  SetInnerStatus(absl::OkStatus());
  WaitUntil(true);
  EXPECT_EQ(Stats().evictions, 6);  // the fake store begins with 3
}

TEST_F(RecoveringArtifactStoreTest, ManyThreadsUseALevelThatComesAndGoes) {
  Make();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      while (!done) {
        store_->Put(KeyOf(t), artifact_).IgnoreError();
        store_->Get(KeyOf(t)).status().IgnoreError();
        Stats();
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    SetInnerStatus(absl::InternalError("disk"));
    WaitUntil(false);
    SetInnerStatus(absl::OkStatus());
    WaitUntil(true);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Stats().available);
}

}  // namespace
}  // namespace fuseline::cache
