// Bytes as the launch plan of an artifact: where ValidateArtifact accepts it, running it stays within its memory, keeps
// temporaries apart and gives away nothing that was not written.
#include <string>
#include <vector>

#include "common/artifact/codec/artifact_codec.h"
#include "fuseline/v1/artifact.pb.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/message_fuzzer.h"
#include "tests/fuzz/plan_simulator.h"

namespace fuseline::fuzz {
namespace {

constexpr int kKernels = 24;  // more than any plan of the corpus launches

[[maybe_unused]] std::vector<std::string> PlanWords() { return {"in0", "in1", "out0", "out1"}; }

// An artifact in which only the plan is missing.
v1::Artifact Shell(const Target& target) {
  Artifact artifact;
  artifact.target = target;
  for (int k = 0; k < kKernels; ++k) {
    KernelImage image;
    image.format = target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
    image.entry = "kernel";
    image.bytes = "image";
    artifact.kernels.push_back(std::move(image));
  }
  v1::Artifact proto;
  ArtifactToProto(artifact, &proto);
  return proto;
}

}  // namespace
}  // namespace fuseline::fuzz

FUSELINE_MESSAGE_FUZZER(fuseline::v1::LaunchPlan, fuseline::fuzz::PlanWords)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  v1::LaunchPlan plan;
  if (!ParseMessage(AsText(data, size), &plan)) return 0;
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    v1::Artifact proto = Shell(target);
    *proto.mutable_plan() = plan;
    const absl::StatusOr<Artifact> artifact = ArtifactFromProto(proto);
    RequireBlamesInput(artifact.status(), "validate");
    if (artifact.ok()) RequireOk(SimulatePlan(*artifact), "run");
  }
  return 0;
}
