#include "server/service/admin_service.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

TEST(AdminServiceTest, ServerInfoHasTargetsDevicesLimitsAndUptime) {
  FakeEngine engine;
  engine.graph_limits.max_nodes = 17;
  bool draining = false;
  engine.info.warnings = {"no disk"};
  engine.info.devices[0].resets = 2;
  const AdminHandler handler(engine, {"1.2.3", 1 << 20, absl::Now() - absl::Seconds(90)}, [&] { return draining; });
  absl::StatusOr<v1::GetServerInfoResponse> info = handler.GetServerInfo({}, {});
  ASSERT_OK(info);
  EXPECT_EQ(info->version(), "1.2.3");
  EXPECT_EQ(info->compiler_identity(), "fake compiler");
  ASSERT_EQ(info->targets_size(), 2);
  EXPECT_EQ(info->targets(0).target(), "cpu");
  EXPECT_TRUE(info->targets(0).can_compile());
  EXPECT_TRUE(info->targets(0).can_execute());
  EXPECT_EQ(info->targets(1).target(), "cuda:sm_90");
  EXPECT_FALSE(info->targets(1).can_execute());
  EXPECT_EQ(info->targets(1).reason(), "no driver");
  ASSERT_EQ(info->devices_size(), 1);
  EXPECT_EQ(info->devices(0).name(), "fake device");
  EXPECT_EQ(info->devices(0).memory_bytes(), 1 << 30);
  EXPECT_EQ(info->devices(0).execution_count(), 3);
  EXPECT_EQ(info->devices(0).queue_depth_count(), 1);
  EXPECT_TRUE(info->devices(0).healthy());
  EXPECT_EQ(info->devices(0).unhealthy_reason(), "");
  EXPECT_EQ(info->devices(0).reset_count(), 2);
  ASSERT_EQ(info->warnings_size(), 1);
  EXPECT_EQ(info->warnings(0), "no disk");
  EXPECT_EQ(info->limits().max_node_count(), 17);
  EXPECT_EQ(info->limits().max_message_bytes(), 1 << 20);
  EXPECT_GE(info->uptime().seconds(), 90);
  EXPECT_LT(info->uptime().seconds(), 120);
  EXPECT_EQ(info->state(), v1::SERVER_STATE_SERVING);
  draining = true;
  info = handler.GetServerInfo({}, {});
  ASSERT_OK(info);
  EXPECT_EQ(info->state(), v1::SERVER_STATE_DRAINING);
}

TEST(AdminServiceTest, CacheStatsHaveEveryCounterOfEveryLevel) {
  FakeEngine engine;
  const AdminHandler handler(engine, {}, [] { return false; });
  const absl::StatusOr<v1::GetCacheStatsResponse> stats = handler.GetCacheStats({}, {});
  ASSERT_OK(stats);
  ASSERT_EQ(stats->levels_size(), 2);
  const v1::CacheLevelStats& level = stats->levels(0);
  EXPECT_EQ(level.level(), "memory");
  EXPECT_EQ(level.entry_count(), 1);
  EXPECT_EQ(level.size_bytes(), 2);
  EXPECT_EQ(level.hit_count(), 3);
  EXPECT_EQ(level.miss_count(), 4);
  EXPECT_EQ(level.corrupt_count(), 5);
  EXPECT_EQ(level.eviction_count(), 6);
  EXPECT_EQ(level.error_count(), 7);
  EXPECT_TRUE(level.available());
  EXPECT_EQ(stats->levels(1).level(), "rocksdb");
  EXPECT_FALSE(stats->levels(1).available());
  EXPECT_EQ(stats->levels(1).reason(), "the disk is full");
  EXPECT_EQ(stats->build_count(), 15);
  EXPECT_EQ(stats->join_count(), 16);
  EXPECT_EQ(stats->known_error_count(), 17);
  EXPECT_EQ(stats->levels(1).unsigned_count(), 18);
}

}  // namespace
}  // namespace fuseline::service
