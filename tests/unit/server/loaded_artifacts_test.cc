#include "server/executor/loaded_artifacts.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

class FakeLoaded : public launch::LoadedArtifact {
 public:
  explicit FakeLoaded(ArtifactPtr artifact) : artifact_(std::move(artifact)) {}
  const Artifact& artifact() const override { return *artifact_; }

 private:
  ArtifactPtr artifact_;
};

// A device that loads anything but kernels "bad", and does nothing else.
class FakeDevice : public launch::Device {
 public:
  std::string name() const override { return "fake"; }
  Target target() const override { return Target::Cpu(); }
  int64_t memory_bytes() const override { return 0; }
  bool CanRun(const Target&) const override { return true; }
  absl::StatusOr<launch::LoadedArtifactPtr> Load(ArtifactPtr artifact) override {
    ++loads;
    if (artifact->kernels[0].bytes == "bad") return absl::InternalError("bad kernel");
    return launch::LoadedArtifactPtr(std::make_shared<FakeLoaded>(std::move(artifact)));
  }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t) override { return absl::UnimplementedError(""); }
  absl::Status CopyToDevice(void*, const void*, int64_t) override { return absl::UnimplementedError(""); }
  absl::Status CopyToHost(void*, const void*, int64_t) override { return absl::UnimplementedError(""); }
  absl::Status Run(const launch::LoadedArtifact&, absl::Span<void* const>, absl::Span<void* const>,
                   const launch::StopCheck&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<double>> Time(const launch::LoadedArtifact&, absl::Span<void* const>,
                                           absl::Span<void* const>, int, int, bool, const launch::StopCheck&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<double> MeasureCopyRate(int64_t) override { return absl::UnimplementedError(""); }

  int loads = 0;
};

TEST(LoadedArtifactsTest, SecondUseLoadsNothing) {
  FakeDevice device;
  LoadedArtifacts loaded(device, 10, 1 << 20);
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  const auto first = loaded.Get(artifact);
  const auto second = loaded.Get(std::make_shared<const Artifact>(*artifact));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(device.loads, 1);
}

TEST(LoadedArtifactsTest, OtherCodeUnderTheSameKeyIsLoadedAnew) {
  FakeDevice device;
  LoadedArtifacts loaded(device, 10, 1 << 20);
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(1), "kernel")), IsOk());
  const auto other = loaded.Get(StoredArtifact(KeyOf(1), "another"));
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ((*other)->artifact().kernels[0].bytes, "another");
  EXPECT_EQ(device.loads, 2);
  EXPECT_EQ(loaded.count(), 1u);
}

TEST(LoadedArtifactsTest, LeastRecentlyUsedGoesFirstByCountAndBytes) {
  FakeDevice device;
  LoadedArtifacts loaded(device, 2, 1000);
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(1), "a")), IsOk());
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(2), "b")), IsOk());
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(1), "a")), IsOk());
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(3), "c")), IsOk());
  EXPECT_EQ(loaded.count(), 2u);
  EXPECT_EQ(device.loads, 3);
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(1), "a")), IsOk());
  EXPECT_EQ(device.loads, 3);
  // One too large for the bound stays alone.
  ASSERT_THAT(loaded.Get(StoredArtifact(KeyOf(4), std::string(2000, 'd'))), IsOk());
  EXPECT_EQ(loaded.count(), 1u);
}

TEST(LoadedArtifactsTest, FailureToLoadIsReturnedAndNotKept) {
  FakeDevice device;
  LoadedArtifacts loaded(device, 2, 1000);
  EXPECT_THAT(loaded.Get(StoredArtifact(KeyOf(1), "bad")), StatusIs(absl::StatusCode::kInternal, "bad kernel"));
  EXPECT_EQ(loaded.count(), 0u);
}

}  // namespace
}  // namespace fuseline::executor
