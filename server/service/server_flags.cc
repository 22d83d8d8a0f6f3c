#include "server/service/server_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fuseline::service {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Bounds that keep every product with kMiB far from overflow.
constexpr int64_t kMaxMb = int64_t{1} << 30;
constexpr int64_t kMaxCount = int64_t{1} << 31;

// The flags as they are typed, in the units of their names.
struct RawFlags {
  std::string cache_dir;
  int64_t cache_memory_mb = 256;
  int64_t cache_disk_mb = 16 << 10;
  int64_t cache_disk_ttl_hours = 0;
  bool accept_unsigned_imports = false;
  int64_t cache_error_seconds = 60;
  int64_t shared_cache_timeout_ms = 250;
  int64_t shared_cache_queue_mb = 256;
  int64_t shared_cache_ttl_hours = 720;
  int64_t shared_cache_lease_seconds = 10;
  int64_t max_constant_mb = 256;
  int64_t max_message_mb = 512;
  int max_queue = 1024;
  int64_t max_inflight_mb = 4096;
  int64_t stream_idle_seconds = 60;
  int64_t tensor_store_mb = 8 << 10;
  int64_t tensor_quota_mb = 8 << 10;
  int64_t tensor_lease_seconds = 3600;
  int64_t tensor_max_lease_seconds = 7 * 86400;
  int64_t drain_seconds = 30;
  int64_t compile_seconds = 60;
  int64_t compile_memory_mb = 4096;
  bool execute = true;
  std::string log_level = "info";
  std::string log_format = "text";
};

LogLevel ParseLogLevel(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kOff;
}

void AddOptions(CLI::App& app, ServerFlags& flags, RawFlags& raw) {
  const auto number = [&app](const std::string& name, auto& value, int64_t least, int64_t most,
                             const std::string& help) {
    app.add_option(name, value, help)->capture_default_str()->check(CLI::Range(least, most).description(""));
  };
  app.add_option("--listen", flags.server.listen, "address to listen on: HOST:PORT (port 0: a free one) or unix:PATH")
      ->capture_default_str()
      ->group("Server");
  app.add_option("--tls_cert_file", flags.server.tls.cert,
                 "TLS: the server's certificate, PEM, used anew when it changes; empty: plain text");
  app.add_option("--tls_key_file", flags.server.tls.key, "TLS: its key, PEM");
  app.add_option(
      "--tls_client_ca_file", flags.server.tls.client_ca,
      "TLS: authorities, PEM, one of which must have signed a client's certificate; empty: clients need none");
  number("--max_message_mb", raw.max_message_mb, 1, 2047, "largest gRPC message in either direction, MiB");
  number("--max_queue", raw.max_queue, 0, kMaxCount - 1,
         "calls that may wait for a thread, and runs that may wait for a device, where the next two do not say; more "
         "are refused");
  number("--max_compile_queue", flags.server.max_compile_queue, 0, kMaxCount - 1,
         "compilations that may wait for a thread, and builds that may wait for a compiler");
  number("--max_execute_queue", flags.server.max_execute_queue, 0, kMaxCount - 1,
         "runs that may wait for a thread, and for each device");
  number("--max_streams", flags.server.max_streams, 1, 100'000, "streaming calls at a time; more are refused");
  number("--stream_idle_seconds", raw.stream_idle_seconds, 1, 86400,
         "how long a client may keep its stream waiting, seconds");
  number("--max_inflight_mb", raw.max_inflight_mb, 1, kMaxMb,
         "requests that wait and run, all together, MiB; more are refused");
  number("--max_calls_per_connection", flags.server.max_calls_per_connection, 1, 1'000'000,
         "calls of one connection at a time; more wait in the client");
  app.add_option("--metrics_listen", flags.server.metrics_listen,
                 "address of the metrics: HOST:PORT, served at /metrics; empty: none");
  app.add_option("--access_log", flags.access_log,
                 "file for the calls' log lines, opened anew at SIGHUP; empty: with the others");
  number("--drain_seconds", raw.drain_seconds, 0, 86400,
         "time that SIGTERM and SIGINT leave to running calls, seconds");
  app.add_option("--port_file", flags.port_file, "file to write the port to once the server listens");
  app.add_option("--log_level", raw.log_level, "least level that is logged")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_option("--log_format", raw.log_format, "form of log lines: text is key=value")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  for (const char* name :
       {"--tls_cert_file", "--tls_key_file", "--tls_client_ca_file", "--max_message_mb", "--max_queue",
        "--max_compile_queue", "--max_execute_queue", "--max_streams", "--stream_idle_seconds", "--max_inflight_mb",
        "--max_calls_per_connection", "--metrics_listen", "--access_log", "--drain_seconds", "--port_file",
        "--log_level", "--log_format"}) {
    app.get_option(name)->group("Server");
  }

  app.add_option(
      "--cache_dir", raw.cache_dir,
      "folder of the disk cache, made where absent; empty: none [$XDG_CACHE_HOME/fuseline, or ~/.cache/fuseline]");
  number("--cache_memory_mb", raw.cache_memory_mb, 0, kMaxMb, "artifacts kept in memory, MiB");
  number("--cache_disk_mb", raw.cache_disk_mb, 1, kMaxMb, "artifacts kept on disk, MiB");
  number("--cache_disk_ttl_hours", raw.cache_disk_ttl_hours, 0, 1'000'000,
         "artifacts on disk that nobody has used for longer go, hours; 0: never because of their age");
  app.add_option("--cache_seed", flags.engine.cache_seed,
                 "export file whose artifacts are served besides, read-only; empty: none");
  app.add_option(
      "--cache_key_file", flags.engine.cache_key_file,
      "keys that sign what the cache keeps, one a line: ID KEY (hex or base64); the first signs, all verify; "
      "read again at SIGHUP; empty: nothing is signed");
  app.add_option("--cache_namespace", flags.engine.cache_namespace,
                 "salt: artifacts kept under another one are not seen");
  app.add_flag("--accept_unsigned_imports", raw.accept_unsigned_imports,
               "take imports without --cache_key_file too: whoever reaches the port can then have code of theirs run");
  number("--cache_error_seconds", raw.cache_error_seconds, 0, 86400,
         "how long failures that would come again are remembered, seconds; 0: not");
  for (const char* name :
       {"--cache_dir", "--cache_memory_mb", "--cache_disk_mb", "--cache_disk_ttl_hours", "--cache_seed",
        "--cache_key_file", "--cache_namespace", "--accept_unsigned_imports", "--cache_error_seconds"})
    app.get_option(name)->group("Cache");

  cache::SharedCacheOptions& shared = flags.engine.shared_cache;
  app.add_option("--shared_cache", shared.url,
                 "cache that servers share, in Redis: redis://HOST:PORT[/DB], redis+sentinel://HOST:PORT,.../MASTER, "
                 "redis+cluster://HOST:PORT,...; rediss, rediss+sentinel, rediss+cluster for TLS; empty: none");
  app.add_option("--shared_cache_user", shared.user, "its user; empty: Redis' default one");
  app.add_option("--shared_cache_password_file", shared.password_file, "file with its password; empty: none");
  app.add_option("--shared_cache_ca_file", shared.ca_file,
                 "TLS: certificates that are trusted, PEM; empty: the system's");
  app.add_option("--shared_cache_cert_file", shared.cert_file, "TLS: this server's certificate, PEM; empty: none");
  app.add_option("--shared_cache_key_file", shared.key_file, "TLS: its key, PEM");
  number("--shared_cache_timeout_ms", raw.shared_cache_timeout_ms, 1, 60'000,
         "most time for one operation of the shared cache, milliseconds");
  number("--shared_cache_queue_mb", raw.shared_cache_queue_mb, 0, kMaxMb,
         "artifacts that wait to be written to the shared cache, MiB; more are not written");
  number("--shared_cache_ttl_hours", raw.shared_cache_ttl_hours, 0, 10 * 365 * 24,
         "how long the shared cache keeps what nobody uses, hours; 0: until Redis evicts it");
  number("--shared_cache_lease_seconds", raw.shared_cache_lease_seconds, 1, 3600,
         "how long other servers wait for one that died while it built something for all, seconds");
  for (const char* name :
       {"--shared_cache", "--shared_cache_user", "--shared_cache_password_file", "--shared_cache_ca_file",
        "--shared_cache_cert_file", "--shared_cache_key_file", "--shared_cache_timeout_ms", "--shared_cache_queue_mb",
        "--shared_cache_ttl_hours", "--shared_cache_lease_seconds"}) {
    app.get_option(name)->group("Shared cache");
  }

  number("--compile_threads", flags.engine.compile_threads, 0, 4096,
         "threads that compile kernels; 0: one for each core");
  app.add_option("--host_compiler", flags.engine.host_compiler,
                 "C++ compiler for the cpu target; empty: $CXX, then g++, then clang++");
  app.add_option("--nvrtc_path", flags.engine.nvrtc_search_paths,
                 "folder with libnvrtc, searched before the usual ones; may be repeated");
  app.add_flag("--compiler_workers,!--no-compiler_workers", flags.compiler_workers,
               "run the compilers in processes of their own, which contain their crashes, or in the server's "
               "[compiler_workers]");
  number("--compile_seconds", raw.compile_seconds, 1, 86400, "most time for a kernel, seconds");
  number("--compile_memory_mb", raw.compile_memory_mb, 256, kMaxMb, "most memory of a compiler's process, MiB");
  for (const char* name : {"--compile_threads", "--host_compiler", "--nvrtc_path", "--compiler_workers",
                           "--compile_seconds", "--compile_memory_mb"}) {
    app.get_option(name)->group("Compiler");
  }

  number("--cpu_devices", flags.engine.executor.cpu_devices, 0, 1024, "CPU devices; 0: none");
  number("--cpu_threads", flags.engine.executor.cpu_threads, 0, 4096,
         "threads of each CPU device; 0: the cores divided by the CPU devices");
  app.add_flag("--cuda,!--no-cuda", flags.engine.executor.use_cuda,
               "use the CUDA devices that the driver shows, or none of them [cuda]");
  app.add_flag("--device_workers,!--no-device_workers", flags.device_workers,
               "drive each CUDA device in a process of its own, which contains its faults, or all in the server's "
               "[device_workers]");
  app.add_flag("--execute,!--no-execute", raw.execute,
               "run graphs too, or have no device and only compile: for machines that serve others [execute]");
  for (const char* name : {"--cpu_devices", "--cpu_threads", "--cuda", "--device_workers", "--execute"})
    app.get_option(name)->group("Devices");

  number("--tensor_store_mb", raw.tensor_store_mb, 0, kMaxMb, "tensors kept between calls, of all owners, MiB");
  number("--tensor_quota_mb", raw.tensor_quota_mb, 0, kMaxMb, "tensors kept between calls, of one owner, MiB");
  number("--max_tensors", flags.engine.tensors.max_tensors, 0, kMaxCount - 1, "most tensors kept, of all owners");
  number("--tensor_lease_seconds", raw.tensor_lease_seconds, 1, 10 * 365 * 86400,
         "how long a tensor is kept without use, where the client does not say, seconds");
  number("--tensor_max_lease_seconds", raw.tensor_max_lease_seconds, 1, 10 * 365 * 86400,
         "the most that a client may ask for, seconds");
  for (const char* name : {"--tensor_store_mb", "--tensor_quota_mb", "--max_tensors", "--tensor_lease_seconds",
                           "--tensor_max_lease_seconds"}) {
    app.get_option(name)->group("Kept tensors");
  }

  number("--max_nodes", flags.engine.limits.max_nodes, 1, kMaxCount - 1, "most nodes of a graph");
  number("--max_rank", flags.engine.limits.max_rank, 0, 64, "most dims of a tensor");
  number("--max_elements", flags.engine.limits.max_elements, 1, int64_t{1} << 44, "most elements of a tensor");
  number("--max_constant_mb", raw.max_constant_mb, 0, kMaxMb, "most bytes of all constants of a graph, MiB");
  for (const char* name : {"--max_nodes", "--max_rank", "--max_elements", "--max_constant_mb"})
    app.get_option(name)->group("Limits");
}

// As CLI11 takes them: the last one first. "--name=" gives an empty value, for which CLI11 would take the next
// argument.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    const bool empty_value = argument.rfind("--", 0) == 0 && argument.find('=') == argument.size() - 1;
    if (empty_value) argument.pop_back();
    arguments.push_back(std::move(argument));
    if (empty_value) arguments.emplace_back();
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

}  // namespace

std::string DefaultCacheDir() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  // The XDG specification: relative paths are to be ignored.
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty() && cache[0] == '/')
    return absl::StrCat(cache, "/fuseline");
  if (const std::string home = variable("HOME"); !home.empty()) return absl::StrCat(home, "/.cache/fuseline");
  return "";
}

FlagsOutcome ParseServerFlags(int argc, const char* const* argv, const std::string& version) {
  FlagsOutcome outcome;
  ServerFlags flags;
  RawFlags raw;
  CLI::App app("Compiles tensor graphs to fused kernels and runs them, over gRPC.", "fuseline-server");
  try {
    app.set_version_flag("--version", absl::StrCat("fuseline-server ", version), "print the version and exit");
    app.set_help_flag("--help", "print this help and exit");
    app.set_config(
        "--config", "",
        "file with the same names as the flags, without the dashes (TOML: max_queue = 64); the command line wins");
    app.allow_config_extras(CLI::config_extras_mode::error);
    app.get_formatter()->column_width(28);
    AddOptions(app, flags, raw);
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    std::ostringstream err;
    const bool failed = app.exit(e, out, err) != 0;
    outcome.exit_code = failed ? 2 : 0;
    outcome.output = failed ? err.str() : out.str();
    return outcome;
  } catch (const std::exception& e) {  // std::filesystem, iostreams
    outcome.exit_code = 2;
    outcome.output = absl::StrCat(e.what(), "\n");
    return outcome;
  }
  flags.engine.cache_dir = app.count("--cache_dir") > 0 ? raw.cache_dir : DefaultCacheDir();
  if (!raw.execute) {
    flags.engine.executor.cpu_devices = 0;
    flags.engine.executor.use_cuda = false;
  }
  flags.engine.cache_memory_bytes = raw.cache_memory_mb * kMiB;
  flags.engine.cache_disk_bytes = raw.cache_disk_mb * kMiB;
  if (raw.cache_disk_ttl_hours > 0) flags.engine.cache_disk_max_idle = absl::Hours(raw.cache_disk_ttl_hours);
  flags.server.accepts_imports = raw.accept_unsigned_imports || !flags.engine.cache_key_file.empty();
  flags.engine.cache_error_duration = absl::Seconds(raw.cache_error_seconds);
  flags.engine.shared_cache.timeout = absl::Milliseconds(raw.shared_cache_timeout_ms);
  flags.engine.shared_cache.queue_bytes = raw.shared_cache_queue_mb * kMiB;
  flags.engine.shared_cache.ttl = absl::Hours(raw.shared_cache_ttl_hours);
  flags.engine.shared_cache.lease = absl::Seconds(raw.shared_cache_lease_seconds);
  flags.engine.limits.max_constant_bytes = raw.max_constant_mb * kMiB;
  flags.engine.tensors.capacity_bytes = raw.tensor_store_mb * kMiB;
  flags.engine.tensors.owner_quota_bytes = raw.tensor_quota_mb * kMiB;
  flags.engine.tensors.default_lease = absl::Seconds(raw.tensor_lease_seconds);
  flags.engine.tensors.max_lease = absl::Seconds(std::max(raw.tensor_max_lease_seconds, raw.tensor_lease_seconds));
  if (app.count("--max_compile_queue") == 0) flags.server.max_compile_queue = raw.max_queue;
  if (app.count("--max_execute_queue") == 0) flags.server.max_execute_queue = raw.max_queue;
  flags.engine.max_builds_waiting = flags.server.max_compile_queue;
  flags.engine.executor.max_queue = flags.server.max_execute_queue;
  flags.server.max_inflight_bytes = raw.max_inflight_mb * kMiB;
  flags.server.stream_idle = absl::Seconds(raw.stream_idle_seconds);
  flags.engine.compiler_workers.time_limit = absl::Seconds(raw.compile_seconds);
  flags.engine.compiler_workers.memory_limit_bytes = raw.compile_memory_mb * kMiB;
  // 2047 MiB is just under gRPC's bound.
  flags.server.max_message_bytes = raw.max_message_mb * kMiB;
  flags.server.version = version;
  flags.log_level = ParseLogLevel(raw.log_level);
  flags.log_format = raw.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  flags.drain_time = absl::Seconds(raw.drain_seconds);
  outcome.flags = std::move(flags);
  return outcome;
}

}  // namespace fuseline::service
