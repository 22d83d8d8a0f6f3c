#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/lasting_error.h"
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

class NegativeArtifactStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<ArtifactStore> Store(absl::Duration duration) {
    return MakeNegativeStore(std::make_unique<FakeArtifactStore>(state_), duration);
  }
  // Asks for the artifact, whose build fails with `error`.
  absl::Status Ask(ArtifactStore& store, const absl::Status& error, int n = 1) {
    const auto build = [this, error](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
      ++builds_;
      return error;
    };
    return store.GetOrBuild(KeyOf(n), build, {}).status();
  }
  static int64_t KnownErrors(const ArtifactStore& store) {
    StoreStats stats;
    store.AddStats(stats);
    return stats.known_errors;
  }

  FakeStoreState state_;
  int builds_ = 0;
};

TEST_F(NegativeArtifactStoreTest, LastingErrorIsAnsweredAgainWithoutABuild) {
  const auto store = Store(absl::Minutes(1));
  const absl::Status error = Unimplemented("%t", "node '%t': this op can't be compiled");
  EXPECT_EQ(Ask(*store, error), error);
  EXPECT_EQ(Ask(*store, error), error);  // with its details
  EXPECT_EQ(builds_, 1);
  EXPECT_EQ(KnownErrors(*store), 1);
  EXPECT_EQ(Ask(*store, error, 2), error);
  EXPECT_EQ(builds_, 2);
  const absl::Status rejected =
      MarkLasting(MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, "k", "kernel 'k': exit code 1"));
  EXPECT_EQ(Ask(*store, rejected, 3), rejected);
  EXPECT_EQ(Ask(*store, rejected, 3), rejected);
  EXPECT_EQ(builds_, 3);
}

TEST_F(NegativeArtifactStoreTest, ErrorsOfTheMomentAreNotRemembered) {
  const auto store = Store(absl::Minutes(1));
  for (const absl::StatusCode code :
       {absl::StatusCode::kInternal, absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kCancelled,
        absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable, absl::StatusCode::kUnknown}) {
    builds_ = 0;
    const absl::Status error = MakeError(code, ErrorReason::kCompilerFailed, "k", "crashed");
    EXPECT_EQ(Ask(*store, error), error);
    EXPECT_EQ(Ask(*store, error), error);
    EXPECT_EQ(builds_, 2) << code;
  }
  EXPECT_EQ(KnownErrors(*store), 0);
}

TEST_F(NegativeArtifactStoreTest, ErrorIsForgottenWhenItsTimeHasPassed) {
  const auto store = Store(absl::Milliseconds(30));
  const absl::Status error = absl::UnimplementedError("no");
  EXPECT_EQ(Ask(*store, error), error);
  absl::SleepFor(absl::Milliseconds(40));
  EXPECT_EQ(Ask(*store, error), error);
  EXPECT_EQ(builds_, 2);
}

TEST_F(NegativeArtifactStoreTest, ArtifactThatIsPutAndEvictionEndIt) {
  const auto store = Store(absl::Minutes(1));
  const absl::Status error = absl::UnimplementedError("no");
  EXPECT_EQ(Ask(*store, error), error);
  ASSERT_THAT(store->Put(KeyOf(1), StoredArtifact(KeyOf(1), "k")), IsOk());
  EXPECT_THAT(Ask(*store, error), IsOk());
  EXPECT_EQ(Ask(*store, error, 2), error);
  EXPECT_EQ(Ask(*store, error, 3), error);
  store->ForEachLevel([](ArtifactStore& level) { level.Evict({.keys = {KeyOf(2)}}); });
  builds_ = 0;
  EXPECT_EQ(Ask(*store, error, 2), error);
  EXPECT_EQ(Ask(*store, error, 3), error);
  EXPECT_EQ(builds_, 1);
}

TEST_F(NegativeArtifactStoreTest, WithoutADurationNothingIsRemembered) {
  const auto store = Store(absl::ZeroDuration());
  EXPECT_FALSE(Ask(*store, absl::UnimplementedError("no")).ok());
  EXPECT_FALSE(Ask(*store, absl::UnimplementedError("no")).ok());
  EXPECT_EQ(builds_, 2);
}

TEST_F(NegativeArtifactStoreTest, OldestOfTooManyAreForgotten) {
  const auto store = Store(absl::Minutes(1));
  const absl::Status error = absl::UnimplementedError("no");
  for (int n = 0; n < 10'001; ++n) EXPECT_FALSE(Ask(*store, error, n).ok());
  builds_ = 0;
  EXPECT_FALSE(Ask(*store, error, 1).ok());
  EXPECT_EQ(builds_, 0);
  EXPECT_FALSE(Ask(*store, error, 0).ok());
  EXPECT_EQ(builds_, 1);
}

}  // namespace
}  // namespace fuseline::cache
