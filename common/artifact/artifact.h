// All that running a graph needs: kernels, launch plan, report, conditions.
// Pipeline: GenerateKernels + CompileKernel -> Artifact -> ArtifactStore, Execute, clients.
// Thread-safety: immutable after assembly; shared as std::shared_ptr<const Artifact>.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/kernel_image.h"
#include "common/artifact/launch_plan.h"
#include "common/fingerprint/fingerprint.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"

namespace fuseline {

// What a kernel does and what fusion saved. Bytes are those of whole tensors, each counted once a kernel.
struct KernelReport {
  std::string name;
  std::string kind;              // "pointwise", "reduction", "copy", …
  std::string schedule;          // "pointwise vec4", "persistent inner, 256 threads/row", …
  std::vector<std::string> ops;  // "mul %t0", in order
  int64_t tensors_read = 0;
  int64_t tensors_written = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t unfused_kernels = 0;    // one for each op that is not a view
  int64_t unfused_transfers = 0;  // tensors read and written by those
  int64_t unfused_bytes = 0;
};

struct FusionRefusal {
  std::string producer;  // "%t3"
  std::string consumer;
  std::string reason;
};

struct ArtifactReport {
  std::vector<KernelReport> kernels;  // one for each step of the plan, in order; equal steps share a KernelImage
  std::vector<FusionRefusal> refusals;
  int64_t intermediates_removed = 0;            // values that op-by-op execution would store and the plan does not
  std::map<std::string, int64_t> stage_micros;  // time of each stage when it was built
  int64_t kernels_before() const;
  int64_t kernels_after() const { return static_cast<int64_t>(kernels.size()); }
  int64_t transfers_before() const;
  int64_t transfers_after() const;
  int64_t bytes_before() const;
  int64_t bytes_after() const;
};

struct Artifact {
  Fingerprint fingerprint;
  std::string canonical_graph;  // CanonicalBytes: a hit compares them too
  Target target;
  CompileOptions options;
  std::string compiler_identity;
  int32_t least_driver_version = 0;  // CUDA: 13000 for 13.0; a load condition, not part of the key
  std::vector<KernelImage> kernels;
  LaunchPlan plan;
  ArtifactReport report;
};

using ArtifactPtr = std::shared_ptr<const Artifact>;

}  // namespace fuseline
