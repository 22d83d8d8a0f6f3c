#include "server/service/metrics.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/service/process_stats.h"

namespace fuseline::service {
namespace {

// Calls by fingerprint take tens of microseconds, large compilations tens of seconds: a factor of about three each.
constexpr double kCallBounds[] = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
constexpr double kBuildBounds[] = {0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
// Runs of small graphs take microseconds.
constexpr double kRunBounds[] = {0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};

// Collects families; a family's samples are added one after the other.
class Families {
 public:
  void Begin(MetricKind kind, std::string name, std::string help) {
    families_.push_back({std::move(name), std::move(help), kind, {}});
  }
  void Add(std::vector<std::pair<std::string, std::string>> labels, double value) {
    families_.back().samples.push_back({std::move(labels), value, {}});
  }
  void Add(std::vector<std::pair<std::string, std::string>> labels, const Histogram& histogram) {
    MetricSample sample = histogram.Sample();
    sample.labels = std::move(labels);
    families_.back().samples.push_back(std::move(sample));
  }
  void Counter(std::string name, std::string help, double value) {
    Begin(MetricKind::kCounter, std::move(name), std::move(help));
    Add({}, value);
  }
  void Gauge(std::string name, std::string help, double value) {
    Begin(MetricKind::kGauge, std::move(name), std::move(help));
    Add({}, value);
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

void AddServer(const MetricSources& sources, Families& out) {
  out.Begin(MetricKind::kGauge, "fuseline_build_info",
            "The server's version and the identity of its code generators; always 1.");
  out.Add({{"version", sources.version}, {"compiler_identity", sources.engine.compiler_identity}}, 1);
  out.Gauge("fuseline_start_time_seconds", "When the server started, since 1970.",
            absl::ToUnixMicros(sources.started) / 1e6);
  out.Gauge("fuseline_serving", "1 while the server takes work, 0 while it drains.", sources.serving ? 1 : 0);
  out.Gauge("fuseline_warnings", "What the server does without at the moment; GetServerInfo says what.",
            static_cast<double>(sources.engine.warnings.size()));
}

void AddLanes(const CallRunner::Stats& calls, Families& out) {
  const std::pair<const char*, const WorkerPool::Stats*> lanes[] = {
      {"compile", &calls.compile}, {"execute", &calls.execute}, {"stream", &calls.stream}};
  out.Begin(MetricKind::kGauge, "fuseline_calls_running", "Calls that have a thread.");
  for (const auto& [lane, stats] : lanes) out.Add({{"lane", lane}}, static_cast<double>(stats->running));
  out.Begin(MetricKind::kGauge, "fuseline_calls_waiting", "Calls that wait for a thread.");
  for (const auto& [lane, stats] : lanes) out.Add({{"lane", lane}}, static_cast<double>(stats->waiting));
  out.Gauge("fuseline_inflight_request_bytes", "Bytes of the requests that wait and run.",
            static_cast<double>(calls.inflight_bytes));
}

void AddCache(const cache::StoreStats& cache, Families& out) {
  using Level = cache::LevelStats;
  const auto add = [&](MetricKind kind, const char* name, const char* help, int64_t Level::*field, bool all) {
    out.Begin(kind, name, help);
    for (const Level& level : cache.levels) {
      if (all || level.level != "all") out.Add({{"level", level.level}}, static_cast<double>(level.*field));
    }
  };
  add(MetricKind::kCounter, "fuseline_cache_hits_total", "Lookups that found an artifact; level all: in any level.",
      &Level::hits, true);
  add(MetricKind::kCounter, "fuseline_cache_misses_total", "Lookups that found none.", &Level::misses, true);
  add(MetricKind::kCounter, "fuseline_cache_corrupt_total", "Entries dropped because a check failed.", &Level::corrupt,
      false);
  add(MetricKind::kCounter, "fuseline_cache_unsigned_total",
      "Of those, entries that were not signed, or signed wrongly, where entries must be.", &Level::unsigned_entries,
      false);
  add(MetricKind::kCounter, "fuseline_cache_evictions_total", "Entries dropped to make room, or because of their age.",
      &Level::evictions, false);
  add(MetricKind::kCounter, "fuseline_cache_errors_total", "Reads and writes that failed.", &Level::errors, false);
  add(MetricKind::kGauge, "fuseline_cache_entries", "Entries.", &Level::entries, false);
  add(MetricKind::kGauge, "fuseline_cache_bytes", "Size of the entries.", &Level::size_bytes, false);
  out.Begin(MetricKind::kGauge, "fuseline_cache_available",
            "1 where the level is used, 0 where the server goes on without it.");
  for (const Level& level : cache.levels) {
    if (level.level != "all") out.Add({{"level", level.level}}, level.available ? 1 : 0);
  }
  out.Counter("fuseline_builds_total", "Artifacts compiled.", static_cast<double>(cache.builds));
  out.Counter("fuseline_build_errors_total", "Builds that ended without an artifact.",
              static_cast<double>(cache.build_errors));
  out.Counter("fuseline_known_errors_total", "Requests answered with a failure that is remembered, without a build.",
              static_cast<double>(cache.known_errors));
  out.Counter("fuseline_build_joins_total", "Requests that shared another's build.", static_cast<double>(cache.joins));
  out.Counter("fuseline_build_seconds_total", "Time that builds took.", cache.build_seconds);
  out.Counter("fuseline_build_seconds_saved_total", "Time that building what hits served would have taken.",
              cache.seconds_saved);
  out.Gauge("fuseline_builds_waiting", "Builds that wait for a thread.", static_cast<double>(cache.builds_waiting));
  out.Gauge("fuseline_builds_running", "Builds that run.", static_cast<double>(cache.builds_running));
}

void AddSharedCache(const cache::SharedCacheStats& shared, Families& out) {
  out.Gauge("fuseline_shared_cache_breaker", "0: the shared cache is in use; 1: it is being tried; 2: it is not asked.",
            shared.breaker_state);
  out.Counter("fuseline_shared_cache_breaker_opened_total", "How often the shared cache failed and was left alone.",
              static_cast<double>(shared.breaker_opened));
  out.Gauge("fuseline_shared_cache_queue_bytes", "Artifacts that wait to be written to the shared cache.",
            static_cast<double>(shared.queue_bytes));
  out.Counter("fuseline_shared_cache_queue_dropped_total", "Writes to the shared cache that were given up.",
              static_cast<double>(shared.queue_drops));
  out.Gauge("fuseline_leases_held", "Builds that this server has for all.", static_cast<double>(shared.leases_held));
  out.Gauge("fuseline_lease_builds_watched", "Builds of other servers that are waited for here.",
            static_cast<double>(shared.builds_watched));
  out.Counter("fuseline_lease_acquired_total", "Leases got, each for a build.",
              static_cast<double>(shared.leases_acquired));
  out.Counter("fuseline_lease_waited_total", "Builds that another server had the lease of.",
              static_cast<double>(shared.leases_waited));
  out.Counter("fuseline_lease_taken_over_total", "Leases got after another server had let its own expire.",
              static_cast<double>(shared.leases_taken_over));
  out.Counter("fuseline_lease_lost_total", "Leases that expired while this server still built.",
              static_cast<double>(shared.leases_lost));
}

void AddCompilers(const EngineInfo& engine, Families& out) {
  using Workers = compiler::WorkerStats;
  const auto add = [&](MetricKind kind, const char* name, const char* help,
                       std::vector<std::pair<const char*, int64_t Workers::*>> fields, const char* label) {
    out.Begin(kind, name, help);
    for (const CompilerInfo& compiler : engine.compilers) {
      for (const auto& [value, field] : fields)
        out.Add({{"compiler", compiler.name}, {label, value}}, static_cast<double>(compiler.workers.*field));
    }
  };
  out.Begin(MetricKind::kCounter, "fuseline_kernels_total",
            "Kernels of the artifacts that were built: compiled, or taken from an artifact of other sizes.");
  out.Add({{"origin", "compiled"}}, static_cast<double>(engine.kernels_compiled));
  out.Add({{"origin", "reused"}}, static_cast<double>(engine.kernels_reused));
  out.Begin(MetricKind::kCounter, "fuseline_compiler_workers_started_total", "Compiler processes started.");
  for (const CompilerInfo& compiler : engine.compilers)
    out.Add({{"compiler", compiler.name}}, static_cast<double>(compiler.workers.started));
  add(MetricKind::kCounter, "fuseline_compiler_workers_ended_total", "Compiler processes that ended, and why.",
      {{"crashed", &Workers::crashed},
       {"timed_out", &Workers::timed_out},
       {"out_of_memory", &Workers::out_of_memory},
       {"retired", &Workers::retired}},
      "cause");
  add(MetricKind::kGauge, "fuseline_compiler_workers", "Compiler processes there are.",
      {{"busy", &Workers::busy}, {"idle", &Workers::idle}}, "state");
  out.Begin(MetricKind::kGauge, "fuseline_target_available",
            "1 where graphs can be compiled for, or run on, the target.");
  for (const TargetInfo& target : engine.targets) {
    out.Add({{"target", target.target.ToString()}, {"for", "compile"}}, target.can_compile ? 1 : 0);
    out.Add({{"target", target.target.ToString()}, {"for", "execute"}}, target.can_execute ? 1 : 0);
  }
}

void AddDevices(const std::vector<executor::DeviceInfo>& devices, Families& out) {
  using Device = executor::DeviceInfo;
  const auto add = [&](MetricKind kind, const char* name, const char* help, const auto& value) {
    out.Begin(kind, name, help);
    for (const Device& device : devices) {
      out.Add({{"device", absl::StrCat(device.ordinal)}, {"target", device.target.ToString()}},
              static_cast<double>(value(device)));
    }
  };
  add(MetricKind::kGauge, "fuseline_device_healthy", "1 while the device is in rotation.",
      [](const Device& d) { return d.healthy ? 1 : 0; });
  add(MetricKind::kCounter, "fuseline_device_resets_total", "How often the device's context was lost and built again.",
      [](const Device& d) { return d.resets; });
  add(MetricKind::kCounter, "fuseline_device_executions_total", "Runs that succeeded.",
      [](const Device& d) { return d.executions; });
  add(MetricKind::kCounter, "fuseline_device_failures_total", "Runs that the device failed.",
      [](const Device& d) { return d.failures; });
  add(MetricKind::kGauge, "fuseline_device_queue_depth", "Runs that wait for the device or are on it.",
      [](const Device& d) { return d.queue_depth; });
  add(MetricKind::kCounter, "fuseline_device_queue_seconds_total", "Time that runs have waited for the device.",
      [](const Device& d) { return d.queue_seconds; });
  add(MetricKind::kCounter, "fuseline_device_run_seconds_total", "Time that runs have taken, with transfers.",
      [](const Device& d) { return d.run_seconds; });
  add(MetricKind::kCounter, "fuseline_device_received_bytes_total", "Inputs moved into the device's memory.",
      [](const Device& d) { return d.bytes_to_device; });
  add(MetricKind::kCounter, "fuseline_device_sent_bytes_total", "Results moved out of it.",
      [](const Device& d) { return d.bytes_to_host; });
  add(MetricKind::kGauge, "fuseline_device_memory_bytes", "The device's memory.",
      [](const Device& d) { return d.memory_bytes; });
  add(MetricKind::kGauge, "fuseline_device_memory_used_bytes", "Of it, used by the server.",
      [](const Device& d) { return d.memory_used_bytes; });
  add(MetricKind::kGauge, "fuseline_device_memory_reserved_bytes", "Of it, used by the server or held free for reuse.",
      [](const Device& d) { return d.memory_reserved_bytes; });
  add(MetricKind::kGauge, "fuseline_device_kept_bytes", "Of it, used by kept tensors and copies of them.",
      [](const Device& d) { return d.kept_bytes; });
}

void AddTensors(const executor::TensorStoreStats& tensors, Families& out) {
  out.Gauge("fuseline_tensors", "Kept tensors.", static_cast<double>(tensors.tensors));
  out.Gauge("fuseline_tensor_bytes", "Size of the kept tensors.", static_cast<double>(tensors.size_bytes));
  out.Counter("fuseline_tensor_puts_total", "Tensors that were kept.", static_cast<double>(tensors.puts));
  out.Counter("fuseline_tensor_expired_total", "Kept tensors dropped at the end of their lease.",
              static_cast<double>(tensors.expired));
  out.Counter("fuseline_tensor_refused_total", "Tensors refused over a quota or the room for all.",
              static_cast<double>(tensors.refused));
}

void AddProcess(Families& out) {
  const ProcessStats process = ReadProcessStats();
  out.Gauge("process_resident_memory_bytes", "Memory of the server's process.",
            static_cast<double>(process.resident_bytes));
  out.Gauge("process_open_fds", "Open file descriptors.", static_cast<double>(process.open_files));
  out.Gauge("process_max_fds", "The most file descriptors there may be.", static_cast<double>(process.max_open_files));
  out.Gauge("process_threads", "Threads.", static_cast<double>(process.threads));
  out.Counter("process_cpu_seconds_total", "Processor time, user's and system's.", process.cpu_seconds);
}

}  // namespace

void Histogram::Observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

MetricSample Histogram::Sample() const {
  MetricSample sample;
  sample.value = sum_;
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    sample.buckets.emplace_back(i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity(), count);
  }
  return sample;
}

Metrics::OfMethod::OfMethod() : seconds(kCallBounds), queue_seconds(kCallBounds) {}
Metrics::OfWork::OfWork() : build_seconds(kBuildBounds), device_queue_seconds(kRunBounds), run_seconds(kRunBounds) {}

void Metrics::Observe(const CallRecord& record) {
  absl::MutexLock lock(&mutex_);
  OfMethod& method = methods_[record.method];
  method.seconds.Observe(static_cast<double>(record.latency_micros) / 1e6);
  method.queue_seconds.Observe(static_cast<double>(record.queue_micros) / 1e6);
  method.request_bytes += record.request_bytes;
  method.response_bytes += record.response_bytes;
  ++method.by_code_and_reason[{record.code, record.reason}];
  const auto observe = [](Histogram& histogram, int64_t micros) {
    if (micros >= 0) histogram.Observe(static_cast<double>(micros) / 1e6);
  };
  observe(work_.build_seconds, record.notes.build_micros);
  observe(work_.device_queue_seconds, record.notes.device_queue_micros);
  observe(work_.run_seconds, record.notes.run_micros);
}

std::vector<MetricFamily> Metrics::Collect(const MetricSources& sources) const {
  std::map<std::string, OfMethod> methods;
  OfWork work;
  {
    absl::MutexLock lock(&mutex_);
    methods = methods_;
    work = work_;
  }
  Families out;
  AddServer(sources, out);
  out.Begin(MetricKind::kCounter, "fuseline_calls_total", "Calls answered, by code and reason.");
  for (const auto& [name, method] : methods) {
    for (const auto& [key, count] : method.by_code_and_reason)
      out.Add({{"method", name}, {"code", key.first}, {"reason", key.second}}, static_cast<double>(count));
  }
  out.Begin(MetricKind::kHistogram, "fuseline_call_seconds", "From a request's arrival to its answer.");
  for (const auto& [name, method] : methods) out.Add({{"method", name}}, method.seconds);
  out.Begin(MetricKind::kHistogram, "fuseline_call_queue_seconds", "Of that, waiting for a thread.");
  for (const auto& [name, method] : methods) out.Add({{"method", name}}, method.queue_seconds);
  out.Begin(MetricKind::kCounter, "fuseline_request_bytes_total", "Bytes of requests.");
  for (const auto& [name, method] : methods) out.Add({{"method", name}}, static_cast<double>(method.request_bytes));
  out.Begin(MetricKind::kCounter, "fuseline_response_bytes_total", "Bytes of responses.");
  for (const auto& [name, method] : methods) out.Add({{"method", name}}, static_cast<double>(method.response_bytes));
  AddLanes(sources.calls, out);
  AddCache(sources.cache, out);
  if (sources.cache.shared.has_value()) AddSharedCache(*sources.cache.shared, out);
  out.Begin(MetricKind::kHistogram, "fuseline_call_build_seconds",
            "What the builds took that calls started or joined.");
  out.Add({}, work.build_seconds);
  AddCompilers(sources.engine, out);
  out.Begin(MetricKind::kHistogram, "fuseline_run_seconds", "What runs took on their devices, with transfers.");
  out.Add({}, work.run_seconds);
  out.Begin(MetricKind::kHistogram, "fuseline_run_queue_seconds", "What runs waited for their devices.");
  out.Add({}, work.device_queue_seconds);
  AddDevices(sources.engine.devices, out);
  AddTensors(sources.tensors, out);
  AddProcess(out);
  return out.Take();
}

}  // namespace fuseline::service
