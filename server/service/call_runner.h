// Runs the calls of all services: request id, thread, draining, log line and status, so that a service is only its
// handlers. Pipeline: gRPC's callback API -> CallRunner -> handler(request, CallContext) -> StatusOr<response> -> gRPC.
// Calls of Lane::kInline run on gRPC's thread and must not block; the others run in their lane's WorkerPool. A full
// pool answers RESOURCE_EXHAUSTED (kQueueFull), a draining runner UNAVAILABLE (kDraining), at once; inline calls are
// answered even then. Thread-safety: thread-safe. Ownership: a call owns itself until gRPC is done with it; the runner
// outlives all calls. Tested by tests/unit/service/server_test.cc
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/service/call_context.h"
#include "server/service/call_log.h"
#include "server/service/worker_pool.h"

namespace fuseline::service {

// Which threads a call may use. Compilations take seconds and runs microseconds, so they do not wait for each other.
enum class Lane : uint8_t { kInline, kCompile, kExecute };

struct CallRunnerOptions {
  int compile_workers = 8;
  int execute_workers = 16;
  int max_queue = 1024;  // calls that may wait, for each of the two lanes
  CallLog log;           // may be empty
};

class CallRunner {
 public:
  explicit CallRunner(CallRunnerOptions options);
  ~CallRunner();

  // A unary call. `handler` gets the request, moved out of gRPC's hands, so that results may keep parts of it alive.
  template <typename Request, typename Response>
  using Handler = std::function<absl::StatusOr<Response>(const std::shared_ptr<const Request>&, const CallContext&)>;
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, std::string method, Lane lane,
                                const Request* request, Response* response, Handler<Request, Response> handler);

  // Answers a call with an error before reading any message. For any kind of call: Reactor is
  // grpc::ServerBidiReactor<…> and so on.
  template <typename Reactor>
  Reactor* Refuse(grpc::CallbackServerContext* context, std::string method, const absl::Status& status);

  // From now on, calls that are not inline are refused.
  void StartDraining();
  bool draining() const { return draining_.load(); }
  // Waits until no call that is not inline runs or waits. False where `deadline` came first.
  bool WaitUntilIdle(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What every call has.
  struct CallState {
    CallContext context;
    CallRecord record;
    absl::Time start;
    absl::Time started_work;
    bool counted = false;  // in active_
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };

  CallState Begin(grpc::CallbackServerContext* context, std::string method);
  // Queues `work`, or runs it at once in Lane::kInline. An error: it was refused and will not run.
  absl::Status Dispatch(CallState& state, Lane lane, std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // The call's last word: logs it and makes the status.
  grpc::Status End(grpc::CallbackServerContext* context, CallState& state, const absl::Status& status);
  void Release(CallState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `f`, turning exceptions (of libraries below: our own code throws none) into statuses.
  static absl::Status Guard(const std::function<absl::Status()>& f);

  template <typename Request, typename Response>
  class UnaryCall;
  template <typename Reactor>
  class RefusedCall;

  CallLog log_;
  std::atomic<bool> draining_{false};
  absl::Mutex mutex_;
  int64_t active_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerPool compile_pool_;
  WorkerPool execute_pool_;
};

template <typename Request, typename Response>
class CallRunner::UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(CallRunner& runner, grpc::CallbackServerContext* context, CallState state, Response* response)
      : runner_(runner), context_(context), state_(std::move(state)), response_(response) {}

  void Start(Lane lane, const Request* request, Handler<Request, Response> handler) {
    state_.record.request_bytes = static_cast<int64_t>(request->ByteSizeLong());
    auto owned = std::make_shared<Request>();
    // gRPC made the message for this call and does not look at it again.
    owned->Swap(const_cast<Request*>(request));
    const absl::Status refused = runner_.Dispatch(
        state_, lane, [this, owned = std::shared_ptr<const Request>(std::move(owned)), handler = std::move(handler)] {
          Work(owned, handler);
        });
    if (!refused.ok()) Finish(runner_.End(context_, state_, refused));
  }

 private:
  void Work(const std::shared_ptr<const Request>& request, const Handler<Request, Response>& handler) {
    const absl::Status status = Guard([&]() -> absl::Status {
      if (absl::Status alive = state_.context.CheckAlive(); !alive.ok()) return alive;
      absl::StatusOr<Response> result = handler(request, state_.context);
      if (!result.ok()) return result.status();
      response_->Swap(&*result);
      return absl::OkStatus();
    });
    if (status.ok()) state_.record.response_bytes = static_cast<int64_t>(response_->ByteSizeLong());
    Finish(runner_.End(context_, state_, status));  // the call may be gone after this
  }
  void OnCancel() override { state_.cancelled->store(true); }
  void OnDone() override {
    runner_.Release(state_);
    delete this;
  }

  CallRunner& runner_;
  grpc::CallbackServerContext* const context_;
  CallState state_;
  Response* const response_;
};

template <typename Reactor>
class CallRunner::RefusedCall final : public Reactor {
 public:
  explicit RefusedCall(grpc::Status status) { this->Finish(std::move(status)); }

 private:
  void OnDone() override { delete this; }
};

template <typename Request, typename Response>
grpc::ServerUnaryReactor* CallRunner::Run(grpc::CallbackServerContext* context, std::string method, Lane lane,
                                          const Request* request, Response* response,
                                          Handler<Request, Response> handler) {
  auto* call =
      new UnaryCall<Request, Response>(*this, context, Begin(context, std::move(method)), response);  // deletes itself
  call->Start(lane, request, std::move(handler));
  return call;
}

template <typename Reactor>
Reactor* CallRunner::Refuse(grpc::CallbackServerContext* context, std::string method, const absl::Status& status) {
  CallState state = Begin(context, std::move(method));
  return new RefusedCall<Reactor>(End(context, state, status));  // deletes itself
}

}  // namespace fuseline::service
