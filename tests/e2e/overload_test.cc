// Ten times what the server can do: what it has no room for is refused at once, what it takes is done in the time that
// its queue allows, every call has one answer, and memory does not grow. tests/bench/overload_bench.cc does the same
// for minutes, with stricter bounds.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/overload_load.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

constexpr int kQueue = 16;

class OverloadTest : public ::testing::TestWithParam<LoadKind> {};

TEST_P(OverloadTest, TenTimesTheCapacityIsRefusedOrDoneInTime) {
  const TemporaryFolder folder;
  ServerProcess server(folder.path(), {"--cache_dir", "", "--cache_memory_mb=4", "--no-cuda", "--cpu_threads=1",
                                       "--log_level=off", absl::StrCat("--max_queue=", kQueue)});
  ASSERT_TRUE(server.running()) << server.log();
  const absl::StatusOr<Unloaded> unloaded = MeasureUnloaded(server.address(), GetParam(), absl::Seconds(1.5));
  if (!unloaded.ok() && unloaded.status().code() == absl::StatusCode::kFailedPrecondition)
    GTEST_SKIP() << unloaded.status();
  ASSERT_OK(unloaded);
  LoadOptions options;
  options.kind = GetParam();
  options.calls_per_second = 10 * unloaded->calls_per_second;
  options.duration = absl::Seconds(6);
  options.server = server.pid();
  const LoadReport report = OfferLoad(server.address(), options);
  std::cout << report.sent << " calls, " << report.admitted.count << " admitted (p99 " << report.admitted.p99_ms
            << " ms), " << report.refused.count << " refused (p99 " << report.refused.p99_ms << " ms), memory "
            << report.warm_mib << " -> " << report.late_mib << " MiB; unloaded p99 " << unloaded->latencies.p99_ms
            << " ms, " << unloaded->calls_per_second << " calls/s\n";
  EXPECT_EQ(report.answered, report.sent);
  EXPECT_EQ(report.answered_twice, 0);
  EXPECT_EQ(report.unexpected, 0) << (report.unexpected_errors.empty() ? "" : report.unexpected_errors.begin()->first);
  EXPECT_EQ(report.without_retry_delay, 0);
  EXPECT_GT(report.admitted.count, 10);
  EXPECT_GT(report.refused.count, report.admitted.count);
  // What waits for a thread and what waits for the device, one after the other.
  const double queue_ms = 1000 * (2 * kQueue + 1) / unloaded->calls_per_second;
  // Half a second for a machine that does other things too.
  EXPECT_LT(report.admitted.p99_ms, 2 * (unloaded->latencies.p99_ms + queue_ms) + 500);
  EXPECT_LT(report.refused.p99_ms, 500);
#if !defined(__SANITIZE_ADDRESS__)
  // The sanitizer keeps what is freed in quarantine.
  EXPECT_LT(report.late_mib, 1.05 * report.warm_mib + 16);
#endif
}

INSTANTIATE_TEST_SUITE_P(Kinds, OverloadTest, ::testing::Values(LoadKind::kExecute, LoadKind::kCompile),
                         [](const auto& info) { return info.param == LoadKind::kExecute ? "Runs" : "Compilations"; });

}  // namespace
}  // namespace fuseline::testing
