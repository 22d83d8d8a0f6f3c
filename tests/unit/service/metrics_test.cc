#include "server/service/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/service/metrics_endpoint.h"
#include "server/service/process_stats.h"
#include "tests/testing/http_get.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::HttpGet;
using ::fuseline::testing::StatusIs;

CallRecord Record(const std::string& method, const std::string& code, const std::string& reason, int64_t micros) {
  CallRecord record;
  record.method = method;
  record.code = code;
  record.reason = reason;
  record.latency_micros = micros;
  record.queue_micros = micros / 2;
  record.request_bytes = 10;
  record.response_bytes = 20;
  return record;
}

MetricSources Sources() {
  const FakeEngine engine;
  MetricSources sources;
  sources.engine = engine.Info();
  sources.engine.compilers = {{"host", {1, 2, 3, 4, 5, 6, 7}}};
  sources.engine.warnings = {"no disk"};
  sources.cache = engine.CacheStats();
  sources.cache.shared.emplace().queue_bytes = 99;
  sources.tensors.tensors = 17;
  sources.calls.compile = {3, 4, absl::Seconds(1)};
  sources.calls.inflight_bytes = 1234;
  sources.version = "1.2.3";
  return sources;
}

const MetricFamily* Find(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

// The value of the sample whose labels' values are `values`.
double Value(const std::vector<MetricFamily>& families, const std::string& name,
             const std::vector<std::string>& values = {}) {
  const MetricFamily* family = Find(families, name);
  if (family == nullptr) return -1;
  for (const MetricSample& sample : family->samples) {
    std::vector<std::string> have;
    for (const auto& [label, value] : sample.labels) have.push_back(value);
    if (have == values) return sample.value;
  }
  return -2;
}

TEST(MetricsTest, CallsAreCountedByMethodCodeAndReason) {
  Metrics metrics;
  for (int i = 0; i < 3; ++i) metrics.Observe(Record("A/B", "OK", "", 200));
  metrics.Observe(Record("A/B", "NOT_FOUND", "HANDLE_UNKNOWN", 2'000'000));
  metrics.Observe(Record("A/C", "OK", "", 1'000'000'000));
  const std::vector<MetricFamily> families = metrics.Collect(Sources());
  EXPECT_EQ(Value(families, "fuseline_calls_total", {"A/B", "OK", ""}), 3);
  EXPECT_EQ(Value(families, "fuseline_calls_total", {"A/B", "NOT_FOUND", "HANDLE_UNKNOWN"}), 1);
  EXPECT_EQ(Value(families, "fuseline_request_bytes_total", {"A/B"}), 40);
  EXPECT_EQ(Value(families, "fuseline_response_bytes_total", {"A/C"}), 20);
  EXPECT_DOUBLE_EQ(Value(families, "fuseline_call_seconds", {"A/B"}), 2.0006);
  const MetricSample& sample = Find(families, "fuseline_call_seconds")->samples[0];
  uint64_t before = 0;
  for (const auto& [bound, count] : sample.buckets) {
    EXPECT_GE(count, before);
    before = count;
    EXPECT_EQ(count, bound < 0.0003 ? 0u : bound < 3 ? 3u : 4u) << bound;
  }
  EXPECT_TRUE(std::isinf(sample.buckets.back().first));
  EXPECT_EQ(sample.buckets.back().second, 4u);
}

TEST(MetricsTest, NotesOfHandlersAreObservedWhereThereAreAny) {
  Metrics metrics;
  metrics.Observe(Record("A/B", "OK", "", 1));
  CallRecord record = Record("A/B", "OK", "", 1);
  record.notes.build_micros = 250'000;
  record.notes.run_micros = 0;
  metrics.Observe(record);
  const std::vector<MetricFamily> families = metrics.Collect(Sources());
  EXPECT_EQ(Find(families, "fuseline_call_build_seconds")->samples[0].buckets.back().second, 1u);
  EXPECT_EQ(Value(families, "fuseline_call_build_seconds"), 0.25);
  EXPECT_EQ(Find(families, "fuseline_run_seconds")->samples[0].buckets.back().second, 1u);
  EXPECT_EQ(Find(families, "fuseline_run_queue_seconds")->samples[0].buckets.back().second, 0u);
}

TEST(MetricsTest, StatisticsOfTheEngineArrive) {
  const std::vector<MetricFamily> families = Metrics().Collect(Sources());
  EXPECT_EQ(Value(families, "fuseline_cache_hits_total", {"memory"}), 3);
  EXPECT_EQ(Value(families, "fuseline_cache_misses_total", {"rocksdb"}), 11);
  EXPECT_EQ(Value(families, "fuseline_cache_corrupt_total", {"memory"}), 5);
  EXPECT_EQ(Value(families, "fuseline_cache_errors_total", {"rocksdb"}), 14);
  EXPECT_EQ(Value(families, "fuseline_cache_available", {"memory"}), 1);
  EXPECT_EQ(Value(families, "fuseline_cache_available", {"rocksdb"}), 0);
  EXPECT_EQ(Value(families, "fuseline_builds_total"), 15);
  EXPECT_EQ(Value(families, "fuseline_build_joins_total"), 16);
  EXPECT_EQ(Value(families, "fuseline_device_healthy", {"0", "cpu"}), 1);
  EXPECT_EQ(Value(families, "fuseline_device_executions_total", {"0", "cpu"}), 3);
  EXPECT_EQ(Value(families, "fuseline_compiler_workers_ended_total", {"host", "crashed"}), 2);
  EXPECT_EQ(Value(families, "fuseline_compiler_workers", {"host", "idle"}), 7);
  EXPECT_EQ(Value(families, "fuseline_tensors"), 17);
  EXPECT_EQ(Value(families, "fuseline_calls_waiting", {"compile"}), 3);
  EXPECT_EQ(Value(families, "fuseline_calls_running", {"compile"}), 4);
  EXPECT_EQ(Value(families, "fuseline_inflight_request_bytes"), 1234);
  EXPECT_EQ(Value(families, "fuseline_warnings"), 1);
  EXPECT_EQ(Value(families, "fuseline_target_available", {"cuda:sm_90", "execute"}), 0);
  EXPECT_EQ(Value(families, "fuseline_build_info", {"1.2.3", "fake compiler"}), 1);
}

TEST(MetricsTest, ProcessIsDescribed) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GE(stats.open_files, 3);
  EXPECT_GT(stats.max_open_files, stats.open_files);
  EXPECT_GE(stats.threads, 1);
}

TEST(MetricsTest, DocumentationListsExactlyTheFamiliesAndTheirKindsAndLabels) {
  std::ifstream file(absl::StrCat(FUSELINE_SOURCE_DIR, "/docs/metrics.md"));
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line == "## What to alert on") break;
    if (!absl::StartsWith(line, "| `")) continue;
    // | `name` | kind | labels | meaning |
    std::vector<std::string> cells;
    std::stringstream cell_stream(line);
    for (std::string cell; std::getline(cell_stream, cell, '|');) cells.push_back(cell);
    ASSERT_GE(cells.size(), 4u) << line;
    documented.insert(absl::StrCat(cells[1].substr(2, cells[1].size() - 4), cells[2], cells[3]));
  }
  Metrics metrics;
  metrics.Observe(Record("A/B", "OK", "", 1));
  std::set<std::string> collected;
  for (const MetricFamily& family : metrics.Collect(Sources())) {
    const char* kind = family.kind == MetricKind::kCounter ? "counter"
                       : family.kind == MetricKind::kGauge ? "gauge"
                                                           : "histogram";
    ASSERT_FALSE(family.samples.empty()) << family.name;
    std::string labels;
    for (const auto& [name, value] : family.samples[0].labels)
      absl::StrAppend(&labels, labels.empty() ? "" : ", ", name);
    collected.insert(absl::StrCat(family.name, " ", kind, "  ", labels, labels.empty() ? "" : " "));
    EXPECT_NE(family.help, "") << family.name;
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.kind == MetricKind::kCounter) << family.name;
  }
  EXPECT_EQ(documented, collected);
}

TEST(MetricsTest, EndpointServesTheTextFormatWhileCallsAreCounted) {
  Metrics metrics;
  metrics.Observe(Record("A/B", "OK", "", 200));
  const absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint =
      MetricsEndpoint::Start("127.0.0.1:0", [&] { return metrics.Collect(Sources()); });
  if (absl::IsUnimplemented(endpoint.status())) GTEST_SKIP() << endpoint.status();
  ASSERT_OK(endpoint);
  ASSERT_GT((*endpoint)->port(), 0);
  std::thread caller([&] {
    for (int i = 0; i < 10'000; ++i) metrics.Observe(Record("A/C", "OK", "", i));
  });
  for (int i = 0; i < 5; ++i) {
    const std::string text = HttpGet((*endpoint)->port(), "/metrics");
    for (const char* line :
         {"HTTP/1.1 200", "# TYPE fuseline_calls_total counter",
          "fuseline_calls_total{method=\"A/B\",code=\"OK\",reason=\"\"} 1",
          "fuseline_call_seconds_bucket{method=\"A/B\",le=\"0.0003\"} 1",
          "fuseline_call_seconds_bucket{method=\"A/B\",le=\"+Inf\"} 1", "fuseline_call_seconds_count{method=\"A/B\"} 1",
          "fuseline_cache_available{level=\"rocksdb\"} 0"}) {
      EXPECT_TRUE(absl::StrContains(text, line)) << line << "\n" << text;
    }
  }
  caller.join();
  EXPECT_TRUE(absl::StrContains(HttpGet((*endpoint)->port(), "/other"), "404"));
}

TEST(MetricsTest, BadAndTakenAddressesAreErrors) {
  const auto none = [] { return std::vector<MetricFamily>(); };
  for (const char* listen : {"", "9000", ":9000", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:1,2"}) {
    EXPECT_THAT(MetricsEndpoint::Start(listen, none), StatusIs(absl::StatusCode::kInvalidArgument, "HOST:PORT"))
        << listen;
  }
  const absl::StatusOr<std::unique_ptr<MetricsEndpoint>> first = MetricsEndpoint::Start("127.0.0.1:0", none);
  if (absl::IsUnimplemented(first.status())) GTEST_SKIP() << first.status();
  ASSERT_OK(first);
  EXPECT_THAT(MetricsEndpoint::Start(absl::StrCat("127.0.0.1:", (*first)->port()), none),
              StatusIs(absl::StatusCode::kUnavailable, "can't serve metrics"));
}

}  // namespace
}  // namespace fuseline::service
