#include "server/device_worker/worker_device.h"

#include <string.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/device_worker/worker_connection.h"

namespace fuseline::device_worker {
namespace {

class LoadedWorkerArtifact : public launch::LoadedArtifact {
 public:
  LoadedWorkerArtifact(ArtifactPtr artifact, std::shared_ptr<WorkerConnection> connection, int64_t number)
      : artifact_(std::move(artifact)), connection_(std::move(connection)), number_(number) {}
  ~LoadedWorkerArtifact() override { connection_->Unload(number_); }
  const Artifact& artifact() const override { return *artifact_; }
  const std::shared_ptr<WorkerConnection>& connection() const { return connection_; }
  int64_t number() const { return number_; }

 private:
  const ArtifactPtr artifact_;
  const std::shared_ptr<WorkerConnection> connection_;
  const int64_t number_;
};

struct Description {
  std::string name;
  Target target;
  int64_t memory_bytes = 0;
};

absl::StatusOr<Description> ReadDescription(WorkerConnection& connection) {
  FUSELINE_ASSIGN_OR_RETURN(const Reply hello, connection.ReadHello());
  const size_t line = hello.payload.find('\n');
  if (line == std::string::npos) return Internal("the device's process does not say what it has");
  Description description;
  FUSELINE_ASSIGN_OR_RETURN(description.target, ParseTarget(hello.payload.substr(0, line)));
  description.name = hello.payload.substr(line + 1);
  description.memory_bytes = hello.value;
  return description;
}

class WorkerDevice : public launch::Device {
 public:
  WorkerDevice(std::vector<std::string> command, std::string spec, Description description,
               std::shared_ptr<WorkerConnection> connection)
      : command_(std::move(command)),
        spec_(std::move(spec)),
        description_(std::move(description)),
        connection_(std::move(connection)) {}
  ~WorkerDevice() override { connection()->End(); }

  std::string name() const override { return description_.name; }
  Target target() const override { return description_.target; }
  int64_t memory_bytes() const override { return description_.memory_bytes; }
  bool CanRun(const Target& target) const override { return launch::RunsCodeFor(description_.target, target); }
  bool uses_host_memory() const override { return false; }
  launch::MemoryUsage memory_usage() const override { return connection()->usage(); }

  absl::StatusOr<launch::LoadedArtifactPtr> Load(ArtifactPtr artifact) override {
    const std::shared_ptr<WorkerConnection> worker = connection();
    Request request;
    request.operation = Operation::kLoad;
    request.payload = SerializeArtifact(*artifact);
    FUSELINE_ASSIGN_OR_RETURN(const Reply reply, worker->Call(request));
    return launch::LoadedArtifactPtr(std::make_shared<LoadedWorkerArtifact>(std::move(artifact), worker, reply.value));
  }

  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) override {
    return connection()->Allocate(size_bytes);
  }
  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    return connection()->CopyToDevice(device, host, size_bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    return connection()->CopyToHost(host, device, size_bytes);
  }

  absl::Status Run(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                   absl::Span<void* const> outputs, const launch::StopCheck& stop) override {
    FUSELINE_ASSIGN_OR_RETURN(Request request, MakeCall(artifact, inputs, outputs));
    request.operation = Operation::kRun;
    return connection()->Call(request, stop).status();
  }

  absl::Status Synchronize() override { return connection()->Call(Request()).status(); }

  absl::StatusOr<std::vector<double>> Time(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           bool flush_cache, const launch::StopCheck& stop) override {
    FUSELINE_ASSIGN_OR_RETURN(Request request, MakeCall(artifact, inputs, outputs));
    request.operation = Operation::kTime;
    request.c = warmup;
    request.d = iterations;
    request.e = flush_cache ? 1 : 0;
    FUSELINE_ASSIGN_OR_RETURN(const Reply reply, connection()->Call(request, stop));
    std::vector<double> micros(reply.payload.size() / sizeof(double));
    memcpy(micros.data(), reply.payload.data(), micros.size() * sizeof(double));
    return micros;
  }

  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) override {
    Request request;
    request.operation = Operation::kMeasureCopyRate;
    request.a = size_bytes;
    FUSELINE_ASSIGN_OR_RETURN(const Reply reply, connection()->Call(request));
    double rate = 0;
    if (reply.payload.size() != sizeof(rate)) return Internal("the device's process does not say the rate");
    memcpy(&rate, reply.payload.data(), sizeof(rate));
    return rate;
  }

  absl::Status Reset() override {
    connection()->End();
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<WorkerConnection> started, WorkerConnection::Start(command_, spec_));
    const absl::StatusOr<Description> description = ReadDescription(*started);
    if (!description.ok()) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "",
                       std::string(description.status().message()));
    }
    if (description->target != description_.target || description->name != description_.name) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "",
                       StrCat("the device is another one now: '", description->name, "'"));
    }
    absl::MutexLock lock(&mutex_);
    connection_ = std::move(started);
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<WorkerConnection> connection() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return connection_;
  }

  absl::StatusOr<Request> MakeCall(const launch::LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                   absl::Span<void* const> outputs) const {
    const auto& loaded = static_cast<const LoadedWorkerArtifact&>(artifact);
    if (loaded.connection() != connection()) return Internal("the artifact was loaded before the device was lost");
    Request request;
    request.a = loaded.number();
    request.b = static_cast<int64_t>(inputs.size());
    request.payload.append(reinterpret_cast<const char*>(inputs.data()), inputs.size() * sizeof(void*));
    request.payload.append(reinterpret_cast<const char*>(outputs.data()), outputs.size() * sizeof(void*));
    return request;
  }

  const std::vector<std::string> command_;
  const std::string spec_;
  const Description description_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<WorkerConnection> connection_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<launch::Device>> MakeDevice(const std::vector<std::string>& command,
                                                           const std::string& spec,
                                                           std::shared_ptr<WorkerConnection> connection) {
  FUSELINE_ASSIGN_OR_RETURN(Description description, ReadDescription(*connection));
  return std::make_unique<WorkerDevice>(command, spec, std::move(description), std::move(connection));
}

}  // namespace

absl::StatusOr<std::unique_ptr<launch::Device>> OpenWorkerDevice(const std::vector<std::string>& command,
                                                                 const std::string& spec) {
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<WorkerConnection> connection, WorkerConnection::Start(command, spec));
  return MakeDevice(command, spec, std::move(connection));
}

std::vector<std::unique_ptr<launch::Device>> OpenCudaWorkers(const std::vector<std::string>& command,
                                                             std::string& why) {
  const int count = launch::CountCudaDevices(why);
  // All start before the first is waited for.
  std::vector<absl::StatusOr<std::shared_ptr<WorkerConnection>>> connections;
  for (int ordinal = 0; ordinal < count; ++ordinal)
    connections.push_back(WorkerConnection::Start(command, StrCat("cuda:", ordinal)));
  std::vector<std::unique_ptr<launch::Device>> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    absl::StatusOr<std::shared_ptr<WorkerConnection>>& connection = connections[static_cast<size_t>(ordinal)];
    absl::StatusOr<std::unique_ptr<launch::Device>> device =
        connection.ok() ? MakeDevice(command, StrCat("cuda:", ordinal), *std::move(connection))
                        : absl::StatusOr<std::unique_ptr<launch::Device>>(connection.status());
    if (device.ok()) {
      devices.push_back(*std::move(device));
    } else {
      StrAppend(&why, why.empty() ? "" : "; ", "GPU ", ordinal, ": ", std::string(device.status().message()));
    }
  }
  return devices;
}

}  // namespace fuseline::device_worker
