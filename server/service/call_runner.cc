#include "server/service/call_runner.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/service/request_id.h"
#include "server/service/status_codec.h"

namespace fuseline::service {

bool IsValidOwner(const std::string& text) {
  constexpr size_t kMaxLength = 128;
  return text.size() <= kMaxLength &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

CallRunner::CallRunner(CallRunnerOptions options)
    : stream_idle_(options.stream_idle),
      log_(std::move(options.log)),
      inflight_(options.max_inflight_bytes),
      compile_pool_(options.compile_workers, options.max_compile_queue),
      execute_pool_(options.execute_workers, options.max_execute_queue),
      stream_pool_(options.max_streams, 0) {}

CallRunner::~CallRunner() = default;

CallRunner::CallState CallRunner::Begin(grpc::CallbackServerContext* context, std::string method, Lane lane) {
  CallState state;
  state.start = absl::Now();
  state.started_work = state.start;
  state.lane = lane;
  const auto& metadata = context->client_metadata();
  const auto it = metadata.find(kRequestIdKey);
  if (it != metadata.end()) state.context.request_id.assign(it->second.data(), it->second.size());
  if (!IsValidRequestId(state.context.request_id)) state.context.request_id = NewRequestId();
  if (const auto owner = metadata.find(kOwnerKey); owner != metadata.end()) {
    state.context.owner.assign(owner->second.data(), owner->second.size());
    if (!IsValidOwner(state.context.owner)) {
      state.context.owner.clear();
      state.refused = InvalidArgument(ErrorReason::kOptionInvalid, kOwnerKey,
                                      "metadata 'fuseline-owner' is not at most 128 printable ASCII characters");
    }
  }
  // In both: clients see the initial metadata early, and only the trailing ones where a call fails at once.
  context->AddInitialMetadata(kRequestIdKey, state.context.request_id);
  context->AddTrailingMetadata(kRequestIdKey, state.context.request_id);
  // gRPC gives the far future where the client set no deadline.
  state.context.deadline = absl::FromChrono(context->deadline());
  state.context.is_cancelled = [cancelled = state.cancelled] { return cancelled->load(); };
  state.context.notes = state.notes.get();
  state.record.request_id = state.context.request_id;
  state.record.owner = state.context.owner;
  state.record.method = std::move(method);
  state.record.peer = context->peer();
  return state;
}

absl::Status CallRunner::Dispatch(CallState& state, std::function<void()> work) {
  if (!state.refused.ok()) return state.refused;
  if (state.lane == Lane::kInline) {
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
  absl::StatusOr<InflightBytes::Hold> held = HoldBytes(state.record.request_bytes);
  if (!held.ok()) return held.status();
  state.held = *std::move(held);
  const bool accepted = PoolOf(state.lane).Submit([&state, work = std::move(work)] {
    state.started_work = absl::Now();
    work();
  });
  return accepted ? absl::OkStatus() : QueueFull(state.lane);
}

absl::Status CallRunner::Submit(Lane lane, std::function<void()> task) {
  return PoolOf(lane).Submit(std::move(task)) ? absl::OkStatus() : QueueFull(lane);
}

absl::StatusOr<InflightBytes::Hold> CallRunner::HoldBytes(int64_t bytes) {
  if (!inflight_.TryTake(bytes)) {
    return WithRetryDelay(
        MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                  absl::StrCat("the requests that the server holds fill its ", inflight_.bound(), " bytes for them")),
        std::max(RetryDelay(Lane::kCompile), RetryDelay(Lane::kExecute)));
  }
  return InflightBytes::Hold(inflight_, bytes);
}

WorkerPool& CallRunner::PoolOf(Lane lane) {
  if (lane == Lane::kStream) return stream_pool_;
  return lane == Lane::kCompile ? compile_pool_ : execute_pool_;
}

absl::Status CallRunner::QueueFull(Lane lane) const {
  const char* what = lane == Lane::kStream    ? "the server has as many streams as it takes"
                     : lane == Lane::kCompile ? "the server's queue of compilations is full"
                                              : "the server's queue of executions is full";
  return WithRetryDelay(MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "", what),
                        RetryDelay(lane));
}

absl::Duration CallRunner::RetryDelay(Lane lane) const {
  const WorkerPool& pool = lane == Lane::kStream    ? stream_pool_
                           : lane == Lane::kCompile ? compile_pool_
                                                    : execute_pool_;
  const absl::Duration wait = pool.EstimateWait();
  if (wait == absl::ZeroDuration()) return kQueueRetryDelay;  // nothing has been served yet
  return std::clamp(wait, kLeastQueueRetryDelay, kMostQueueRetryDelay);
}

grpc::Status CallRunner::End(grpc::CallbackServerContext* context, CallState& state, absl::Status status) {
  CallRecord& record = state.record;
  const absl::Time now = absl::Now();
  record.latency_micros = absl::ToInt64Microseconds(now - state.start);
  record.queue_micros = absl::ToInt64Microseconds(state.started_work - state.start);
  record.code = CodeName(status);
  record.notes = std::move(*state.notes);
  if (!status.ok()) {
    record.reason = std::string(ErrorReasonName(GetErrorReason(status)));
    record.message = std::string(status.message());
    // A queue behind ours (of builds, of a device) is full: what waits for it is in our lanes.
    if (GetErrorReason(status) == ErrorReason::kQueueFull && !GetRetryDelay(status).has_value() &&
        state.lane != Lane::kInline) {
      status = WithRetryDelay(std::move(status), RetryDelay(state.lane));
    }
  }
  if (log_) log_(record);
  return ToGrpcStatus(status, record.request_id);
}

void CallRunner::Release(CallState& state) {
  state.held = InflightBytes::Hold();
  if (!state.counted) return;
  absl::MutexLock lock(&mutex_);
  --active_;
}

CallRunner::Stats CallRunner::stats() const {
  return {compile_pool_.stats(), execute_pool_.stats(), stream_pool_.stats(), inflight_.taken()};
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
