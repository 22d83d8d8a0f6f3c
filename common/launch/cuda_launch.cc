#include "common/launch/cuda_launch.h"

#include <string.h>

#include <utility>

#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::launch {
namespace {

// True also where it can't be told: a stream that waiting for may break something.
bool IsCaptured(const CudaDriver& driver, CuStream stream) {
  int status = CudaDriver::kCaptureNone;
  return driver.StreamIsCapturing(stream, &status) != CudaDriver::kSuccess || status != CudaDriver::kCaptureNone;
}

CuStream ToStream(void* stream) { return static_cast<CuStream>(stream); }

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedLaunch>> PreparedCudaLaunch::Prepare(
    std::shared_ptr<const LoadedCudaArtifact> loaded) {
  std::unique_ptr<PreparedCudaLaunch> launch(new PreparedCudaLaunch(std::move(loaded)));
  FUSELINE_RETURN_IF_ERROR(launch->Init());
  return std::unique_ptr<PreparedLaunch>(std::move(launch));
}

absl::Status PreparedCudaLaunch::Init() {
  const CudaDriver& driver = context_.driver();
  const CudaContext::Scope scope(context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  if (!artifact().plan.checks.empty()) {
    const size_t bytes = static_cast<size_t>(ChecksBytes(artifact().plan));
    void* notes = nullptr;
    FUSELINE_RETURN_IF_ERROR(
        driver.Check(driver.MemHostAlloc(&notes, bytes, CudaDriver::kHostPortable | CudaDriver::kHostDeviceMap),
                     "allocate page-locked memory"));
    memset(notes, 0, bytes);
    notes_ = static_cast<int64_t*>(notes);
    FUSELINE_RETURN_IF_ERROR(
        driver.Check(driver.MemHostGetDevicePointer(&device_notes_, notes, 0), "cuMemHostGetDevicePointer"));
  }
  // Constants came by the context's own stream, which the caller's streams do not wait for.
  return context_.Synchronize();
}

PreparedCudaLaunch::~PreparedCudaLaunch() {
  Finish();
  const CudaContext::Scope scope(context_);
  if (notes_ != nullptr) context_.driver().MemFreeHost(const_cast<int64_t*>(notes_));
}

PreparedCudaLaunch::StreamSlot& PreparedCudaLaunch::Slot(CuStream stream) {
  if (last_slot_ < slots_.size() && slots_[last_slot_].stream == stream) return slots_[last_slot_];
  for (last_slot_ = 0; last_slot_ < slots_.size(); ++last_slot_) {
    if (slots_[last_slot_].stream == stream) return slots_[last_slot_];
  }
  slots_.push_back({stream, nullptr});
  return slots_.back();
}

absl::Status PreparedCudaLaunch::NeedArena(StreamSlot& slot) {
  const int64_t bytes = artifact().plan.arena_bytes;
  if (bytes <= 0 || slot.arena != nullptr) return absl::OkStatus();
  FUSELINE_ASSIGN_OR_RETURN(slot.arena, context_.Allocate(bytes));
  return absl::OkStatus();
}

absl::Status PreparedCudaLaunch::Launch(void* const* inputs, void* const* outputs, void* arena, void* stream) {
  FUSELINE_RETURN_IF_ERROR(pointers_.Check(inputs, outputs, arena));
  const CudaContext::LaunchScope scope(context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  StreamSlot& slot = Slot(ToStream(stream));
  if (arena == nullptr) {
    FUSELINE_RETURN_IF_ERROR(NeedArena(slot));
    arena = slot.arena.get();
  }
  if (notes_ != nullptr && Noted()) {
    // The kernel that has noted it may still be writing which index it was.
    if (!IsCaptured(context_.driver(), slot.stream)) context_.driver().StreamSynchronize(slot.stream);
    FUSELINE_RETURN_IF_ERROR(TakeNotes());
  }
  return loaded_->Enqueue(inputs, outputs, arena, device_notes_, slot.stream, nullptr);
}

absl::Status PreparedCudaLaunch::PrepareStream(void* stream, bool own_arena) {
  absl::MutexLock lock(&mutex_);
  StreamSlot& slot = Slot(ToStream(stream));
  return own_arena ? NeedArena(slot) : absl::OkStatus();
}

bool PreparedCudaLaunch::Noted() const {
  for (size_t i = 0; i < artifact().plan.checks.size(); ++i) {
    if (notes_[2 * i] != 0) return true;
  }
  return false;
}

// What is noted, as a status; the notes are empty afterwards.
absl::Status PreparedCudaLaunch::TakeNotes() {
  const std::vector<PlanCheck>& checks = artifact().plan.checks;
  std::vector<int64_t> noted(2 * checks.size());
  for (size_t i = 0; i < noted.size(); ++i) {
    noted[i] = notes_[i];
    notes_[i] = 0;
  }
  return IndexCheckStatus(checks, noted);
}

absl::Status PreparedCudaLaunch::Check(void* stream) {
  const CudaContext::Scope scope(context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  FUSELINE_RETURN_IF_ERROR(
      context_.driver().Check(context_.driver().StreamSynchronize(ToStream(stream)), "run on the stream"));
  return notes_ != nullptr && Noted() ? TakeNotes() : absl::OkStatus();
}

absl::Status PreparedCudaLaunch::ForgetStream(void* stream) {
  const CudaContext::Scope scope(context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].stream != ToStream(stream)) continue;
    FUSELINE_RETURN_IF_ERROR(
        context_.driver().Check(context_.driver().StreamSynchronize(slots_[i].stream), "run on the stream"));
    slots_.erase(slots_.begin() + static_cast<ptrdiff_t>(i));
    last_slot_ = 0;
    break;
  }
  return absl::OkStatus();
}

bool PreparedCudaLaunch::Finish() {
  const CudaContext::Scope scope(context_);
  absl::MutexLock lock(&mutex_);
  while (!slots_.empty()) {
    if (IsCaptured(context_.driver(), slots_.back().stream)) return false;
    context_.driver().StreamSynchronize(slots_.back().stream);  // an error here is one of the context
    slots_.pop_back();
  }
  return true;
}

}  // namespace fuseline::launch
