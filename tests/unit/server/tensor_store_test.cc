#include "server/executor/tensor_store.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

Tensor Bytes(int64_t count) { return Tensor::Allocate(DType::kU8, {count}); }

class TensorStoreTest : public ::testing::Test {
 protected:
  TensorStoreTest() { MakeStore({}); }
  void MakeStore(TensorStoreOptions options) {
    options.clock = [this] { return now_; };
    store_ = std::make_unique<TensorStore>(options);
  }
  absl::StatusOr<StoredTensorInfo> Keep(const KeepOptions& options, int64_t bytes) {
    auto reservation = store_->Reserve(options, bytes);
    if (!reservation.ok()) return reservation.status();
    return store_->Put(*std::move(reservation), StoreOnHost(Bytes(bytes)));
  }
  absl::StatusOr<StoredTensorInfo> Keep(const std::string& handle, int64_t bytes, const std::string& owner = "") {
    return Keep(KeepOptions{handle, owner, {}}, bytes);
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<TensorStore> store_;
};

TEST_F(TensorStoreTest, KeptTensorIsFoundUnderItsHandle) {
  const auto info = Keep({"weights/w.0:a-b_c", "me", absl::Minutes(5)}, 12);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->handle, "weights/w.0:a-b_c");
  EXPECT_EQ(info->owner, "me");
  EXPECT_EQ(info->dtype, DType::kU8);
  EXPECT_EQ(info->shape, Shape{12});
  EXPECT_EQ(info->size_bytes, 12);
  EXPECT_EQ(info->lease, absl::Minutes(5));
  EXPECT_EQ(info->expires, now_ + absl::Minutes(5));
  const auto tensor = store_->Get("weights/w.0:a-b_c", "me");
  ASSERT_THAT(tensor, IsOk());
  EXPECT_EQ(StoredShape(**tensor), Shape{12});
  EXPECT_EQ(StoredDType(**tensor), DType::kU8);
  EXPECT_THAT(FetchFromHost(*tensor), IsOk());
  EXPECT_EQ(store_->List("me")[0].uses, 1);
}

TEST_F(TensorStoreTest, MadeUpHandlesDiffer) {
  const auto first = Keep("", 1);
  const auto second = Keep("", 1);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->handle.size(), 32u);
  EXPECT_NE(first->handle, second->handle);
  EXPECT_THAT(store_->Get(second->handle, ""), IsOk());
}

TEST_F(TensorStoreTest, OwnersSeeTheirOwnTensorsAlone) {
  ASSERT_THAT(Keep("h", 1, "a"), IsOk());
  ASSERT_THAT(Keep("h", 2, "b"), IsOk());
  const auto other = store_->Get("h", "c");
  EXPECT_THAT(other, StatusIs(absl::StatusCode::kNotFound, "'h'"));
  EXPECT_EQ(GetErrorReason(other.status()), ErrorReason::kHandleUnknown);
  EXPECT_THAT(store_->Delete("h", "c"), StatusIs(absl::StatusCode::kNotFound, "'h'"));
  EXPECT_THAT(store_->Delete("h", "a"), IsOk());
  EXPECT_TRUE(store_->List("a").empty());
  ASSERT_EQ(store_->List("b").size(), 1u);
  EXPECT_EQ(store_->List("b")[0].size_bytes, 2);
}

TEST_F(TensorStoreTest, ListIsOrderedByHandle) {
  for (const char* handle : {"c", "a", "b"}) ASSERT_THAT(Keep(handle, 1), IsOk());
  const auto reserved = store_->Reserve({"aa", "", {}}, 1);
  ASSERT_THAT(reserved, IsOk());
  std::string handles;
  for (const StoredTensorInfo& info : store_->List("")) handles += info.handle;
  EXPECT_EQ(handles, "abc");
}

TEST_F(TensorStoreTest, BadHandlesOwnersAndLeasesAreRefused) {
  const struct {
    KeepOptions options;
    const char* subject;
  } kCases[] = {
      {{"white space", "", {}}, "handle"},
      {{std::string("nul\0", 4), "", {}}, "handle"},
      {{"\xc3\xa4", "", {}}, "handle"},
      {{"a@b", "", {}}, "handle"},
      {{std::string(129, 'a'), "", {}}, "handle"},
      {{"h", std::string(257, 'a'), {}}, "owner"},
      {{"h", "", absl::Seconds(-1)}, "lease"},
      {{"h", "", absl::Hours(24 * 7) + absl::Seconds(1)}, "lease"},
      {{"h", "", absl::InfiniteDuration()}, "lease"},
  };
  for (const auto& c : kCases) {
    const auto reservation = store_->Reserve(c.options, 1);
    EXPECT_EQ(reservation.status().code(), absl::StatusCode::kInvalidArgument) << c.options.handle;
    EXPECT_EQ(GetErrorReason(reservation.status()), ErrorReason::kOptionInvalid);
    EXPECT_EQ(GetErrorSubject(reservation.status()), c.subject);
  }
  EXPECT_THAT(store_->Reserve({std::string(128, 'a'), std::string(256, 'a'), absl::Hours(24 * 7)}, 1), IsOk());
  EXPECT_THAT(store_->Reserve({"h", "", {}}, -1), StatusIs(absl::StatusCode::kInvalidArgument, "negative"));
}

TEST_F(TensorStoreTest, TakenHandleIsAlreadyExists) {
  ASSERT_THAT(Keep("kept", 1), IsOk());
  const auto on_its_way = store_->Reserve({"sent", "", {}}, 1);
  ASSERT_THAT(on_its_way, IsOk());
  for (const char* handle : {"kept", "sent"}) {
    const auto again = store_->Reserve({handle, "", {}}, 1);
    EXPECT_THAT(again, StatusIs(absl::StatusCode::kAlreadyExists, handle));
    EXPECT_EQ(GetErrorReason(again.status()), ErrorReason::kHandleTaken);
  }
  EXPECT_THAT(store_->Get("sent", ""), StatusIs(absl::StatusCode::kNotFound, "'sent'"));
  EXPECT_THAT(store_->Delete("sent", ""), StatusIs(absl::StatusCode::kNotFound, "'sent'"));
}

TEST_F(TensorStoreTest, QuotaCapacityAndCountAreBounds) {
  TensorStoreOptions options;
  options.capacity_bytes = 100;
  options.owner_quota_bytes = 60;
  options.max_tensors = 3;
  MakeStore(options);
  ASSERT_THAT(Keep("a", 60, "x"), IsOk());
  const auto over_quota = store_->Reserve({"b", "x", {}}, 1);
  EXPECT_THAT(over_quota, StatusIs(absl::StatusCode::kResourceExhausted, "quota of 60 bytes has 0 left"));
  EXPECT_EQ(GetErrorReason(over_quota.status()), ErrorReason::kQuota);
  EXPECT_THAT(store_->Reserve({"b", "y", {}}, 41), StatusIs(absl::StatusCode::kResourceExhausted, "40 left"));
  EXPECT_THAT(store_->Reserve({"b", "y", {}}, INT64_MAX), StatusIs(absl::StatusCode::kResourceExhausted, "quota"));
  ASSERT_THAT(Keep("b", 40, "y"), IsOk());
  ASSERT_THAT(Keep("c", 0, "y"), IsOk());
  EXPECT_THAT(store_->Reserve({"d", "y", {}}, 0), StatusIs(absl::StatusCode::kResourceExhausted, "3 tensors"));
  EXPECT_EQ(store_->stats().refused, 4);
  ASSERT_THAT(store_->Delete("a", "x"), IsOk());
  EXPECT_THAT(Keep("d", 60, "x"), IsOk());
}

TEST_F(TensorStoreTest, ReservationCountsUntilItGoesAway) {
  TensorStoreOptions options;
  options.capacity_bytes = 100;
  MakeStore(options);
  auto reservation = store_->Reserve({"a", "", {}}, 100);
  ASSERT_THAT(reservation, IsOk());
  EXPECT_EQ((*reservation)->handle(), "a");
  EXPECT_EQ(store_->stats().reserved_bytes, 100);
  EXPECT_EQ(store_->stats().size_bytes, 0);
  EXPECT_THAT(store_->Reserve({"b", "", {}}, 1), StatusIs(absl::StatusCode::kResourceExhausted, "0 left"));
  reservation->reset();
  EXPECT_EQ(store_->stats().reserved_bytes, 0);
  auto again = store_->Reserve({"a", "", {}}, 100);
  ASSERT_THAT(again, IsOk());
  store_.reset();
  again->reset();  // later than its store
}

TEST_F(TensorStoreTest, OtherSizeThanReservedIsInternal) {
  auto reservation = store_->Reserve({"a", "", {}}, 10);
  ASSERT_THAT(reservation, IsOk());
  EXPECT_THAT(store_->Put(*std::move(reservation), StoreOnHost(Bytes(11))),
              StatusIs(absl::StatusCode::kInternal, "11 bytes"));
  EXPECT_EQ(store_->stats().reserved_bytes, 0);
}

TEST_F(TensorStoreTest, LeaseRunsOutUnlessUsed) {
  ASSERT_THAT(Keep({"used", "", absl::Seconds(10)}, 1), IsOk());
  ASSERT_THAT(Keep({"unused", "", absl::Seconds(10)}, 1), IsOk());
  now_ += absl::Seconds(9);
  ASSERT_THAT(store_->Get("used", ""), IsOk());
  now_ += absl::Seconds(1);
  EXPECT_THAT(store_->Get("unused", ""), StatusIs(absl::StatusCode::kNotFound, "lease"));
  EXPECT_EQ(store_->stats().expired, 1);
  now_ += absl::Seconds(8);
  EXPECT_EQ(store_->List("").size(), 1u);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(store_->List("").empty());
  EXPECT_EQ(store_->stats().expired, 2);
  EXPECT_EQ(store_->stats().size_bytes, 0);
}

TEST_F(TensorStoreTest, ExpiredTensorsFreeTheirMemoryAndHandle) {
  TensorStoreOptions options;
  options.capacity_bytes = 100;
  MakeStore(options);
  ASSERT_THAT(Keep("a", 100), IsOk());
  std::weak_ptr<StoredTensor> kept;
  std::shared_ptr<StoredTensor> in_use = *store_->Get("a", "");
  kept = in_use;
  now_ += options.default_lease;
  EXPECT_THAT(Keep("a", 100), IsOk());
  EXPECT_FALSE(kept.expired());
  in_use.reset();
  EXPECT_TRUE(kept.expired());
}

TEST_F(TensorStoreTest, ManyCallersKeepTheBounds) {
  TensorStoreOptions options;
  options.capacity_bytes = 20;
  MakeStore(options);
  std::atomic<int> kept{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string handle = std::to_string(i % 10);
        const std::string owner = std::to_string(t % 2);
        auto reservation = store_->Reserve({handle, owner, {}}, 1 + i % 3);
        if (reservation.ok()) {
          kept += store_->Put(*std::move(reservation), StoreOnHost(Bytes(1 + i % 3))).ok();
        }
        (void)store_->Get(handle, owner).ok();
        const TensorStoreStats stats = store_->stats();
        wrong += stats.size_bytes + stats.reserved_bytes > 20;
        (void)store_->Delete(handle, owner).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(kept, 0);
  EXPECT_EQ(wrong, 0);
  for (const char* owner : {"0", "1"}) {
    for (const StoredTensorInfo& info : store_->List(owner)) EXPECT_THAT(store_->Delete(info.handle, owner), IsOk());
  }
  EXPECT_EQ(store_->stats().size_bytes, 0);
  EXPECT_EQ(store_->stats().tensors, 0);
}

}  // namespace
}  // namespace fuseline::executor
