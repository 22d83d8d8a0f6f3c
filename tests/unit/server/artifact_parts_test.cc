#include "server/cache/artifact_parts.h"

#include <string>

#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

TEST(ArtifactPartsTest, JoiningTheSplitPartsGivesTheArtifact) {
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  const std::vector<std::string> parts = SplitArtifact(*artifact);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1], "kernel");
  const auto joined = JoinArtifact(parts);
  ASSERT_THAT(joined, IsOk());
  EXPECT_EQ(SerializeArtifact(*joined), SerializeArtifact(*artifact));
}

TEST(ArtifactPartsTest, PartsThatDoNotFitAreDataLoss) {
  std::vector<std::string> parts = SplitArtifact(*StoredArtifact(KeyOf(1), "kernel"));
  EXPECT_THAT(JoinArtifact({}), StatusIs(absl::StatusCode::kInvalidArgument, "no parts"));
  EXPECT_THAT(JoinArtifact({parts[0], parts[1]}), StatusIs(absl::StatusCode::kInvalidArgument, "number of parts"));
  EXPECT_THAT(JoinArtifact({parts[0], "", ""}), StatusIs(absl::StatusCode::kInvalidArgument, "empty"));
  EXPECT_FALSE(JoinArtifact({"garbage", parts[1], parts[2]}).ok());
}

TEST(IndexRecordTest, RecordReadsBackAndEveryDamagedByteIsNoticed) {
  const std::vector<Digest> digests = {ComputeDigest("a"), ComputeDigest(std::string(70000, 'b'))};
  const std::string record = EncodeIndexRecord(KeyOf(1), digests);
  const auto decoded = DecodeIndexRecord(KeyOf(1), record);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, digests);
  EXPECT_EQ((*decoded)[1].size_bytes, 70000);
  for (size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(DecodeIndexRecord(KeyOf(1), damaged).ok()) << i;
    EXPECT_FALSE(DecodeIndexRecord(KeyOf(1), record.substr(0, i)).ok()) << i;
  }
  const auto other_key = DecodeIndexRecord(KeyOf(2), record);
  EXPECT_THAT(other_key, StatusIs(absl::StatusCode::kInvalidArgument, "checksum"));
  EXPECT_EQ(GetErrorReason(other_key.status()), ErrorReason::kDataLoss);
}

}  // namespace
}  // namespace fuseline::cache
