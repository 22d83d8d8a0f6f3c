// Tested by tests/unit/server/memory_artifact_store_test.cc
#include "server/cache/artifact_size.h"

namespace fuseline::cache {
namespace {

// Book-keeping, and the many small strings and vectors of plans and reports, none of which is worth walking for
// exactly.
constexpr int64_t kArtifactBytes = 1024;
constexpr int64_t kItemBytes = 256;

}  // namespace

int64_t ArtifactMemoryBytes(const Artifact& artifact) {
  int64_t bytes = kArtifactBytes + static_cast<int64_t>(artifact.canonical_graph.size());
  for (const KernelImage& kernel : artifact.kernels) {
    bytes += kItemBytes + static_cast<int64_t>(kernel.bytes.size()) + static_cast<int64_t>(kernel.source.size());
  }
  for (const std::string& constant : artifact.plan.constants) bytes += static_cast<int64_t>(constant.size());
  const size_t items = artifact.plan.inputs.size() + artifact.plan.outputs.size() + artifact.plan.buffers.size() +
                       artifact.plan.steps.size() + artifact.report.kernels.size() + artifact.report.refusals.size();
  return bytes + kItemBytes * static_cast<int64_t>(items);
}

}  // namespace fuseline::cache
