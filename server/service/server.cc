#include "server/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/service/admin_service.h"
#include "server/service/call_runner.h"
#include "server/service/compile_service.h"
#include "server/service/execute_service.h"
#include "server/service/metrics.h"
#include "server/service/metrics_endpoint.h"

namespace fuseline::service {
namespace {

constexpr int64_t kMinMessageBytes = 1 << 20;
constexpr int64_t kMaxMessageBytes = std::numeric_limits<int32_t>::max();  // gRPC's own bound
// After cancelling what did not finish: time for its threads to notice.
constexpr absl::Duration kCancelGrace = absl::Seconds(2);
// Names for grpc.health.v1.Health; "" is the whole server.
constexpr const char* kHealthNames[] = {"", "fuseline.v1.CompileService", "fuseline.v1.ExecuteService",
                                        "fuseline.v1.AdminService"};

int Workers(int wanted, int per_core, int least) {
  if (wanted > 0) return wanted;
  return std::max(least, per_core * static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

class Server::Impl {
 public:
  Impl(Engine& engine, ServerOptions options)
      : engine_(engine),
        options_(std::move(options)),
        started_(absl::Now()),
        runner_(RunnerOptions(options_, metrics_)),
        compile_(MakeCompileService(engine, runner_)),
        execute_(MakeExecuteService(engine, runner_)),
        admin_(MakeAdminService(engine, runner_,
                                {options_.version, options_.max_message_bytes, started_, options_.accepts_imports})) {}

  absl::Status Start() {
    if (options_.max_message_bytes < kMinMessageBytes || options_.max_message_bytes > kMaxMessageBytes) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "max_message_bytes",
                             absl::StrCat("max_message_bytes: ", options_.max_message_bytes, " is outside ",
                                          kMinMessageBytes, " to ", kMaxMessageBytes));
    }
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                              MakeServerCredentials(options_.tls));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // does nothing the second time
    grpc::ServerBuilder builder;
    // Without this a second server on the same port would silently take half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.max_calls_per_connection);
    // Clients ask after a silent server every 10 s while a call waits; gRPC would hang up on them.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    // What gRPC itself holds of messages that come and go; near it, it reads more slowly.
    grpc::ResourceQuota quota("fuseline");
    quota.Resize(static_cast<size_t>(options_.max_inflight_bytes + 2 * options_.max_message_bytes));
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options_.max_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(options_.max_message_bytes));
    builder.AddListeningPort(options_.listen, credentials, &port_);
    builder.RegisterService(compile_.get());
    builder.RegisterService(execute_.get());
    builder.RegisterService(admin_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_ = nullptr;
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "listen",
                       absl::StrCat("can't listen on '", options_.listen, "': bad address, or in use"));
    }
    if (!options_.metrics_listen.empty()) {
      FUSELINE_ASSIGN_OR_RETURN(metrics_endpoint_,
                                MetricsEndpoint::Start(options_.metrics_listen, [this] { return CollectMetrics(); }));
    }
    SetHealth(true);
    return absl::OkStatus();
  }

  bool Drain(absl::Duration grace) {
    absl::MutexLock lock(&drain_mutex_);
    if (server_ == nullptr) return true;
    SetHealth(false);
    runner_.StartDraining();
    // The server still listens meanwhile, so that clients are told to go elsewhere and health checks are answered.
    const bool done = runner_.WaitUntilIdle(absl::Now() + grace);
    server_->Shutdown(absl::ToChronoTime(absl::Now() + (done ? absl::Milliseconds(200) : kCancelGrace)));
    server_ = nullptr;
    return done;
  }

  bool is_unix() const { return absl::StartsWith(options_.listen, "unix:"); }
  int port() const { return is_unix() ? 0 : port_; }
  int metrics_port() const { return metrics_endpoint_ != nullptr ? metrics_endpoint_->port() : 0; }
  std::string address() const {
    if (is_unix()) return options_.listen;
    return absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port_);
  }

 private:
  static CallRunnerOptions RunnerOptions(const ServerOptions& options, Metrics& metrics) {
    CallRunnerOptions runner;
    runner.compile_workers = Workers(options.compile_workers, 0, 64);
    runner.execute_workers = Workers(options.execute_workers, 4, 16);
    runner.max_compile_queue = options.max_compile_queue;
    runner.max_execute_queue = options.max_execute_queue;
    runner.max_streams = options.max_streams;
    runner.max_inflight_bytes = options.max_inflight_bytes;
    runner.stream_idle = options.stream_idle;
    runner.log = [&metrics, log = options.log](const CallRecord& record) {
      metrics.Observe(record);
      if (log) log(record);
    };
    return runner;
  }

  std::vector<MetricFamily> CollectMetrics() const {
    MetricSources sources;
    sources.engine = engine_.Info();
    sources.cache = engine_.CacheStats();
    sources.tensors = engine_.tensors().stats();
    sources.calls = runner_.stats();
    sources.version = options_.version;
    sources.started = started_;
    sources.serving = !runner_.draining();
    return metrics_.Collect(sources);
  }

  void SetHealth(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    if (health == nullptr) return;
    for (const char* name : kHealthNames) health->SetServingStatus(name, serving);
  }

  Engine& engine_;
  const ServerOptions options_;
  const absl::Time started_;
  int port_ = 0;
  Metrics metrics_;
  // In this order: a service uses the runner, the server its services.
  CallRunner runner_;
  std::unique_ptr<grpc::Service> compile_;
  std::unique_ptr<grpc::Service> execute_;
  std::unique_ptr<grpc::Service> admin_;
  absl::Mutex drain_mutex_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<MetricsEndpoint> metrics_endpoint_;  // serves while the server drains
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Drain(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Engine& engine, ServerOptions options) {
  auto impl = std::make_unique<Impl>(engine, std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->port(); }
int Server::metrics_port() const { return impl_->metrics_port(); }
std::string Server::address() const { return impl_->address(); }
bool Server::Drain(absl::Duration grace) { return impl_->Drain(grace); }

}  // namespace fuseline::service
