#include "server/cache/disk_index.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::KeyOf;

Digest Blob(const std::string& bytes) { return ComputeDigest(bytes); }

TEST(DiskIndexTest, SharedBlobIsCountedOnceAndReleasedByItsLastUser) {
  DiskIndex index;
  EXPECT_TRUE(index.Add(KeyOf(1), {Blob(std::string(1000, 'a')), Blob(std::string(500, 's'))}).empty());
  const int64_t one = index.size_bytes();
  EXPECT_TRUE(index.Add(KeyOf(2), {Blob(std::string(1000, 'b')), Blob(std::string(500, 's'))}).empty());
  EXPECT_EQ(index.size_bytes(), 2 * one - 500);
  EXPECT_EQ(index.Remove(KeyOf(1)), std::vector<Digest>{Blob(std::string(1000, 'a'))});
  EXPECT_TRUE(index.HasBlob(Blob(std::string(500, 's'))));
  EXPECT_EQ(index.Remove(KeyOf(2)).size(), 2u);
  EXPECT_EQ(index.size_bytes(), 0);
  EXPECT_EQ(index.entries(), 0);
  EXPECT_TRUE(index.Remove(KeyOf(2)).empty());
}

TEST(DiskIndexTest, ReplacementKeepsBlobsThatBothUse) {
  DiskIndex index;
  index.Add(KeyOf(1), {Blob("a"), Blob("s"), Blob("s")});
  EXPECT_EQ(index.Add(KeyOf(1), {Blob("b"), Blob("s")}), std::vector<Digest>{Blob("a")});
  EXPECT_TRUE(index.HasBlob(Blob("s")));
  EXPECT_EQ(index.entries(), 1);
}

TEST(DiskIndexTest, LeastRecentlyUsedFollowsTouches) {
  DiskIndex index;
  EXPECT_FALSE(index.LeastRecentlyUsed().has_value());
  index.Add(KeyOf(1), {Blob("a")});
  index.Add(KeyOf(2), {Blob("b")});
  EXPECT_EQ(index.LeastRecentlyUsed(), KeyOf(1));
  EXPECT_TRUE(index.Touch(KeyOf(1)));
  EXPECT_EQ(index.LeastRecentlyUsed(), KeyOf(2));
  EXPECT_FALSE(index.Touch(KeyOf(3)));
}

TEST(DiskIndexTest, ForgottenBlobIsBroughtAnew) {
  DiskIndex index;
  index.Add(KeyOf(1), {Blob("s")});
  index.ForgetBlob(Blob("s"));
  EXPECT_FALSE(index.HasBlob(Blob("s")));
  EXPECT_TRUE(index.Remove(KeyOf(1)).empty());
  EXPECT_EQ(index.size_bytes(), 0);
}

TEST(DiskIndexTest, ForgottenBlobThatOneUserBringsAnewIsNotReleasedByAnother) {
  DiskIndex index;
  index.Add(KeyOf(1), {Blob("s")});
  index.Add(KeyOf(2), {Blob("s")});
  index.ForgetBlob(Blob("s"));
  EXPECT_TRUE(index.Remove(KeyOf(1)).empty());
  index.Add(KeyOf(1), {Blob("s")});
  EXPECT_TRUE(index.HasBlob(Blob("s")));
  EXPECT_TRUE(index.Remove(KeyOf(2)).empty());
  EXPECT_TRUE(index.HasBlob(Blob("s")));
  EXPECT_EQ(index.Remove(KeyOf(1)), std::vector<Digest>{Blob("s")});
  EXPECT_EQ(index.size_bytes(), 0);
}

}  // namespace
}  // namespace fuseline::cache
