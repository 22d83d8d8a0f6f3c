#include "tests/e2e/overload_load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/error_details.h"
#include "common/status/error.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"

namespace fuseline::testing {
namespace {

constexpr int kChannels = 4;
constexpr int kInput = 4096;
constexpr absl::Duration kDeadline = absl::Seconds(120);  // longer than any queue: a call that meets it was lost

constexpr char kRunText[] =
    "graph load(x: f32[1, 4096]) {\n"
    "  %row = iota() {shape = [4096, 1], dim = 0, dtype = f32}\n"
    "  %sum = add(x, %row)\n"
    "  %scaled = mul(%sum, -0.0001)\n"
    "  %e = exp(%scaled)\n"
    "  %y = sum(%e)\n"
    "  return y = %y\n"
    "}\n";

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

Latencies Summarise(std::vector<double> millis) {
  std::sort(millis.begin(), millis.end());
  Latencies out;
  out.count = static_cast<int64_t>(millis.size());
  out.p50_ms = Percentile(millis, 0.50);
  out.p99_ms = Percentile(millis, 0.99);
  out.most_ms = millis.empty() ? 0 : millis.back();
  return out;
}

double ResidentMib(pid_t process) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

// One call of the kind, each graph of kCompile a new one.
class Calls {
 public:
  Calls(const std::string& address, LoadKind kind) : kind_(kind) {
    for (int i = 0; i < kChannels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection each
      const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
      compile_.push_back(v1::CompileService::NewStub(channel));
      execute_.push_back(v1::ExecuteService::NewStub(channel));
    }
    run_.mutable_spec()->set_graph_text(kRunText);
    run_.mutable_spec()->set_target("cpu");
    v1::Tensor* tensor = run_.add_inputs()->mutable_tensor();
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->add_shape(1);
    tensor->add_shape(kInput);
    tensor->set_data(std::string(kInput * sizeof(float), '\0'));
  }

  // Waits until gRPC has let go of every call. A call holds its channel, and the last channel must not end on gRPC's
  // own thread: it stops and joins these threads.
  ~Calls() {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_ == 0; };
    mutex_.Await(absl::Condition(&none));
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  using Done = std::function<void(const absl::Status& status, double millis)>;

  void Start(Done done) {
    const int64_t n = next_.fetch_add(1);
    auto call = std::make_shared<Call>(*this);
    call->context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kDeadline));
    call->start = absl::Now();
    const auto finish = [call, done = std::move(done)](const grpc::Status& status) {
      const double millis = absl::ToDoubleMilliseconds(absl::Now() - call->start);
      done(status.ok() ? absl::OkStatus()
                       : client::DecodeError(status.error_code(), status.error_message(), status.error_details()),
           millis);
    };
    const size_t channel = static_cast<size_t>(n % kChannels);
    if (kind_ == LoadKind::kExecute) {
      execute_[channel]->async()->Execute(&call->context, &run_, &call->executed, finish);
      return;
    }
    call->compile.mutable_spec()->set_graph_text(
        absl::StrCat("graph load(x: f32[16]) {\n  %y = add(x, ", n, ".0)\n  return y = %y\n}\n"));
    call->compile.mutable_spec()->set_target("cpu");
    call->compile.set_omit_artifact(true);
    compile_[channel]->async()->Compile(&call->context, &call->compile, &call->compiled, finish);
  }

  // The same, waiting for the answer.
  std::pair<absl::Status, double> Wait() {
    absl::Mutex mutex;
    std::pair<absl::Status, double> answer;
    bool answered = false;
    Start([&](const absl::Status& status, double millis) {
      absl::MutexLock lock(&mutex);
      answer = {status, millis};
      answered = true;
    });
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&answered));
    return answer;
  }

 private:
  // Counts the calls that there are.
  class Registration {
   public:
    explicit Registration(Calls& calls) : calls_(calls) {
      absl::MutexLock lock(&calls_.mutex_);
      ++calls_.open_;
    }
    ~Registration() {
      absl::MutexLock lock(&calls_.mutex_);
      --calls_.open_;
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Calls& calls_;
  };
  struct Call {
    explicit Call(Calls& calls) : registration(calls) {}
    const Registration registration;  // first, so that it ends after the context
    grpc::ClientContext context;
    absl::Time start;
    v1::CompileRequest compile;
    v1::CompileResponse compiled;
    v1::ExecuteResponse executed;
  };

  const LoadKind kind_;
  std::vector<std::unique_ptr<v1::CompileService::Stub>> compile_;
  std::vector<std::unique_ptr<v1::ExecuteService::Stub>> execute_;
  v1::ExecuteRequest run_;
  absl::Mutex mutex_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  // Different in each program run and phase, so that no graph was asked for before.
  static std::atomic<int64_t> next_;
};

std::atomic<int64_t> Calls::next_{1};

}  // namespace

absl::StatusOr<Unloaded> MeasureUnloaded(const std::string& address, LoadKind kind, absl::Duration duration) {
  Calls calls(address, kind);
  for (int i = 0; i < 3; ++i) {
    const auto [status, millis] = calls.Wait();
    if (!status.ok()) return status;
  }
  Unloaded out;
  std::vector<double> millis;
  const absl::Time alone_until = absl::Now() + duration;
  while (absl::Now() < alone_until) {
    const auto [status, took] = calls.Wait();
    if (!status.ok()) return status;
    millis.push_back(took);
  }
  out.latencies = Summarise(std::move(millis));
  // As many as keep every core busy while some of them are told their results.
  const int clients = std::max(4, 2 * static_cast<int>(std::thread::hardware_concurrency()));
  std::atomic<int64_t> done{0};
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (int t = 0; t < clients; ++t) {
    threads.emplace_back([&] {
      while (absl::Now() < start + duration) done += calls.Wait().first.ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  out.calls_per_second = static_cast<double>(done) / absl::ToDoubleSeconds(absl::Now() - start);
  return out;
}

LoadReport OfferLoad(const std::string& address, const LoadOptions& options) {
  Calls calls(address, options.kind);
  absl::Mutex mutex;
  LoadReport report;
  std::vector<double> admitted;
  std::vector<double> refused;
  const auto note = [&](const absl::Status& status, double millis) {
    absl::MutexLock lock(&mutex);
    ++report.answered;
    if (status.ok()) {
      admitted.push_back(millis);
    } else if (status.code() == absl::StatusCode::kResourceExhausted &&
               GetErrorReason(status) == ErrorReason::kQueueFull) {
      refused.push_back(millis);
      if (client::GetRetryDelay(status) <= absl::ZeroDuration()) ++report.without_retry_delay;
    } else {
      ++report.unexpected;
      if (report.unexpected_errors.size() < 5)
        ++report.unexpected_errors[std::string(status.ToString().substr(0, 200))];
    }
  };
  std::atomic<int64_t> sent{0};
  // Each has a counter of its own, so that one answered twice does not make up for one that was lost.
  const auto send = [&] {
    ++sent;
    const auto answers = std::make_shared<std::atomic<int>>(0);
    calls.Start([&, answers](const absl::Status& status, double millis) {
      if (answers->fetch_add(1) == 0) {
        note(status, millis);
      } else {
        absl::MutexLock lock(&mutex);
        ++report.answered_twice;
      }
    });
  };
  const absl::Time start = absl::Now();
  const absl::Time end = start + options.duration;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // open loop
    const double interval = 1.0 / options.calls_per_second;
    for (int64_t i = 0;; ++i) {
      const absl::Time at = start + absl::Seconds(interval * static_cast<double>(i));
      if (at >= end) return;
      absl::SleepFor(at - absl::Now());
      send();
    }
  });
  for (int t = 0; t < options.closed_loops; ++t) {
    threads.emplace_back([&] {
      while (absl::Now() < end) {
        ++sent;
        const auto [status, millis] = calls.Wait();
        note(status, millis);
        // As it is told, but for calls that wait for half a minute.
        if (!status.ok()) absl::SleepFor(std::min(client::GetRetryDelay(status), absl::Seconds(1)));
      }
    });
  }
  threads.emplace_back([&] {  // samples
    while (absl::Now() < end) {
      report.resident_mib.push_back(ResidentMib(options.server));
      absl::SleepFor(absl::Milliseconds(250));
    }
  });
  for (std::thread& thread : threads) thread.join();
  // Until all are answered; their deadline ends this.
  absl::MutexLock lock(&mutex);
  report.sent = sent;
  const auto all_answered = [&] { return report.answered >= report.sent; };
  mutex.AwaitWithTimeout(absl::Condition(&all_answered), kDeadline + absl::Seconds(10));
  report.admitted_per_second = static_cast<double>(admitted.size()) / absl::ToDoubleSeconds(absl::Now() - start);
  report.admitted = Summarise(std::move(admitted));
  report.refused = Summarise(std::move(refused));
  const auto warm_end = report.resident_mib.begin() + static_cast<std::ptrdiff_t>(report.resident_mib.size() / 5);
  for (auto it = report.resident_mib.begin(); it != report.resident_mib.end(); ++it) {
    double& most = it < warm_end ? report.warm_mib : report.late_mib;
    most = std::max(most, *it);
  }
  return report;
}

}  // namespace fuseline::testing
