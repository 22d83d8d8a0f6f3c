// Runs the calls of all services: request id, owner, thread, admission, draining, log line and status, so that a
// service is only its handlers. Pipeline: gRPC's callback API -> CallRunner -> handler(request, CallContext) ->
// StatusOr<response> -> gRPC. Calls of Lane::kInline run on gRPC's thread and must not block; the others run in their
// lane's WorkerPool. A full pool, or too many bytes of requests in the server, answers RESOURCE_EXHAUSTED (kQueueFull)
// with the delay after which to retry, a draining runner UNAVAILABLE (kDraining), at once; inline calls are answered
// even then. Messages are protobuf's or grpc::ByteBuffer. Thread-safety: thread-safe. Ownership: a call owns itself
// until gRPC is done with it; the runner outlives all calls. Tested by tests/unit/service/server_test.cc and
// tests/unit/service/message_stream_test.cc
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
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
#include "server/service/inflight_bytes.h"
#include "server/service/message_stream.h"
#include "server/service/worker_pool.h"

namespace fuseline::service {

// Which threads a call may use. Compilations take seconds and runs microseconds, so they do not wait for each other; a
// stream can be held up by its client, so unary calls do not wait for streams. Streams run in any lane but kInline.
enum class Lane : uint8_t { kInline, kCompile, kExecute, kStream };

struct CallRunnerOptions {
  int compile_workers = 64;  // they mostly wait for builds
  int execute_workers = 16;
  int max_compile_queue = 1024;  // calls that may wait for a thread
  int max_execute_queue = 1024;
  int max_streams = 256;                             // calls of Lane::kStream; more are refused
  int64_t max_inflight_bytes = int64_t{4096} << 20;  // of requests that wait and run
  absl::Duration stream_idle = absl::Seconds(60);    // how long a client may keep its stream waiting
  CallLog log;                                       // may be empty
};

inline int64_t MessageBytes(const google::protobuf::MessageLite& message) {
  return static_cast<int64_t>(message.ByteSizeLong());
}
inline int64_t MessageBytes(const grpc::ByteBuffer& message) { return static_cast<int64_t>(message.Length()); }

class CallRunner {
 public:
  explicit CallRunner(CallRunnerOptions options);
  ~CallRunner();

  // A unary call. `handler` gets the request, moved out of gRPC's hands, so that results may keep parts of it alive.
  template <typename Request, typename Response>
  using Handler = std::function<absl::StatusOr<Response>(const std::shared_ptr<const Request>&, const CallContext&)>;
  // May answer on gRPC's thread, where that takes microseconds: true where it did. Not asked while draining.
  template <typename Request, typename Response>
  using FastHandler = std::function<bool(const Request&, const CallContext&, Response&)>;
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, std::string method, Lane lane,
                                const Request* request, Response* response, Handler<Request, Response> handler,
                                const FastHandler<Request, Response>& fast = nullptr);

  // Streaming calls. Reader and writer live as long as the handler runs; what it returns ends the call.
  template <typename Request, typename Response>
  using ServerStreamHandler =
      std::function<absl::Status(const std::shared_ptr<const Request>&, MessageWriter<Response>&, const CallContext&)>;
  template <typename Request, typename Response>
  grpc::ServerWriteReactor<Response>* RunServerStream(grpc::CallbackServerContext* context, std::string method,
                                                      Lane lane, const Request* request,
                                                      ServerStreamHandler<Request, Response> handler);
  template <typename Request, typename Response>
  using ClientStreamHandler = std::function<absl::StatusOr<Response>(MessageReader<Request>&, const CallContext&)>;
  template <typename Request, typename Response>
  grpc::ServerReadReactor<Request>* RunClientStream(grpc::CallbackServerContext* context, std::string method, Lane lane,
                                                    Response* response, ClientStreamHandler<Request, Response> handler);
  template <typename Request, typename Response>
  using BidiHandler =
      std::function<absl::Status(MessageReader<Request>&, MessageWriter<Response>&, const CallContext&)>;
  template <typename Request, typename Response>
  grpc::ServerBidiReactor<Request, Response>* RunBidi(grpc::CallbackServerContext* context, std::string method,
                                                      Lane lane, BidiHandler<Request, Response> handler);

  // Answers a call with an error before reading any message. For any kind of call: Reactor is
  // grpc::ServerBidiReactor<…> and so on.
  template <typename Reactor>
  Reactor* Refuse(grpc::CallbackServerContext* context, std::string method, const absl::Status& status);

  // Part of a call as a task of its own in `lane` (not kInline), which the call waits for before it ends.
  // RESOURCE_EXHAUSTED: the lane's queue is full, and it will not run.
  absl::Status Submit(Lane lane, std::function<void()> task);
  // Room for bytes that a call gathers besides its request. RESOURCE_EXHAUSTED (kQueueFull) where there is none.
  absl::StatusOr<InflightBytes::Hold> HoldBytes(int64_t bytes);
  // Runs `f`, turning exceptions (of libraries below: our own code throws none) into statuses.
  static absl::Status Guard(const std::function<absl::Status()>& f);

  // From now on, calls that are not inline are refused.
  void StartDraining();
  bool draining() const { return draining_.load(); }
  // Waits until no call that is not inline runs or waits. False where `deadline` came first.
  bool WaitUntilIdle(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Stats {
    WorkerPool::Stats compile;
    WorkerPool::Stats execute;
    WorkerPool::Stats stream;
    int64_t inflight_bytes = 0;
  };
  Stats stats() const;

 private:
  // What every call has.
  struct CallState {
    CallContext context;
    CallRecord record;
    absl::Status refused;  // OK, or why the call is not served at all
    absl::Time start;
    absl::Time started_work;
    Lane lane = Lane::kInline;
    bool counted = false;  // in active_
    InflightBytes::Hold held;
    std::unique_ptr<CallNotes> notes = std::make_unique<CallNotes>();  // the context points to it
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };

  CallState Begin(grpc::CallbackServerContext* context, std::string method, Lane lane);
  // Queues `work`, or runs it at once in Lane::kInline. An error: it was refused and will not run.
  absl::Status Dispatch(CallState& state, std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // The call's last word: logs it and makes the status.
  grpc::Status End(grpc::CallbackServerContext* context, CallState& state, absl::Status status);
  void Release(CallState& state) ABSL_LOCKS_EXCLUDED(mutex_);
  WorkerPool& PoolOf(Lane lane);
  absl::Status QueueFull(Lane lane) const;
  // Within its bounds.
  absl::Duration RetryDelay(Lane lane) const;

  template <typename Request, typename Response>
  class UnaryCall;
  template <typename Reactor>
  class RefusedCall;
  template <typename Request, typename Reactor>
  class ReadSide;
  template <typename Response, typename Reactor>
  class WriteSide;
  template <typename Reactor>
  class StreamCall;
  template <typename Request, typename Response>
  class ServerStreamCall;
  template <typename Request, typename Response>
  class ClientStreamCall;
  template <typename Request, typename Response>
  class BidiCall;

  const absl::Duration stream_idle_;
  CallLog log_;
  std::atomic<bool> draining_{false};
  InflightBytes inflight_;
  absl::Mutex mutex_;
  int64_t active_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerPool compile_pool_;
  WorkerPool execute_pool_;
  WorkerPool stream_pool_;
};

template <typename Request, typename Response>
class CallRunner::UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(CallRunner& runner, grpc::CallbackServerContext* context, CallState state, Response* response)
      : runner_(runner), context_(context), state_(std::move(state)), response_(response) {}

  void Start(const Request* request, Handler<Request, Response> handler, const FastHandler<Request, Response>& fast) {
    state_.record.request_bytes = MessageBytes(*request);
    if (fast && state_.refused.ok() && !runner_.draining()) {
      bool answered = false;
      const absl::Status status = Guard([&] {
        answered = fast(*request, state_.context, *response_);
        return absl::OkStatus();
      });
      if (!status.ok() || answered) return Answer(status);
    }
    auto owned = std::make_shared<Request>();
    // gRPC made the message for this call and does not look at it again.
    owned->Swap(const_cast<Request*>(request));
    const absl::Status refused =
        runner_.Dispatch(state_, [this, owned = std::shared_ptr<const Request>(std::move(owned)),
                                  handler = std::move(handler)] { Work(owned, handler); });
    if (!refused.ok()) Answer(refused);
  }

 private:
  void Work(const std::shared_ptr<const Request>& request, const Handler<Request, Response>& handler) {
    Answer(Guard([&]() -> absl::Status {
      if (absl::Status alive = state_.context.CheckAlive(); !alive.ok()) return alive;
      absl::StatusOr<Response> result = handler(request, state_.context);
      if (!result.ok()) return result.status();
      response_->Swap(&*result);
      return absl::OkStatus();
    }));
  }
  // The call may be gone after this.
  void Answer(const absl::Status& status) {
    if (status.ok()) state_.record.response_bytes = MessageBytes(*response_);
    Finish(runner_.End(context_, state_, status));
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

// Reads for the handler, one message ahead.
template <typename Request, typename Reactor>
class CallRunner::ReadSide final : public MessageReader<Request> {
 public:
  explicit ReadSide(StreamCall<Reactor>& call) : call_(call) {}

  absl::StatusOr<bool> Read(Request& message) override {
    if (ended_) return false;
    if (!begun_) ReadOn();
    begun_ = true;
    const absl::StatusOr<bool> read = call_.gate().Wait(StreamGate::Direction::kRead);
    held_ = InflightBytes::Hold();  // of the message before, which the handler is done with
    if (!read.ok()) return read.status();
    if (!*read) {
      ended_ = true;
      if (call_.IsCancelled()) return StreamCall<Reactor>::Gone();
      return false;
    }
    const int64_t bytes = MessageBytes(slot_);
    call_.state().record.request_bytes += bytes;
    absl::StatusOr<InflightBytes::Hold> held = call_.runner().HoldBytes(bytes);
    if (!held.ok()) return held.status();
    held_ = *std::move(held);
    using std::swap;
    swap(message, slot_);
    ReadOn();
    return true;
  }

 private:
  void ReadOn() {
    call_.gate().Begin(StreamGate::Direction::kRead);
    call_.StartRead(&slot_);
  }

  StreamCall<Reactor>& call_;
  Request slot_;
  InflightBytes::Hold held_;
  bool begun_ = false;
  bool ended_ = false;
};

template <typename Response, typename Reactor>
class CallRunner::WriteSide final : public MessageWriter<Response> {
 public:
  explicit WriteSide(StreamCall<Reactor>& call) : call_(call) {}

  absl::Status Write(Response message) override {
    if (absl::Status status = Flush(); !status.ok()) return status;
    call_.state().record.response_bytes += MessageBytes(message);
    slot_ = std::move(message);
    begun_ = true;
    call_.gate().Begin(StreamGate::Direction::kWrite);
    call_.StartWrite(&slot_);
    return absl::OkStatus();
  }
  // Waits for the message that is on its way.
  absl::Status Flush() {
    if (!begun_) return absl::OkStatus();
    const absl::StatusOr<bool> written = call_.gate().Wait(StreamGate::Direction::kWrite);
    if (!written.ok()) return written.status();
    return *written ? absl::OkStatus() : StreamCall<Reactor>::Gone();
  }

 private:
  StreamCall<Reactor>& call_;
  Response slot_;
  bool begun_ = false;
};

// What all streaming calls have. The kinds of calls below add the handler and what it reads and writes.
template <typename Reactor>
class CallRunner::StreamCall : public Reactor {
 public:
  StreamCall(CallRunner& runner, grpc::CallbackServerContext* context, CallState state)
      : runner_(runner),
        context_(context),
        state_(std::move(state)),
        gate_(runner.stream_idle_, state_.context.deadline) {}

  CallRunner& runner() { return runner_; }
  CallState& state() { return state_; }
  StreamGate& gate() { return gate_; }
  bool IsCancelled() const { return state_.cancelled->load() || context_->IsCancelled(); }
  static absl::Status Gone() {
    return MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "the client cancelled the call");
  }

 protected:
  void Begin(std::function<absl::Status()> work) {
    const absl::Status refused = runner_.Dispatch(state_, [this, work = std::move(work)] {
      End(Guard([&]() -> absl::Status {
        if (absl::Status alive = state_.context.CheckAlive(); !alive.ok()) return alive;
        return work();
      }));
    });
    if (!refused.ok()) this->Finish(runner_.End(context_, state_, refused));
  }

 private:
  // The call may be gone after this.
  void End(absl::Status status) {
    // A status must not overtake a message, and a client that takes no messages takes no status either.
    if (gate_.is_under_way(StreamGate::Direction::kWrite)) {
      const absl::StatusOr<bool> written = gate_.Wait(StreamGate::Direction::kWrite);
      if (!written.ok()) {
        context_->TryCancel();
        gate_.WaitUntilDone(StreamGate::Direction::kWrite);
      }
      if (status.ok() && !written.ok()) status = written.status();
      if (status.ok() && !*written) status = Gone();
    }
    this->Finish(runner_.End(context_, state_, std::move(status)));
  }
  void OnCancel() override {
    state_.cancelled->store(true);
    gate_.Cancel();
  }
  void OnDone() override {
    runner_.Release(state_);
    delete this;
  }

  CallRunner& runner_;
  grpc::CallbackServerContext* const context_;
  CallState state_;
  StreamGate gate_;
};

template <typename Request, typename Response>
class CallRunner::ServerStreamCall final : public StreamCall<grpc::ServerWriteReactor<Response>> {
 public:
  using Base = StreamCall<grpc::ServerWriteReactor<Response>>;
  using Base::Base;

  void Start(const Request* request, ServerStreamHandler<Request, Response> handler) {
    this->state().record.request_bytes = MessageBytes(*request);
    auto owned = std::make_shared<Request>();
    owned->Swap(const_cast<Request*>(request));  // as in UnaryCall
    this->Begin([this, owned = std::shared_ptr<const Request>(std::move(owned)), handler = std::move(handler)] {
      return handler(owned, writer_, this->state().context);
    });
  }

 private:
  void OnWriteDone(bool ok) override { this->gate().Done(StreamGate::Direction::kWrite, ok); }

  WriteSide<Response, grpc::ServerWriteReactor<Response>> writer_{*this};
};

template <typename Request, typename Response>
class CallRunner::ClientStreamCall final : public StreamCall<grpc::ServerReadReactor<Request>> {
 public:
  using Base = StreamCall<grpc::ServerReadReactor<Request>>;
  using Base::Base;

  void Start(Response* response, ClientStreamHandler<Request, Response> handler) {
    this->Begin([this, response, handler = std::move(handler)]() -> absl::Status {
      absl::StatusOr<Response> result = handler(reader_, this->state().context);
      if (!result.ok()) return result.status();
      response->Swap(&*result);
      this->state().record.response_bytes = MessageBytes(*response);
      return absl::OkStatus();
    });
  }

 private:
  void OnReadDone(bool ok) override { this->gate().Done(StreamGate::Direction::kRead, ok); }

  ReadSide<Request, grpc::ServerReadReactor<Request>> reader_{*this};
};

template <typename Request, typename Response>
class CallRunner::BidiCall final : public StreamCall<grpc::ServerBidiReactor<Request, Response>> {
 public:
  using Reactor = grpc::ServerBidiReactor<Request, Response>;
  using Base = StreamCall<Reactor>;
  using Base::Base;

  void Start(BidiHandler<Request, Response> handler) {
    this->Begin([this, handler = std::move(handler)] { return handler(reader_, writer_, this->state().context); });
  }

 private:
  void OnReadDone(bool ok) override { this->gate().Done(StreamGate::Direction::kRead, ok); }
  void OnWriteDone(bool ok) override { this->gate().Done(StreamGate::Direction::kWrite, ok); }

  ReadSide<Request, Reactor> reader_{*this};
  WriteSide<Response, Reactor> writer_{*this};
};

// The calls delete themselves.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* CallRunner::Run(grpc::CallbackServerContext* context, std::string method, Lane lane,
                                          const Request* request, Response* response,
                                          Handler<Request, Response> handler,
                                          const FastHandler<Request, Response>& fast) {
  auto* call = new UnaryCall<Request, Response>(*this, context, Begin(context, std::move(method), lane), response);
  call->Start(request, std::move(handler), fast);
  return call;
}

template <typename Request, typename Response>
grpc::ServerWriteReactor<Response>* CallRunner::RunServerStream(grpc::CallbackServerContext* context,
                                                                std::string method, Lane lane, const Request* request,
                                                                ServerStreamHandler<Request, Response> handler) {
  auto* call = new ServerStreamCall<Request, Response>(*this, context, Begin(context, std::move(method), lane));
  call->Start(request, std::move(handler));
  return call;
}

template <typename Request, typename Response>
grpc::ServerReadReactor<Request>* CallRunner::RunClientStream(grpc::CallbackServerContext* context, std::string method,
                                                              Lane lane, Response* response,
                                                              ClientStreamHandler<Request, Response> handler) {
  auto* call = new ClientStreamCall<Request, Response>(*this, context, Begin(context, std::move(method), lane));
  call->Start(response, std::move(handler));
  return call;
}

template <typename Request, typename Response>
grpc::ServerBidiReactor<Request, Response>* CallRunner::RunBidi(grpc::CallbackServerContext* context,
                                                                std::string method, Lane lane,
                                                                BidiHandler<Request, Response> handler) {
  auto* call = new BidiCall<Request, Response>(*this, context, Begin(context, std::move(method), lane));
  call->Start(std::move(handler));
  return call;
}

template <typename Reactor>
Reactor* CallRunner::Refuse(grpc::CallbackServerContext* context, std::string method, const absl::Status& status) {
  CallState state = Begin(context, std::move(method), Lane::kInline);
  return new RefusedCall<Reactor>(End(context, state, status));
}

}  // namespace fuseline::service
