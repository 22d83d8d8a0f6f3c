// Offers a server several times what it can do, and says what became of every call.
// Pipeline: address -> MeasureUnloaded -> OfferLoad at a multiple of its rate -> LoadReport. Clients: an open loop,
// which sends at its rate whatever comes back, and some closed loops, which send again when they are answered.
// Thread-safety: thread-compatible. Blocking: for the given time, and until every call is answered.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fuseline::testing {

// What is offered: runs of one graph (a sum over 2^24 exponentials of a 16 KiB input), or compilations of graphs that
// no one has asked for before.
enum class LoadKind : uint8_t { kExecute, kCompile };

struct Latencies {
  int64_t count = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double most_ms = 0;
};

struct Unloaded {
  Latencies latencies;          // of one client after the other
  double calls_per_second = 0;  // of several clients in closed loops: the capacity
};
absl::StatusOr<Unloaded> MeasureUnloaded(const std::string& address, LoadKind kind, absl::Duration duration);

struct LoadOptions {
  LoadKind kind = LoadKind::kExecute;
  double calls_per_second = 0;  // of the open loop
  int closed_loops = 4;
  absl::Duration duration = absl::Seconds(10);
  pid_t server = -1;  // whose memory is sampled
};

struct LoadReport {
  int64_t sent = 0;
  int64_t answered = 0;  // of those
  int64_t answered_twice = 0;
  int64_t unexpected = 0;  // neither OK nor refused for a full queue
  int64_t without_retry_delay = 0;
  std::map<std::string, int64_t> unexpected_errors;  // the first words of some of them
  Latencies admitted;
  Latencies refused;
  double admitted_per_second = 0;
  std::vector<double> resident_mib;  // of the server, over time
  // The most after the first fifth, against the most within it: what grew after the server was warm.
  double warm_mib = 0;
  double late_mib = 0;
};
LoadReport OfferLoad(const std::string& address, const LoadOptions& options);

}  // namespace fuseline::testing
