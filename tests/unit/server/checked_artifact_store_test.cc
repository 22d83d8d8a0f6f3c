#include <functional>

#include "gtest/gtest.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/fake_artifact_store.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::FakeArtifactStore;
using ::fuseline::testing::FakeStoreState;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StoredArtifact;

// An artifact under the key that it makes.
Artifact Keyed(const std::function<void(Artifact&)>& change = [](Artifact&) {}) {
  Artifact artifact = *StoredArtifact(KeyOf(1), "kernel");
  change(artifact);
  artifact.fingerprint =
      ComputeFingerprint({artifact.canonical_graph, artifact.target, artifact.options, artifact.compiler_identity});
  return artifact;
}

class CheckedArtifactStoreTest : public ::testing::Test {
 protected:
  // Whether `artifact`, found under `key`, is passed on.
  bool Passes(const Fingerprint& key, const Artifact& artifact) {
    inner_.entries[key] = std::make_shared<const Artifact>(artifact);
    const auto found = store_->Get(key);
    return found.ok() && found->artifact != nullptr;
  }
  int64_t CorruptCount() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.levels[0].corrupt;
  }

  FakeStoreState inner_;
  std::unique_ptr<ArtifactStore> store_ = MakeCheckedStore(std::make_unique<FakeArtifactStore>(inner_), "compiler 1");
};

TEST_F(CheckedArtifactStoreTest, GoodArtifactPasses) {
  EXPECT_TRUE(Passes(Keyed().fingerprint, Keyed()));
  EXPECT_EQ(CorruptCount(), 0);
  EXPECT_EQ(inner_.deletes, 0);
}

TEST_F(CheckedArtifactStoreTest, WhatDoesNotMatchItsKeyIsDroppedAndCounted) {
  const Artifact good = Keyed();
  const struct {
    const char* what;
    Artifact artifact;
  } cases[] = {
      {"another's, whole", Keyed([](Artifact& a) { a.canonical_graph = "another graph"; })},
      {"another compiler's", Keyed([](Artifact& a) { a.compiler_identity = "compiler 2"; })},
      {"another graph under this key",
       [&] {
         Artifact a = good;
         a.canonical_graph = "another graph";
         return a;
       }()},
      {"another target under this key",
       [&] {
         Artifact a = good;
         a.target = Target::Cuda(90);
         return a;
       }()},
      {"other options under this key",
       [&] {
         Artifact a = good;
         a.options.fast_math = !a.options.fast_math;
         return a;
       }()},
      {"a plan that names no buffer",
       [&] {
         Artifact a = good;
         a.plan.steps[0].buffers = {0, 7};
         return a;
       }()},
  };
  int dropped = 0;
  for (const auto& c : cases) {
    EXPECT_FALSE(Passes(good.fingerprint, c.artifact)) << c.what;
    EXPECT_EQ(CorruptCount(), ++dropped) << c.what;
    EXPECT_EQ(inner_.deletes, dropped);
    EXPECT_TRUE(inner_.entries.empty());
  }
  // Under its own key too, where another compiler made it.
  EXPECT_FALSE(Passes(cases[1].artifact.fingerprint, cases[1].artifact));
}

TEST_F(CheckedArtifactStoreTest, MemoryHitIsNotLookedAtAgain) {
  inner_.outcome = Outcome::kMemoryHit;
  Artifact artifact = Keyed();
  artifact.plan.steps[0].buffers = {0, 7};
  EXPECT_TRUE(Passes(artifact.fingerprint, artifact));
}

}  // namespace
}  // namespace fuseline::cache
