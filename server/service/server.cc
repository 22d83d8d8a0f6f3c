#include "server/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>

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
#include "server/service/admin_service.h"
#include "server/service/call_runner.h"
#include "server/service/compile_service.h"
#include "server/service/execute_service.h"

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
      : options_(std::move(options)),
        runner_(RunnerOptions(options_)),
        compile_(MakeCompileService(engine, runner_)),
        execute_(MakeExecuteService(engine, runner_)),
        admin_(MakeAdminService(engine, runner_, {options_.version, options_.max_message_bytes, absl::Now()})) {}

  absl::Status Start() {
    if (options_.max_message_bytes < kMinMessageBytes || options_.max_message_bytes > kMaxMessageBytes) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "max_message_bytes",
                             absl::StrCat("max_message_bytes: ", options_.max_message_bytes, " is outside ",
                                          kMinMessageBytes, " to ", kMaxMessageBytes));
    }
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // does nothing the second time
    grpc::ServerBuilder builder;
    // Without this a second server on the same port would silently take half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options_.max_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(options_.max_message_bytes));
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(compile_.get());
    builder.RegisterService(execute_.get());
    builder.RegisterService(admin_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      server_ = nullptr;
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "listen",
                       absl::StrCat("can't listen on '", options_.listen, "': bad address, or in use"));
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
  std::string address() const {
    if (is_unix()) return options_.listen;
    return absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port_);
  }

 private:
  static CallRunnerOptions RunnerOptions(const ServerOptions& options) {
    CallRunnerOptions runner;
    runner.compile_workers = Workers(options.compile_workers, 2, 8);
    runner.execute_workers = Workers(options.execute_workers, 4, 16);
    runner.max_compile_queue = options.max_queue;
    runner.max_execute_queue = options.max_queue;
    runner.log = options.log;
    return runner;
  }

  void SetHealth(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    if (health == nullptr) return;
    for (const char* name : kHealthNames) health->SetServingStatus(name, serving);
  }

  const ServerOptions options_;
  int port_ = 0;
  // In this order: a service uses the runner, the server its services.
  CallRunner runner_;
  std::unique_ptr<grpc::Service> compile_;
  std::unique_ptr<grpc::Service> execute_;
  std::unique_ptr<grpc::Service> admin_;
  absl::Mutex drain_mutex_;
  std::unique_ptr<grpc::Server> server_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Drain(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Engine& engine, ServerOptions options) {
  auto impl = std::make_unique<Impl>(engine, std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

int Server::port() const { return impl_->port(); }
std::string Server::address() const { return impl_->address(); }
bool Server::Drain(absl::Duration grace) { return impl_->Drain(grace); }

}  // namespace fuseline::service
