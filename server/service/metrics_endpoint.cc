// Tested by tests/unit/service/metrics_test.cc
#include "server/service/metrics_endpoint.h"

#include <exception>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/error.h"

// The programs that are carried to other machines have no HTTP server: Debian has it as a shared library only.
#ifdef FUSELINE_HAVE_PROMETHEUS
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#endif

namespace fuseline::service {

#ifdef FUSELINE_HAVE_PROMETHEUS
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

class Families final : public prometheus::Collectable {
 public:
  explicit Families(MetricsEndpoint::Collect collect) : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> out;
    for (const MetricFamily& family : collect_()) {
      prometheus::MetricFamily& to = out.emplace_back();
      to.name = family.name;
      to.help = family.help;
      to.type = TypeOf(family.kind);
      for (const MetricSample& sample : family.samples) {
        prometheus::ClientMetric& metric = to.metric.emplace_back();
        for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
        metric.counter.value = sample.value;
        metric.gauge.value = sample.value;
        metric.histogram.sample_sum = sample.value;
        if (!sample.buckets.empty()) metric.histogram.sample_count = sample.buckets.back().second;
        for (const auto& [bound, count] : sample.buckets) metric.histogram.bucket.push_back({count, bound});
      }
    }
    return out;
  }

 private:
  const MetricsEndpoint::Collect collect_;
};

class PrometheusEndpoint final : public MetricsEndpoint {
 public:
  // Throws what its library throws.
  PrometheusEndpoint(const std::string& listen, Collect collect)
      : families_(std::make_shared<Families>(std::move(collect))), exposer_(listen) {
    exposer_.RegisterCollectable(families_, "/metrics");
  }
  int port() const override {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : ports[0];
  }

 private:
  const std::shared_ptr<Families> families_;
  prometheus::Exposer exposer_;  // its threads end before what they collect
};

}  // namespace
#endif

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& listen, Collect collect) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 ||
      port > 65535 || listen.find(',') != std::string::npos) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "metrics_listen",
                           absl::StrCat("metrics_listen: '", listen, "' is not HOST:PORT"));
  }
#ifdef FUSELINE_HAVE_PROMETHEUS
  try {
    return std::unique_ptr<MetricsEndpoint>(new PrometheusEndpoint(listen, std::move(collect)));
  } catch (const std::exception& e) {
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "metrics_listen",
                     absl::StrCat("can't serve metrics on '", listen, "': bad address, or in use"));
  }
#else
  return Unimplemented("metrics_listen", "this build of the server has no HTTP server for metrics");
#endif
}

}  // namespace fuseline::service
