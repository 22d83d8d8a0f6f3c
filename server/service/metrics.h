// What the server counts, as families of metrics. docs/metrics.md lists them all, and a test keeps it true.
// Pipeline: CallRecord of every call -> Metrics; statistics of engine and runner -> Metrics -> MetricFamily[] ->
// MetricsEndpoint. Units: seconds and bytes, as the names say. Thread-safety: thread-safe; Observe holds a lock for
// well under a microsecond, and collecting never makes it wait longer. Tested by tests/unit/service/metrics_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/engine/engine.h"
#include "server/service/call_log.h"
#include "server/service/call_runner.h"

namespace fuseline::service {

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;  // counters and gauges; of a histogram, the sum
  // Histograms: how many observations are at most each bound; the last bound is infinity.
  std::vector<std::pair<double, uint64_t>> buckets;
};

struct MetricFamily {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kGauge;
  std::vector<MetricSample> samples;
};

// Observations by bucket. Thread-compatible.
class Histogram {
 public:
  // `bounds` ascend, without infinity, and outlive it.
  explicit Histogram(absl::Span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1, 0) {}
  void Observe(double value);
  MetricSample Sample() const;

 private:
  absl::Span<const double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// What is not counted here but asked for when it is collected.
struct MetricSources {
  EngineInfo engine;
  cache::StoreStats cache;
  executor::TensorStoreStats tensors;
  CallRunner::Stats calls;
  std::string version;
  absl::Time started;
  bool serving = true;
};

class Metrics {
 public:
  void Observe(const CallRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<MetricFamily> Collect(const MetricSources& sources) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct OfMethod {
    OfMethod();
    Histogram seconds;
    Histogram queue_seconds;
    int64_t request_bytes = 0;
    int64_t response_bytes = 0;
    std::map<std::pair<std::string, std::string>, int64_t> by_code_and_reason;
  };
  struct OfWork {
    OfWork();
    Histogram build_seconds;
    Histogram device_queue_seconds;
    Histogram run_seconds;
  };

  mutable absl::Mutex mutex_;
  std::map<std::string, OfMethod> methods_ ABSL_GUARDED_BY(mutex_);  // our own names: a bounded number
  OfWork work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::service
