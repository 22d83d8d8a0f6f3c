#include "client/cli/lock_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status/error.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cli {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

LockEntry MakeEntry() {
  LockEntry entry;
  entry.graph = "graphs/norm.fl";
  entry.target = Target::Cuda(90, true);
  entry.symbols = {{"rows", 1024}, {"empty", 0}};
  entry.options.numerics = Numerics::kEager;
  entry.options.allow_tf32 = true;
  entry.options.fuse = false;
  entry.fingerprint.bytes[3] = 0xab;
  entry.artifact_sha256 = std::string(64, 'e');
  return entry;
}

TEST(LockFileTest, ReadsWhatItWrites) {
  const LockEntry plain = {.graph = "a.fl", .target = Target::Cpu(), .artifact_sha256 = std::string(64, '0')};
  const auto read = ReadLockFile(WriteLockFile({MakeEntry(), plain}));
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->size(), 2u);
  const LockEntry& entry = read->front();
  EXPECT_EQ(entry.graph, "graphs/norm.fl");
  EXPECT_EQ(entry.target, MakeEntry().target);
  EXPECT_EQ(entry.symbols, MakeEntry().symbols);
  EXPECT_EQ(entry.options, MakeEntry().options);
  EXPECT_EQ(entry.fingerprint, MakeEntry().fingerprint);
  EXPECT_EQ(entry.artifact_sha256, MakeEntry().artifact_sha256);
  EXPECT_EQ(read->back().options, CompileOptions());
}

TEST(LockFileTest, WhatIsWrongIsNamed) {
  const std::string good = WriteLockFile({MakeEntry()});
  const struct {
    std::string from;
    std::string to;
    std::string message;
  } kCases[] = {
      {good, "", "this is no lock file"},
      {good, "[]", "this is no lock file"},
      {"\"fuseline_lock\": 1", "\"fuseline_lock\": 2", "version 2, this program reads 1"},
      {"\"cuda:sm_90a\"", "\"gpu\"", "entries[0].target"},
      {"\"graphs/norm.fl\"", "7", "entries[0].graph is no text"},
      {"1024", "-1", "entries[0].symbols.rows is no size"},
      {"1024", "1.5", "entries[0].symbols.rows is no size"},
      {"\"eager\"", "3", "entries[0].options.numerics"},
      {"\"fast_math\": false", "\"fast_math\": 0", "entries[0].fast_math is neither true nor false"},
      {std::string(64, 'e'), "e", "entries[0].artifact_sha256 is no SHA-256 in hex"},
      {"\"entries\"", "\"others\"", "entries is no list"},
  };
  for (const auto& c : kCases) {
    std::string text = good;
    ASSERT_NE(text.find(c.from), std::string::npos) << c.from;
    text.replace(text.find(c.from), c.from.size(), c.to);
    const auto read = ReadLockFile(text);
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.to;
  }
}

TEST(LockFileTest, DigestIsOfWhatRuns) {
  Artifact artifact;
  artifact.target = Target::Cpu();
  artifact.kernels.push_back({ImageFormat::kSharedObject, "kernel", "bytes", "source", {}});
  const std::string digest = ArtifactDigest(artifact);
  EXPECT_EQ(digest.size(), 64u);
  Artifact same = artifact;
  same.kernels[0].source = "the same, written differently";
  same.report.stage_micros["lower"] = 3;
  EXPECT_EQ(ArtifactDigest(same), digest);
  Artifact other = artifact;
  other.kernels[0].bytes = "other bytes";
  EXPECT_NE(ArtifactDigest(other), digest);
}

}  // namespace
}  // namespace fuseline::cli
