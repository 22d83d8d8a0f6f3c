// Serves metrics over HTTP in Prometheus' text format, at /metrics.
// Pipeline: collect() -> MetricFamily[] -> MetricsEndpoint -> HTTP.
// Ownership: owns its threads, two: a scraper that is slow holds up scrapers, never calls. Thread-safety: `collect` is
// called on its threads until it is gone. Tested by tests/unit/service/metrics_test.cc
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/service/metrics.h"

namespace fuseline::service {

class MetricsEndpoint {
 public:
  using Collect = std::function<std::vector<MetricFamily>()>;
  // `listen` is HOST:PORT (port 0: a free one). Errors: INVALID_ARGUMENT (kOptionInvalid) where it is malformed;
  // UNAVAILABLE (kInputOutput) where it can't listen; UNIMPLEMENTED (kUnsupported) where this build has no HTTP server.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& listen, Collect collect);
  virtual ~MetricsEndpoint() = default;
  virtual int port() const = 0;
};

}  // namespace fuseline::service
