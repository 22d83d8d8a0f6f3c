#include "server/service/call_runner.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/service/request_id.h"
#include "server/service/status_codec.h"

namespace fuseline::service {

CallRunner::CallRunner(CallRunnerOptions options)
    : log_(std::move(options.log)),
      compile_pool_(options.compile_workers, options.max_queue),
      execute_pool_(options.execute_workers, options.max_queue) {}

CallRunner::~CallRunner() = default;

CallRunner::CallState CallRunner::Begin(grpc::CallbackServerContext* context, std::string method) {
  CallState state;
  state.start = absl::Now();
  state.started_work = state.start;
  const auto& metadata = context->client_metadata();
  const auto it = metadata.find(kRequestIdKey);
  if (it != metadata.end()) state.context.request_id.assign(it->second.data(), it->second.size());
  if (!IsValidRequestId(state.context.request_id)) state.context.request_id = NewRequestId();
  // In both: clients see the initial metadata early, and only the trailing ones where a call fails at once.
  context->AddInitialMetadata(kRequestIdKey, state.context.request_id);
  context->AddTrailingMetadata(kRequestIdKey, state.context.request_id);
  // gRPC gives the far future where the client set no deadline.
  state.context.deadline = absl::FromChrono(context->deadline());
  state.context.is_cancelled = [cancelled = state.cancelled] { return cancelled->load(); };
  state.record.request_id = state.context.request_id;
  state.record.method = std::move(method);
  state.record.peer = context->peer();
  return state;
}

absl::Status CallRunner::Dispatch(CallState& state, Lane lane, std::function<void()> work) {
  if (lane == Lane::kInline) {
    work();
    return absl::OkStatus();
  }
  {
    // Counted before draining is looked at, so that a call either is waited for or is refused.
    absl::MutexLock lock(&mutex_);
    ++active_;
    state.counted = true;
  }
  if (draining_.load())
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "", "the server is draining");
  WorkerPool& pool = lane == Lane::kCompile ? compile_pool_ : execute_pool_;
  const bool accepted = pool.Submit([&state, work = std::move(work)] {
    state.started_work = absl::Now();
    work();
  });
  if (accepted) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
      absl::StrCat("the server's queue of ", lane == Lane::kCompile ? "compilations" : "executions", " is full"));
}

grpc::Status CallRunner::End(grpc::CallbackServerContext* context, CallState& state, const absl::Status& status) {
  CallRecord& record = state.record;
  const absl::Time now = absl::Now();
  record.latency_micros = absl::ToInt64Microseconds(now - state.start);
  record.queue_micros = absl::ToInt64Microseconds(state.started_work - state.start);
  record.code = CodeName(status);
  if (!status.ok()) {
    record.reason = std::string(ErrorReasonName(GetErrorReason(status)));
    record.message = std::string(status.message());
  }
  if (log_) log_(record);
  return ToGrpcStatus(status, record.request_id);
}

void CallRunner::Release(CallState& state) {
  if (!state.counted) return;
  absl::MutexLock lock(&mutex_);
  --active_;
}

absl::Status CallRunner::Guard(const std::function<absl::Status()>& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     "the server is out of memory");
  } catch (const std::exception& e) {
    return Internal(absl::StrCat("exception: ", e.what()));
  } catch (...) {
    return Internal("unknown exception");
  }
}

void CallRunner::StartDraining() { draining_.store(true); }

bool CallRunner::WaitUntilIdle(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return active_ == 0; };
  return mutex_.AwaitWithDeadline(absl::Condition(&idle), deadline);
}

}  // namespace fuseline::service
