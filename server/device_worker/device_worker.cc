#include "server/device_worker/device_worker.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/artifact/codec/artifact_codec.h"
#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/device_worker/device_channel.h"
#include "server/device_worker/worker_device.h"

namespace fuseline::device_worker {
namespace {

constexpr int kConnection = 3;
constexpr int kUsageExitCode = 2;

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// "cuda:1", "cpu:2".
absl::StatusOr<std::unique_ptr<launch::Device>> OpenDevice(std::string_view spec) {
  const size_t colon = spec.find(':');
  int number = -1;
  if (colon != std::string_view::npos) std::from_chars(spec.data() + colon + 1, spec.data() + spec.size(), number);
  const std::string_view kind = spec.substr(0, colon);
  if (number < 0 || (kind != "cuda" && kind != "cpu")) return Internal(StrCat("there are no devices '", spec, "'"));
  if (kind == "cpu") return launch::OpenCpuDevice(number);
  return launch::OpenCudaDevice(number);
}

class Worker {
 public:
  Worker(std::unique_ptr<launch::Device> device, std::unique_ptr<SharedMemory> memory)
      : device_(std::move(device)), memory_(std::move(memory)) {}

  Reply Hello() const {
    Reply reply;
    reply.value = device_->memory_bytes();
    reply.payload = StrCat(device_->target().ToString(), "\n", device_->name());
    return reply;
  }

  // Whether the request has a reply.
  bool Handle(const Request& request, Reply& reply) {
    reply = Reply();
    switch (request.operation) {
      case Operation::kFree:
        blocks_.erase(request.a);
        return false;
      case Operation::kUnload:
        artifacts_.erase(request.a);
        return false;
      default:
        break;
    }
    reply.status = Act(request, reply);
    const launch::MemoryUsage usage = device_->memory_usage();
    reply.used_bytes = usage.used_bytes;
    reply.reserved_bytes = usage.reserved_bytes;
    return true;
  }

 private:
  struct Call {
    launch::LoadedArtifactPtr artifact;
    std::vector<void*> inputs;
    std::vector<void*> outputs;
  };

  absl::Status Act(const Request& request, Reply& reply) {
    switch (request.operation) {
      case Operation::kAllocate: {
        FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, device_->Allocate(request.a));
        reply.value = reinterpret_cast<int64_t>(block.get());
        blocks_[reply.value] = std::move(block);
        return absl::OkStatus();
      }
      case Operation::kCopyToDevice:
      case Operation::kCopyToHost: {
        if (request.b < 0 || request.c < 0 || request.c > SharedMemory::kDataBytes - request.b)
          return Internal("a copy lies outside the shared memory");
        char* const shared = memory_->data() + request.b;
        void* const device = reinterpret_cast<void*>(request.a);
        return request.operation == Operation::kCopyToDevice ? device_->CopyToDevice(device, shared, request.c)
                                                             : device_->CopyToHost(shared, device, request.c);
      }
      case Operation::kLoad: {
        FUSELINE_ASSIGN_OR_RETURN(Artifact artifact, DeserializeArtifact(request.payload));
        FUSELINE_ASSIGN_OR_RETURN(launch::LoadedArtifactPtr loaded,
                                  device_->Load(std::make_shared<const Artifact>(std::move(artifact))));
        reply.value = ++last_number_;
        artifacts_[reply.value] = std::move(loaded);
        return absl::OkStatus();
      }
      case Operation::kRun: {
        FUSELINE_ASSIGN_OR_RETURN(const Call call, ReadCall(request));
        return device_->Run(*call.artifact, call.inputs, call.outputs, StopCheck());
      }
      case Operation::kSynchronize:
        return device_->Synchronize();
      case Operation::kTime: {
        FUSELINE_ASSIGN_OR_RETURN(const Call call, ReadCall(request));
        FUSELINE_ASSIGN_OR_RETURN(const std::vector<double> micros,
                                  device_->Time(*call.artifact, call.inputs, call.outputs, static_cast<int>(request.c),
                                                static_cast<int>(request.d), request.e != 0, StopCheck()));
        reply.payload.assign(reinterpret_cast<const char*>(micros.data()), micros.size() * sizeof(double));
        return absl::OkStatus();
      }
      case Operation::kMeasureCopyRate: {
        FUSELINE_ASSIGN_OR_RETURN(const double rate, device_->MeasureCopyRate(request.a));
        reply.payload.assign(reinterpret_cast<const char*>(&rate), sizeof(rate));
        return absl::OkStatus();
      }
      case Operation::kFree:
      case Operation::kUnload:
        break;
    }
    return Internal("an unknown request to a device worker");
  }

  absl::StatusOr<Call> ReadCall(const Request& request) const {
    Call call;
    const auto artifact = artifacts_.find(request.a);
    if (artifact == artifacts_.end()) return Internal("the artifact is not loaded here");
    call.artifact = artifact->second;
    std::vector<void*> addresses(request.payload.size() / sizeof(void*));
    if (!addresses.empty()) memcpy(addresses.data(), request.payload.data(), addresses.size() * sizeof(void*));
    if (request.b < 0 || static_cast<size_t>(request.b) > addresses.size()) return Internal("a run without inputs");
    call.inputs.assign(addresses.begin(), addresses.begin() + request.b);
    call.outputs.assign(addresses.begin() + request.b, addresses.end());
    return call;
  }

  // What the server answers its caller is its own affair.
  launch::StopCheck StopCheck() const {
    return [this] {
      return memory_->stop().load(std::memory_order_relaxed) == 0
                 ? absl::OkStatus()
                 : MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "stopped");
    };
  }

  const std::unique_ptr<launch::Device> device_;
  const std::unique_ptr<SharedMemory> memory_;
  std::map<int64_t, std::shared_ptr<void>> blocks_;  // by address
  std::map<int64_t, launch::LoadedArtifactPtr> artifacts_;
  int64_t last_number_ = 0;
};

// Ends the process with its server, also in the middle of a call.
void EndWithServer(int fd) {
  std::thread([fd] {
    pollfd poll_fd = {fd, POLLRDHUP, 0};
    while (poll(&poll_fd, 1, -1) < 0 || (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
    }
    _exit(0);
  }).detach();
}

int Run(std::string_view spec) {
  DeviceChannel channel(kConnection);
  std::unique_ptr<SharedMemory> memory = SharedMemory::Map(channel.ReceiveDescriptor());
  if (memory == nullptr) return 1;
  EndWithServer(kConnection);
  Reply reply;
  absl::StatusOr<std::unique_ptr<launch::Device>> device = OpenDevice(spec);
  if (!device.ok()) {
    reply.status = device.status();
    channel.Send(reply);
    return 1;
  }
  Worker worker(*std::move(device), std::move(memory));
  if (!channel.Send(worker.Hello())) return 0;
  Request request;
  while (channel.Receive(request)) {
    if (worker.Handle(request, reply) && !channel.Send(reply)) break;
  }
  _exit(0);  // nothing is worth an orderly end: the driver frees what the process holds
}

}  // namespace

std::optional<int> MaybeRunDeviceWorker(int argc, char** argv) {
  if (argc != 3 || strcmp(argv[1], kDeviceWorkerArgument) != 0) return std::nullopt;
  if (!IsSocket(kConnection)) {
    fputs("a device worker is started by the server alone\n", stderr);
    return kUsageExitCode;
  }
  // A terminal's interrupt is the server's to handle.
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  return Run(argv[2]);
}

}  // namespace fuseline::device_worker
