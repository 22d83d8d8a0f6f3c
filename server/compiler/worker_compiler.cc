#include "server/compiler/worker_compiler.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/worker_messages.h"
#include "server/compiler/worker_process.h"

namespace fuseline::compiler {
namespace {

using Outcome = WorkerProcess::Outcome;

// How often a call that waits for a worker asks whether to stop.
constexpr absl::Duration kStopPoll = absl::Milliseconds(50);

// The workers of one compiler. Thread-safe.
class WorkerPool {
 public:
  WorkerPool(CompilerSpec spec, WorkerOptions options) : spec_(std::move(spec)), options_(std::move(options)) {
    max_workers_ = options_.max_workers > 0 ? options_.max_workers
                                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  // OK where a worker replied; the reply's own status may be an error.
  absl::Status Call(const WorkerRequest& request, const StopCheck& stop, WorkerReply& reply)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const std::string payload = EncodeRequest(request);
    if (payload.size() > kMaxFrameBytes) return Failed(request, "the source is too long for a compiler worker");
    while (true) {
      FUSELINE_ASSIGN_OR_RETURN(Worker worker, Acquire(stop));
      std::string failure;
      const Outcome outcome = worker.process->Call(payload, request.source, stop, reply, failure);
      Release(std::move(worker), outcome, reply);
      switch (outcome) {
        case Outcome::kReplied:
          return absl::OkStatus();
        case Outcome::kDeadBefore:
          continue;  // each time with one worker less that was used before: ends with one that is new
        case Outcome::kGivenUp:
          if (absl::Status status = stop(); !status.ok()) return status;
          return MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, request.source.entry,
                           "the compilation was given up");
        case Outcome::kCrashed:
        case Outcome::kTimedOut:
        case Outcome::kOutOfMemory:
          return Failed(request, failure);
      }
    }
  }

  // Goes up when a worker has found that the compiler is not what SetIdentity says; older workers are of no more use.
  int64_t generation() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return generation_;
  }

  // What the compiler must be in workers that are started from now on, unless `generation` has passed.
  void SetIdentity(const std::string& identity, int64_t generation) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (generation == generation_) identity_ = identity;
  }

  WorkerStats stats() ABSL_LOCKS_EXCLUDED(mutex_) {
    // Idle workers that someone has killed are found here or when they are needed, whatever comes first.
    std::vector<Worker> broken;  // destroyed outside the lock
    absl::MutexLock lock(&mutex_);
    const auto first_broken = std::stable_partition(idle_.begin(), idle_.end(),
                                                    [](const Worker& worker) { return !worker.process->IsBroken(); });
    std::move(first_broken, idle_.end(), std::back_inserter(broken));
    idle_.erase(first_broken, idle_.end());
    stats_.crashed += static_cast<int64_t>(broken.size());
    count_ -= static_cast<int64_t>(broken.size());
    WorkerStats stats = stats_;
    stats.idle = static_cast<int64_t>(idle_.size());
    stats.busy = count_ - stats.idle;
    return stats;
  }

 private:
  struct Worker {
    std::unique_ptr<WorkerProcess> process;
    int64_t generation = 0;
  };

  static absl::Status Failed(const WorkerRequest& request, const std::string& what) {
    const std::string& entry = request.source.entry;
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, entry,
                     entry.empty() ? what : StrCat("kernel '", entry, "': ", what));
  }

  absl::StatusOr<Worker> Acquire(const StopCheck& stop) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::Status last_error;  // of a start that failed
    while (true) {
      if (stop) FUSELINE_RETURN_IF_ERROR(stop());
      Worker unusable;  // destroyed outside the lock
      Worker worker;
      std::string identity;
      {
        absl::MutexLock lock(&mutex_);
        // Where the system has no room for one more, those that there are do the work.
        const int limit = last_error.ok() ? max_workers_ : 1;
        if (idle_.empty() && count_ >= limit) changed_.WaitWithTimeout(&mutex_, kStopPoll);
        if (!idle_.empty()) {
          worker = std::move(idle_.back());
          idle_.pop_back();
          const bool broken = worker.process->IsBroken();
          if (!broken && worker.generation == generation_) return worker;
          unusable = std::move(worker);
          ++(broken ? stats_.crashed : stats_.retired);
          --count_;
          continue;
        }
        if (count_ >= limit) continue;
        ++count_;
        identity = identity_;
        worker.generation = generation_;
      }
      absl::StatusOr<std::unique_ptr<WorkerProcess>> started = WorkerProcess::Start(spec_, options_, identity);
      absl::MutexLock lock(&mutex_);
      if (started.ok()) {
        ++stats_.started;
        worker.process = *std::move(started);
        return worker;
      }
      --count_;
      changed_.Signal();
      last_error = started.status();
      if (count_ == 0 || last_error.code() != absl::StatusCode::kResourceExhausted) return last_error;
    }
  }

  void Release(Worker worker, Outcome outcome, const WorkerReply& reply) ABSL_LOCKS_EXCLUDED(mutex_) {
    const bool keep = outcome == Outcome::kReplied && !reply.identity_changed &&
                      worker.process->calls() < options_.max_kernels &&
                      reply.resident_bytes <= options_.max_resident_bytes;
    if (!keep) worker.process.reset();  // outside the lock, and before another one takes its place
    absl::MutexLock lock(&mutex_);
    changed_.Signal();
    if (keep) {
      idle_.push_back(std::move(worker));
      return;
    }
    if (outcome == Outcome::kReplied && reply.identity_changed && worker.generation == generation_) {
      ++generation_;
      identity_.clear();
    }
    --count_;
    switch (outcome) {
      case Outcome::kReplied:
      case Outcome::kGivenUp:
        ++stats_.retired;
        break;
      case Outcome::kDeadBefore:
      case Outcome::kCrashed:
        ++stats_.crashed;
        break;
      case Outcome::kTimedOut:
        ++stats_.timed_out;
        break;
      case Outcome::kOutOfMemory:
        ++stats_.out_of_memory;
        break;
    }
  }

  const CompilerSpec spec_;
  const WorkerOptions options_;
  int max_workers_ = 1;

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;                             // a worker has become idle, or there is room for one more
  std::vector<Worker> idle_ ABSL_GUARDED_BY(mutex_);  // the last used last
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;         // all that there are, also while they start and end
  std::string identity_ ABSL_GUARDED_BY(mutex_);
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  WorkerStats stats_ ABSL_GUARDED_BY(mutex_);
};

class WorkerCompiler final : public KernelCompiler {
 public:
  WorkerCompiler(const CompilerSpec& spec, const WorkerOptions& options)
      : unavailable_identity_(spec.kind == CompilerSpec::Kind::kNvrtc ? "nvrtc unavailable"
                                                                      : "host compiler unavailable"),
        pool_(std::make_unique<WorkerPool>(spec, options)) {}

  absl::Status Available() const override { return Describe().status; }

  std::string Identity() const override {
    Description description = Describe();
    return description.status.ok() ? std::move(description.identity) : unavailable_identity_;
  }

  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    return CompileUnlessStopped(source, {});
  }

  absl::StatusOr<KernelImage> CompileUnlessStopped(const KernelSource& source, const StopCheck& stop) override {
    FUSELINE_ASSIGN_OR_RETURN(WorkerReply reply, Ask(WorkerRequest::Kind::kCompile, source, stop));
    return std::move(reply.image);
  }

  absl::StatusOr<std::string> CompileToPtx(const KernelSource& source) override {
    FUSELINE_ASSIGN_OR_RETURN(WorkerReply reply, Ask(WorkerRequest::Kind::kPtx, source, {}));
    return std::move(reply.text);
  }

  WorkerStats workers() const override { return pool_->stats(); }

 private:
  struct Description {
    absl::Status status;
    std::string identity;
  };

  absl::StatusOr<WorkerReply> Ask(WorkerRequest::Kind kind, const KernelSource& source, const StopCheck& stop) {
    WorkerRequest request;
    request.kind = kind;
    request.source = source;
    WorkerReply reply;
    FUSELINE_RETURN_IF_ERROR(pool_->Call(request, stop, reply));
    FUSELINE_RETURN_IF_ERROR(reply.status);
    return reply;
  }

  // What a worker says of the compiler, kept until one finds that the compiler was replaced.
  Description Describe() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);  // also while a worker is asked: those who come meanwhile want the same answer
    const int64_t generation = pool_->generation();
    if (described_generation_ == generation) return description_;
    WorkerReply reply;
    const absl::Status status = pool_->Call(WorkerRequest(), {}, reply);
    if (!status.ok()) {
      return {MakeError(absl::StatusCode::kUnavailable, ErrorReason::kCompilerFailed, GetErrorSubject(status),
                        StrCat("the compiler can't be asked what it is: ", std::string(status.message()))),
              ""};
    }
    description_ = {reply.status, reply.text};
    described_generation_ = generation;
    pool_->SetIdentity(reply.text, generation);
    return description_;
  }

  const std::string unavailable_identity_;
  const std::unique_ptr<WorkerPool> pool_;
  mutable absl::Mutex mutex_;
  mutable int64_t described_generation_ ABSL_GUARDED_BY(mutex_) = -1;  // of the pool when it was asked
  mutable Description description_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::vector<std::string> ThisProgramAsWorker() { return {"/proc/self/exe"}; }

std::unique_ptr<KernelCompiler> MakeCompiler(const CompilerSpec& spec, const CompilerLimits& limits) {
  return spec.kind == CompilerSpec::Kind::kNvrtc ? MakeNvrtcCompiler(spec.nvrtc_search_paths, limits)
                                                 : MakeHostCompiler(spec.host_compiler, "", limits);
}

std::unique_ptr<KernelCompiler> MakeWorkerCompiler(const CompilerSpec& spec, const WorkerOptions& options) {
  if (!options.command.empty()) return std::make_unique<WorkerCompiler>(spec, options);
  CompilerLimits limits;
  limits.time = options.time_limit;
  limits.memory_bytes = options.memory_limit_bytes;
  return MakeCompiler(spec, limits);
}

}  // namespace fuseline::compiler
