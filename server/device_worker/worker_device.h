// Devices that live in processes of their own (device_worker.h), seen as launch::Devices.
// Pipeline: Executor -> WorkerDevice -> device worker -> GPU. Copies to the device are sent without waiting for them;
// an error of one is told by the next call that waits. Freed device memory is kept for reuse, so that a run costs few
// round trips. Errors: as launch::Device; a process that is gone is a lost device, and Reset starts another.
// Thread-safety: thread-safe; calls on one device wait for each other. Tested by
// tests/unit/server/worker_device_test.cc
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::device_worker {

inline constexpr char kDeviceWorkerArgument[] = "--device-worker";

// `command` starts a program whose main calls MaybeRunDeviceWorker; `spec` is "cuda:N" or "cpu:THREADS".
absl::StatusOr<std::unique_ptr<launch::Device>> OpenWorkerDevice(const std::vector<std::string>& command,
                                                                 const std::string& spec);
// As launch::OpenCudaDevices, each device with a process of its own.
std::vector<std::unique_ptr<launch::Device>> OpenCudaWorkers(const std::vector<std::string>& command, std::string& why);

}  // namespace fuseline::device_worker
