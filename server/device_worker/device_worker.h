// The process that drives one device for a server. A CUDA error that loses a context ends CUDA for its whole process,
// so each GPU has a process: one that is lost is ended and started again, and neither the server nor the other GPUs
// notice. Pipeline: WorkerDevice -> requests -> RunDeviceWorker -> launch::Device. Tested by
// tests/unit/server/worker_device_test.cc
#pragma once

#include <optional>

namespace fuseline::device_worker {

// Call it first in main: where the program was started as a device worker it runs as one and returns the exit code.
std::optional<int> MaybeRunDeviceWorker(int argc, char** argv);

}  // namespace fuseline::device_worker
