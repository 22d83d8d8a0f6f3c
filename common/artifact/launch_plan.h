// What to launch, on which buffers, in which order. Run by common/launch, on the server and in clients.
// Pipeline: FusionPlan -> GenerateKernels -> LaunchPlan -> Artifact -> LaunchPlanRunner.
// Invariants: a step reads only buffers that inputs, constants or earlier steps have filled; every output is written by
// a step; temporaries whose lives overlap do not overlap in the arena; no pointer, path or device index in it. Units:
// bytes where named so. Thread-safety: immutable values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ir/types.h"

namespace fuseline {

struct LaunchDims {
  int64_t grid[3] = {1, 1, 1};
  int64_t block[3] = {1, 1, 1};
  int64_t dynamic_shared_bytes = 0;
};

struct PlanBuffer {
  // Never renumber.
  enum class Kind : uint8_t { kInput = 1, kOutput = 2, kTemporary = 3, kConstant = 4, kChecks = 5 } kind = Kind::kInput;
  int32_t index = 0;  // kInput, kOutput: position in the signature; kConstant: in LaunchPlan::constants
  int64_t size_bytes = 0;
  int64_t arena_offset_bytes = 0;  // kTemporary; 256-byte aligned
};

// An index that a kernel checks while it runs. Check i has the i64s 2i (not 0: an index was out of range) and 2i + 1
// (such an index) of the buffer of kind kChecks, which is zeroed before the first step and looked at after the last.
struct PlanCheck {
  std::string node;  // of the client's graph
  int64_t extent = 0;
};

struct PlanStep {
  enum class Kind : uint8_t { kLaunch = 1, kCopy = 2 } kind = Kind::kLaunch;  // never renumber
  int32_t kernel = 0;                                                         // kLaunch: index into Artifact::kernels
  LaunchDims dims;                                                            // kLaunch on CUDA
  int64_t work_items = 0;        // kLaunch on the CPU: the kernel runs over [0, work_items), split over threads
  int64_t work_grain = 1;        // the CPU: fewest items worth a thread
  std::vector<int64_t> sizes;    // kLaunch: the kernel's integer arguments, see below
  std::vector<int32_t> buffers;  // kLaunch: the kernel's pointer arguments, in order; kCopy: {from, to}, equal sizes
};

// An input or output as the caller sees it.
struct PlanTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  std::vector<int64_t> strides;  // in elements; how the buffer must lie in memory. Outputs are always dense row-major.
  int64_t alignment_bytes = 16;  // the kernels assume it
  // As a dense tensor.
  TensorType type() const { return TensorType::Make(dtype, shape); }
};

struct LaunchPlan {
  std::vector<PlanTensor> inputs;
  std::vector<PlanTensor> outputs;
  std::vector<std::string> constants;  // bytes
  std::vector<PlanBuffer> buffers;
  std::vector<PlanStep> steps;
  std::vector<PlanCheck> checks;
  int64_t arena_bytes = 0;  // all temporaries together
};

// Entry points.
//   CUDA: extern "C" __global__ void entry(pointers in the order of PlanStep::buffers, then PlanStep::sizes as long
//   longs).
//   CPU:  extern "C" void entry(void* const* buffers, int64_t begin, int64_t end), for any 0 <= begin <= end <=
//   work_items; behind the buffers, where there are sizes, a pointer to them.

}  // namespace fuseline
