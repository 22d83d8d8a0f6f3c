// The functions of fuseline_launch.h. Tested by tests/unit/client/launch/launch_api_test.cc
#include <string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "client/launch/fuseline_launch.h"
#include "client/launch/handles.h"
#include "client/launch/last_error.h"
#include "client/launch/sha256.h"
#include "common/artifact/artifact_reader.h"
#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace {

using ::fuseline::Artifact;
using ::fuseline::ErrorReason;
using ::fuseline::LaunchPlan;
using ::fuseline::PlanTensor;
using ::fuseline::local::DeviceState;
using ::fuseline::local::Guarded;

constexpr size_t kDigestBytes = 32;
constexpr int32_t kMaxThreads = 1024;

// The numbers are the same on both sides, so that they can be cast.
static_assert(FUSELINE_INVALID_ARGUMENT == static_cast<int>(absl::StatusCode::kInvalidArgument));
static_assert(FUSELINE_DATA_LOSS == static_cast<int>(absl::StatusCode::kDataLoss));
static_assert(FUSELINE_BOOL == static_cast<int>(fuseline::DType::kBool));
static_assert(FUSELINE_F64 == static_cast<int>(fuseline::DType::kF64));

absl::Status BadArgument(std::string_view name, std::string_view message) {
  return fuseline::InvalidArgument(ErrorReason::kOptionInvalid, name, message);
}
absl::Status IsNull(std::string_view name) { return BadArgument(name, fuseline::StrCat("'", name, "' is null")); }

absl::Status Open(std::unique_ptr<fuseline::launch::Device> opened, fuseline_device** device) {
  *device = new fuseline_device{std::make_shared<DeviceState>(std::move(opened))};
  return absl::OkStatus();
}

absl::Status Load(const std::shared_ptr<DeviceState>& state, std::string_view bytes,
                  const fuseline_load_options& options, fuseline_callable** callable) {
  if (options.sha256 != nullptr) {
    const std::array<uint8_t, kDigestBytes> digest = fuseline::local::Sha256(bytes);
    if (memcmp(digest.data(), options.sha256, kDigestBytes) != 0) {
      return MakeError(absl::StatusCode::kDataLoss, ErrorReason::kDataLoss, "artifact",
                       "the artifact's bytes do not have the digest that was asked for");
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(Artifact artifact, fuseline::ReadArtifact(bytes));
  if (options.fingerprint != nullptr &&
      memcmp(artifact.fingerprint.bytes.data(), options.fingerprint, kDigestBytes) != 0) {
    return MakeError(absl::StatusCode::kDataLoss, ErrorReason::kDataLoss, "artifact",
                     "the artifact is of another graph than was asked for");
  }
  state->ReleaseKept();
  FUSELINE_ASSIGN_OR_RETURN(auto loaded, state->device().Load(std::make_shared<const Artifact>(std::move(artifact))));
  FUSELINE_ASSIGN_OR_RETURN(auto launch, state->device().Prepare(std::move(loaded)));
  *callable = new fuseline_callable{state, std::move(launch)};
  return absl::OkStatus();
}

// Up to and with the last element.
int64_t ExtentBytes(const PlanTensor& tensor) {
  int64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];  // bounded by ValidateArtifact
  }
  return (last + 1) * fuseline::DTypeSizeBytes(tensor.dtype);
}

fuseline_code Describe(const std::vector<PlanTensor>& tensors, std::string_view what, int32_t index,
                       fuseline_tensor_info* info) {
  return Guarded([&]() -> absl::Status {
    if (info == nullptr || info->struct_size == 0) return BadArgument("info", "'info' is null or has no size");
    if (index < 0 || static_cast<size_t>(index) >= tensors.size())
      return BadArgument("index", fuseline::StrCat("there is no ", what, " ", index, ", only ", tensors.size()));
    const PlanTensor& tensor = tensors[static_cast<size_t>(index)];
    fuseline_tensor_info told = {};
    told.struct_size = info->struct_size;
    told.name = tensor.name.c_str();
    told.dtype = static_cast<fuseline_dtype>(tensor.dtype);
    told.rank = static_cast<int32_t>(tensor.shape.size());
    told.shape = tensor.shape.data();
    told.strides = tensor.strides.data();
    told.size_bytes = ExtentBytes(tensor);
    told.alignment_bytes = tensor.alignment_bytes;
    memcpy(info, &told, std::min(told.struct_size, sizeof(told)));
    return absl::OkStatus();
  });
}

const LaunchPlan& PlanOf(const fuseline_callable* callable) { return callable->launch->artifact().plan; }

}  // namespace

extern "C" {

int32_t fuseline_abi_version(void) { return FUSELINE_LAUNCH_ABI_VERSION; }
const char* fuseline_version(void) { return FUSELINE_VERSION; }
const char* fuseline_last_error(void) { return fuseline::local::LastErrorText(); }
const char* fuseline_last_error_reason(void) { return fuseline::local::LastErrorReason(); }

int32_t fuseline_cuda_device_count(void) {
  int32_t count = 0;
  Guarded([&]() -> absl::Status {
    std::string why;
    count = fuseline::launch::CountCudaDevices(why);
    if (count > 0) return absl::OkStatus();
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda", why);
  });
  return count;
}

fuseline_code fuseline_open_cuda(int32_t ordinal, fuseline_device** device) {
  return Guarded([&]() -> absl::Status {
    if (device == nullptr) return IsNull("device");
    FUSELINE_ASSIGN_OR_RETURN(auto opened,
                              fuseline::launch::OpenCudaDevice(ordinal, fuseline::launch::CudaTenancy::kGuest));
    return Open(std::move(opened), device);
  });
}

fuseline_code fuseline_open_cpu(int32_t threads, fuseline_device** device) {
  return Guarded([&]() -> absl::Status {
    if (device == nullptr) return IsNull("device");
    if (threads < 0 || threads > kMaxThreads)
      return BadArgument("threads", fuseline::StrCat(threads, " threads: 0 to ", kMaxThreads, " can be had"));
    return Open(fuseline::launch::OpenCpuDevice(threads), device);
  });
}

void fuseline_device_close(fuseline_device* device) { delete device; }

const char* fuseline_device_name(const fuseline_device* device) { return device->state->name().c_str(); }
const char* fuseline_device_target(const fuseline_device* device) { return device->state->target().c_str(); }
int64_t fuseline_device_memory_bytes(const fuseline_device* device) { return device->state->device().memory_bytes(); }
int32_t fuseline_device_driver_version(const fuseline_device* device) {
  return device->state->device().driver_version();
}

fuseline_code fuseline_load(fuseline_device* device, const void* artifact, size_t artifact_bytes,
                            const fuseline_load_options* options, fuseline_callable** callable) {
  return Guarded([&]() -> absl::Status {
    if (device == nullptr) return IsNull("device");
    if (artifact == nullptr) return IsNull("artifact");
    if (callable == nullptr) return IsNull("callable");
    fuseline_load_options wanted = {};
    if (options != nullptr) memcpy(&wanted, options, std::min(options->struct_size, sizeof(wanted)));
    return Load(device->state, {static_cast<const char*>(artifact), artifact_bytes}, wanted, callable);
  });
}

void fuseline_callable_release(fuseline_callable* callable) {
  if (callable == nullptr) return;
  Guarded([&] {
    callable->state->Release(std::move(callable->launch));
    return absl::OkStatus();
  });
  delete callable;
}

int32_t fuseline_callable_input_count(const fuseline_callable* callable) {
  return static_cast<int32_t>(PlanOf(callable).inputs.size());
}
int32_t fuseline_callable_output_count(const fuseline_callable* callable) {
  return static_cast<int32_t>(PlanOf(callable).outputs.size());
}
fuseline_code fuseline_callable_input(const fuseline_callable* callable, int32_t index, fuseline_tensor_info* info) {
  return Describe(PlanOf(callable).inputs, "input", index, info);
}
fuseline_code fuseline_callable_output(const fuseline_callable* callable, int32_t index, fuseline_tensor_info* info) {
  return Describe(PlanOf(callable).outputs, "output", index, info);
}
const char* fuseline_dtype_name(fuseline_dtype dtype) {
  if (dtype < FUSELINE_F64 || dtype > FUSELINE_BOOL) return "";
  return fuseline::DTypeName(static_cast<fuseline::DType>(dtype)).data();  // of a literal, so it ends in a zero
}
int64_t fuseline_callable_arena_bytes(const fuseline_callable* callable) { return PlanOf(callable).arena_bytes; }
int32_t fuseline_callable_step_count(const fuseline_callable* callable) {
  return static_cast<int32_t>(PlanOf(callable).steps.size());
}
int32_t fuseline_callable_check_count(const fuseline_callable* callable) {
  return static_cast<int32_t>(PlanOf(callable).checks.size());
}
const uint8_t* fuseline_callable_fingerprint(const fuseline_callable* callable) {
  return callable->launch->artifact().fingerprint.bytes.data();
}

fuseline_code fuseline_launch(fuseline_callable* callable, void* const* inputs, void* const* outputs, void* arena,
                              void* stream) {
  return Guarded([&]() -> absl::Status {
    if (callable == nullptr) return IsNull("callable");
    if (inputs == nullptr && !PlanOf(callable).inputs.empty()) return IsNull("inputs");
    if (outputs == nullptr && !PlanOf(callable).outputs.empty()) return IsNull("outputs");
    return callable->launch->Launch(inputs, outputs, arena, stream);
  });
}

fuseline_code fuseline_callable_prepare_stream(fuseline_callable* callable, void* stream, int32_t own_arena) {
  return Guarded([&] { return callable->launch->PrepareStream(stream, own_arena != 0); });
}
fuseline_code fuseline_callable_check(fuseline_callable* callable, void* stream) {
  return Guarded([&] { return callable->launch->Check(stream); });
}
fuseline_code fuseline_callable_forget_stream(fuseline_callable* callable, void* stream) {
  return Guarded([&] { return callable->launch->ForgetStream(stream); });
}

}  // extern "C"
