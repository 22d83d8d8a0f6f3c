#include "client/cpp/local_launch.h"

#include <utility>

#include "common/artifact/validate_artifact.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::client {

absl::StatusOr<std::shared_ptr<const LocalDevice>> LocalDevice::OpenCuda(int ordinal) {
  FUSELINE_ASSIGN_OR_RETURN(auto device, launch::OpenCudaDevice(ordinal, launch::CudaTenancy::kGuest));
  return std::shared_ptr<const LocalDevice>(new LocalDevice(std::move(device)));
}

std::shared_ptr<const LocalDevice> LocalDevice::OpenCpu(int threads) {
  return std::shared_ptr<const LocalDevice>(new LocalDevice(launch::OpenCpuDevice(threads)));
}

absl::StatusOr<std::unique_ptr<LocalCallable>> LocalCallable::Load(std::shared_ptr<const LocalDevice> device,
                                                                   ArtifactPtr artifact) {
  FUSELINE_RETURN_IF_ERROR(ValidateArtifact(*artifact));
  FUSELINE_ASSIGN_OR_RETURN(launch::LoadedArtifactPtr loaded, device->device_->Load(std::move(artifact)));
  FUSELINE_ASSIGN_OR_RETURN(auto launch, device->device_->Prepare(std::move(loaded)));
  return std::unique_ptr<LocalCallable>(new LocalCallable(std::move(device), std::move(launch)));
}

absl::Status LocalCallable::Launch(absl::Span<void* const> inputs, absl::Span<void* const> outputs, void* stream,
                                   void* arena) {
  if (inputs.size() != this->inputs().size() || outputs.size() != this->outputs().size()) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "",
                           StrCat("the graph takes ", this->inputs().size(), " inputs and ", this->outputs().size(),
                                  " outputs, got ", inputs.size(), " and ", outputs.size()));
  }
  return launch_->Launch(inputs.data(), outputs.data(), arena, stream);
}

}  // namespace fuseline::client
