// Round trips of artifacts, and the table of what ValidateArtifact refuses.
#include "common/artifact/codec/artifact_codec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/status/error.h"
#include "fuseline/v1/artifact.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

PlanTensor MakePlanTensor(const std::string& name, Shape shape) {
  PlanTensor tensor;
  tensor.name = name;
  tensor.dtype = DType::kF32;
  tensor.strides = DenseStrides(shape);
  tensor.shape = std::move(shape);
  return tensor;
}

// Two steps: a kernel from input and constant into a temporary, and a copy into the output.
Artifact MakeArtifact(const Target& target) {
  Artifact artifact;
  for (size_t i = 0; i < artifact.fingerprint.bytes.size(); ++i)
    artifact.fingerprint.bytes[i] = static_cast<uint8_t>(i * 7);
  artifact.canonical_graph = std::string("canonical\0bytes", 15);
  artifact.target = target;
  artifact.options.numerics = Numerics::kEager;
  artifact.options.fast_math = true;
  artifact.options.fuse = false;
  artifact.compiler_identity = "compiler 1";
  artifact.least_driver_version = target.is_cuda() ? 13000 : 0;
  KernelImage kernel;
  kernel.format = target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
  kernel.entry = "fuseline_pointwise_mul_0";
  kernel.bytes = std::string(
      "\x7f"
      "ELF\0\xff",
      6);
  kernel.source = "void f();";
  kernel.resources = {32, 1024, 8, 16, 64};
  artifact.kernels.push_back(kernel);
  LaunchPlan& plan = artifact.plan;
  plan.inputs.push_back(MakePlanTensor("in0", {2, 3}));
  plan.outputs.push_back(MakePlanTensor("out0", {2, 3}));
  plan.constants.push_back(std::string(12, '\x01'));
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 24, 0},
                  {PlanBuffer::Kind::kConstant, 0, 12, 0},
                  {PlanBuffer::Kind::kTemporary, 0, 24, 256},
                  {PlanBuffer::Kind::kOutput, 0, 24, 0},
                  {PlanBuffer::Kind::kChecks, 0, 32, 0}};
  plan.checks = {{"%v1", 10}, {"%v2", 1}};
  PlanStep launch;
  launch.kernel = 0;
  launch.dims = {{4, 2, 1}, {128, 2, 1}, 512};
  launch.work_items = 6;
  launch.work_grain = 2;
  launch.buffers = {0, 1, 2};
  PlanStep copy;
  copy.kind = PlanStep::Kind::kCopy;
  copy.buffers = {2, 3};
  plan.steps = {launch, copy};
  plan.arena_bytes = 512;
  KernelReport report;
  report.name = "fuseline_pointwise_mul_0";
  report.kind = "pointwise";
  report.schedule = "pointwise vec4";
  report.ops = {"mul %t0", "add %t1"};
  report.tensors_read = 2;
  report.tensors_written = 1;
  report.bytes_read = 36;
  report.bytes_written = 24;
  report.unfused_kernels = 2;
  report.unfused_transfers = 6;
  report.unfused_bytes = 120;
  artifact.report.kernels.push_back(report);
  artifact.report.refusals.push_back({"%t0", "%t1", "shapes differ"});
  artifact.report.intermediates_removed = 1;
  artifact.report.stage_micros = {{"lower", 10}, {"emit", 20}, {"compile", 30}, {"a", 1}, {"b", 2}};
  return artifact;
}

TEST(ArtifactCodecTest, RoundTripKeepsEveryField) {
  for (const Target& target : {Target::Cpu(), Target::Cuda(90, true)}) {
    const Artifact artifact = MakeArtifact(target);
    const absl::StatusOr<Artifact> back = DeserializeArtifact(SerializeArtifact(artifact));
    ASSERT_OK(back) << target.ToString();
    EXPECT_EQ(back->fingerprint, artifact.fingerprint);
    EXPECT_EQ(back->canonical_graph, artifact.canonical_graph);
    EXPECT_EQ(back->target, artifact.target);
    EXPECT_EQ(back->options, artifact.options);
    EXPECT_EQ(back->compiler_identity, artifact.compiler_identity);
    EXPECT_EQ(back->least_driver_version, artifact.least_driver_version);
    ASSERT_EQ(back->kernels.size(), 1u);
    EXPECT_EQ(back->kernels[0].format, artifact.kernels[0].format);
    EXPECT_EQ(back->kernels[0].bytes, artifact.kernels[0].bytes);
    EXPECT_EQ(back->kernels[0].entry, artifact.kernels[0].entry);
    EXPECT_EQ(back->kernels[0].source, artifact.kernels[0].source);
    EXPECT_EQ(back->kernels[0].resources.registers, 32);
    EXPECT_EQ(back->kernels[0].resources.static_shared_bytes, 1024);
    EXPECT_EQ(back->kernels[0].resources.spill_store_bytes, 8);
    EXPECT_EQ(back->kernels[0].resources.spill_load_bytes, 16);
    EXPECT_EQ(back->kernels[0].resources.stack_bytes, 64);
    EXPECT_EQ(back->plan.inputs[0].name, "in0");
    EXPECT_EQ(back->plan.inputs[0].dtype, DType::kF32);
    EXPECT_EQ(back->plan.inputs[0].shape, (Shape{2, 3}));
    EXPECT_EQ(back->plan.inputs[0].strides, (Shape{3, 1}));
    EXPECT_EQ(back->plan.inputs[0].alignment_bytes, 16);
    EXPECT_EQ(back->plan.constants, artifact.plan.constants);
    ASSERT_EQ(back->plan.buffers.size(), 5u);
    ASSERT_EQ(back->plan.checks.size(), 2u);
    EXPECT_EQ(back->plan.checks[0].node, "%v1");
    EXPECT_EQ(back->plan.checks[0].extent, 10);
    EXPECT_EQ(back->plan.buffers[2].kind, PlanBuffer::Kind::kTemporary);
    EXPECT_EQ(back->plan.buffers[2].arena_offset_bytes, 256);
    ASSERT_EQ(back->plan.steps.size(), 2u);
    EXPECT_EQ(back->plan.steps[0].dims.grid[0], 4);
    EXPECT_EQ(back->plan.steps[0].dims.block[0], 128);
    EXPECT_EQ(back->plan.steps[0].dims.dynamic_shared_bytes, 512);
    EXPECT_EQ(back->plan.steps[0].work_items, 6);
    EXPECT_EQ(back->plan.steps[0].work_grain, 2);
    EXPECT_EQ(back->plan.steps[0].buffers, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(back->plan.steps[1].kind, PlanStep::Kind::kCopy);
    EXPECT_EQ(back->plan.arena_bytes, 512);
    EXPECT_EQ(back->report.kernels[0].ops, artifact.report.kernels[0].ops);
    EXPECT_EQ(back->report.kernels[0].unfused_bytes, 120);
    EXPECT_EQ(back->report.refusals[0].reason, "shapes differ");
    EXPECT_EQ(back->report.stage_micros, artifact.report.stage_micros);
    // Whatever this test forgets to compare.
    EXPECT_EQ(SerializeArtifact(*back), SerializeArtifact(artifact));
  }
}

TEST(ArtifactCodecTest, EqualArtifactsGiveEqualBytes) {
  const std::string bytes = SerializeArtifact(MakeArtifact(Target::Cpu()));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SerializeArtifact(MakeArtifact(Target::Cpu())), bytes);
}

TEST(ArtifactCodecTest, TruncatedOrFlippedBytesNeverCrashAndNeverPassUnvalidated) {
  const google::protobuf::LogSilencer quiet;  // it reports every string that is no UTF-8
  const std::string bytes = SerializeArtifact(MakeArtifact(Target::Cuda(90)));
  for (size_t n = 0; n < bytes.size(); ++n) {
    const absl::StatusOr<Artifact> artifact = DeserializeArtifact(bytes.substr(0, n));
    if (artifact.ok()) {
      EXPECT_OK(ValidateArtifact(*artifact)) << n;
    }
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const absl::StatusOr<Artifact> artifact = DeserializeArtifact(damaged);
      if (artifact.ok()) {
        EXPECT_OK(ValidateArtifact(*artifact)) << i;
      }
    }
  }
  EXPECT_THAT(DeserializeArtifact(""), StatusIs(absl::StatusCode::kInvalidArgument, "format version 0"));
  EXPECT_THAT(DeserializeArtifact("not a message"), StatusIs(absl::StatusCode::kInvalidArgument, "not a message"));
}

struct MessageCase {
  const char* name;
  std::function<void(v1::Artifact&)> damage;
  const char* message;
};

TEST(ArtifactCodecTest, MessageThatNoArtifactCanHoldIsRefused) {
  const MessageCase cases[] = {
      {"other format", [](v1::Artifact& a) { a.set_format_version(2); }, "format version 2, this program reads 1"},
      {"short fingerprint", [](v1::Artifact& a) { a.set_fingerprint("abc"); }, "fingerprint of 3 bytes"},
      {"unknown target", [](v1::Artifact& a) { a.set_target("tpu"); }, "tpu"},
      {"no numerics", [](v1::Artifact& a) { a.mutable_options()->clear_numerics(); }, "numerics 0"},
      {"unknown image format",
       [](v1::Artifact& a) { a.mutable_kernels(0)->set_format(static_cast<v1::ImageFormat>(260)); },
       "image format 260"},
      {"unknown dtype",
       [](v1::Artifact& a) { a.mutable_plan()->mutable_inputs(0)->set_dtype(static_cast<v1::DataType>(258)); },
       "dtype 258"},
      {"unknown step kind",
       [](v1::Artifact& a) { a.mutable_plan()->mutable_steps(0)->set_kind(static_cast<v1::PlanStep::Kind>(257)); },
       "step kind 257"},
      {"no step kind", [](v1::Artifact& a) { a.mutable_plan()->mutable_steps(0)->clear_kind(); }, "step kind 0"},
      {"no buffer kind", [](v1::Artifact& a) { a.mutable_plan()->mutable_buffers(0)->clear_kind(); }, "buffer kind 0"},
      {"unknown buffer kind",
       [](v1::Artifact& a) { a.mutable_plan()->mutable_buffers(0)->set_kind(static_cast<v1::PlanBuffer::Kind>(259)); },
       "buffer kind 259"},
      {"two dims of a grid",
       [](v1::Artifact& a) { a.mutable_plan()->mutable_steps(0)->mutable_dims()->mutable_grid()->RemoveLast(); },
       "three by three"},
      {"no plan", [](v1::Artifact& a) { a.mutable_plan()->clear_steps(); }, "no step writes output 'out0'"},
  };
  for (const MessageCase& c : cases) {
    v1::Artifact proto;
    ArtifactToProto(MakeArtifact(Target::Cuda(90)), &proto);
    c.damage(proto);
    const absl::StatusOr<Artifact> artifact = ArtifactFromProto(proto);
    EXPECT_THAT(artifact, StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.name;
    EXPECT_EQ(GetErrorReason(artifact.status()), ErrorReason::kDataLoss) << c.name;
  }
}

struct InvalidCase {
  const char* name;
  std::function<void(Artifact&)> damage;
  const char* message;
};

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(ArtifactCodecTest, PlanThatCouldLeaveItsBuffersIsRefused) {
  const InvalidCase cases[] = {
      {"kernel out of range", [](Artifact& a) { a.plan.steps[0].kernel = 1; }, "step 0 launches kernel 1"},
      {"negative kernel", [](Artifact& a) { a.plan.steps[0].kernel = -1; }, "step 0 launches kernel -1"},
      {"buffer out of range", [](Artifact& a) { a.plan.steps[0].buffers[1] = 5; }, "step 0 uses buffer 5"},
      {"negative buffer", [](Artifact& a) { a.plan.steps[1].buffers[0] = -1; }, "step 1 uses buffer -1"},
      {"copy of three", [](Artifact& a) { a.plan.steps[1].buffers.push_back(0); }, "copies between 3 buffers"},
      {"copy of unequal sizes", [](Artifact& a) { a.plan.steps[1].buffers[0] = 1; }, "sizes that differ"},
      {"copy into an input",
       [](Artifact& a) {
         a.plan.steps[1].buffers = {3, 0};
       },
       "must not be written"},
      {"input out of range", [](Artifact& a) { a.plan.buffers[0].index = 1; }, "buffer 0 has index 1"},
      {"negative index", [](Artifact& a) { a.plan.buffers[3].index = -1; }, "buffer 3 has index -1"},
      {"input larger than its tensor", [](Artifact& a) { a.plan.buffers[0].size_bytes = 25; },
       "buffer 0 has size 25, more than"},
      {"output larger than its tensor", [](Artifact& a) { a.plan.buffers[3].size_bytes = 28; },
       "buffer 3 has size 28, more than"},
      {"output smaller than its tensor", [](Artifact& a) { a.plan.buffers[3].size_bytes = 20; },
       "buffer 3 has size 20, less than"},
      {"copy of what was never written", [](Artifact& a) { a.plan.steps[0].buffers.pop_back(); },
       "step 1 copies from buffer 2, which no step has written"},
      {"copy before it is written", [](Artifact& a) { std::swap(a.plan.steps[0], a.plan.steps[1]); },
       "step 0 copies from buffer 2, which no step has written"},
      {"output only read",
       [](Artifact& a) {
         a.plan.buffers.push_back({PlanBuffer::Kind::kTemporary, 0, 24, 0});
         a.plan.steps[1].buffers = {3, 5};
       },
       "step 1 copies from buffer 3, which no step has written"},
      {"constant larger than its bytes", [](Artifact& a) { a.plan.buffers[1].size_bytes = 13; },
       "buffer 1 has size 13, more than"},
      {"more room for index checks than there are", [](Artifact& a) { a.plan.checks.pop_back(); },
       "buffer 4 has size 32 for 1 index checks"},
      {"less room for index checks than there are", [](Artifact& a) { a.plan.buffers[4].size_bytes = 16; },
       "buffer 4 has size 16 for 2 index checks"},
      {"copy from the index checks",
       [](Artifact& a) {
         a.plan.steps[1].buffers = {4, 3};
       },
       "sizes that differ"},
      {"index check of a negative size", [](Artifact& a) { a.plan.checks[1].extent = -1; },
       "index check 1 has no proper node and extent"},
      {"index check of a node with an endless name",
       [](Artifact& a) { a.plan.checks[0].node = std::string(5000, 'v'); }, "index check 0 has no proper node"},
      {"negative size", [](Artifact& a) { a.plan.buffers[2].size_bytes = -1; }, "buffer 2 has size -1"},
      {"huge size", [](Artifact& a) { a.plan.buffers[2].size_bytes = kHuge; }, "buffer 2 has size"},
      {"temporary outside the arena", [](Artifact& a) { a.plan.arena_bytes = 279; }, "reaches outside the arena"},
      {"offset that overflows", [](Artifact& a) { a.plan.buffers[2].arena_offset_bytes = kHuge - 255; },
       "arena offset"},
      {"negative offset", [](Artifact& a) { a.plan.buffers[2].arena_offset_bytes = -256; }, "arena offset -256"},
      {"unaligned offset", [](Artifact& a) { a.plan.buffers[2].arena_offset_bytes = 8; }, "arena offset 8"},
      {"negative arena", [](Artifact& a) { a.plan.arena_bytes = -1; }, "arena of -1 bytes"},
      {"huge arena", [](Artifact& a) { a.plan.arena_bytes = kHuge; }, "arena of"},
      {"no grid", [](Artifact& a) { a.plan.steps[0].dims.grid[0] = 0; }, "grid 0"},
      {"grid too high", [](Artifact& a) { a.plan.steps[0].dims.grid[1] = 65536; }, "grid 65536"},
      {"block too large", [](Artifact& a) { a.plan.steps[0].dims.block[0] = 1024; }, "too many threads"},
      {"block that overflows", [](Artifact& a) { a.plan.steps[0].dims.block[0] = kHuge; }, "block"},
      {"too much shared memory", [](Artifact& a) { a.plan.steps[0].dims.dynamic_shared_bytes = 1 << 20; },
       "shared memory"},
      {"no dtype", [](Artifact& a) { a.plan.inputs[0].dtype = DType::kInvalid; }, "input 'in0' has no dtype"},
      {"negative dim", [](Artifact& a) { a.plan.inputs[0].shape[0] = -2; }, "negative dim"},
      {"shape that overflows",
       [](Artifact& a) {
         a.plan.inputs[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "too large"},
      {"strides that overflow",
       [](Artifact& a) {
         a.plan.inputs[0].strides = {kHuge, 1};
       },
       "reaches too far"},
      {"stride that overflows, of a dim of one",
       [](Artifact& a) {
         a.plan.inputs[0].shape = {1, 6};
         a.plan.inputs[0].strides = {kHuge, 1};
       },
       "reaches too far"},
      {"strides that overflow, of an empty tensor",
       [](Artifact& a) {
         a.plan.inputs[0].shape = {5, 0};
         a.plan.inputs[0].strides = {kHuge, 1};
         a.plan.buffers[0].size_bytes = 0;
       },
       "reaches too far"},
      {"negative stride",
       [](Artifact& a) {
         a.plan.inputs[0].strides = {-3, 1};
       },
       "negative stride"},
      {"strides of another rank", [](Artifact& a) { a.plan.inputs[0].strides.pop_back(); }, "1 strides for 2 dims"},
      {"output not dense",
       [](Artifact& a) {
         a.plan.outputs[0].strides = {1, 2};
       },
       "output 'out0' is not dense"},
      {"alignment no power of two", [](Artifact& a) { a.plan.inputs[0].alignment_bytes = 24; }, "alignment 24"},
      {"no alignment", [](Artifact& a) { a.plan.inputs[0].alignment_bytes = 0; }, "alignment 0"},
      {"output never written", [](Artifact& a) { a.plan.steps.pop_back(); }, "no step writes output 'out0'"},
      {"image of the other kind", [](Artifact& a) { a.kernels[0].format = ImageFormat::kSharedObject; },
       "image format 3 for cuda:sm_90"},
      {"empty image", [](Artifact& a) { a.kernels[0].bytes.clear(); }, "kernel 0 is empty"},
      {"no entry", [](Artifact& a) { a.kernels[0].entry.clear(); }, "no proper entry"},
      {"entry no identifier", [](Artifact& a) { a.kernels[0].entry = "f;g"; }, "no identifier"},
      {"negative driver version", [](Artifact& a) { a.least_driver_version = -1; }, "driver version"},
  };
  for (const InvalidCase& c : cases) {
    Artifact artifact = MakeArtifact(Target::Cuda(90));
    ASSERT_OK(ValidateArtifact(artifact));
    c.damage(artifact);
    EXPECT_THAT(ValidateArtifact(artifact), StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.name;
    EXPECT_THAT(DeserializeArtifact(SerializeArtifact(artifact)),
                StatusIs(absl::StatusCode::kInvalidArgument, c.message))
        << c.name;
  }
}

TEST(ArtifactCodecTest, CpuPlanNeedsWorkItemsButNoLaunchDims) {
  Artifact artifact = MakeArtifact(Target::Cpu());
  artifact.plan.steps[0].dims.grid[0] = 0;
  EXPECT_OK(ValidateArtifact(artifact));
  artifact.plan.steps[0].work_items = -1;
  EXPECT_THAT(ValidateArtifact(artifact), StatusIs(absl::StatusCode::kInvalidArgument, "-1 work items"));
  artifact.plan.steps[0].work_items = 1;
  artifact.plan.steps[0].work_grain = 0;
  EXPECT_THAT(ValidateArtifact(artifact), StatusIs(absl::StatusCode::kInvalidArgument, "grains of 0"));
}

TEST(ArtifactCodecTest, StridedInputMayReachAsFarAsItsStridesSay) {
  Artifact artifact = MakeArtifact(Target::Cpu());
  artifact.plan.inputs[0].strides = {1, 10};  // last element at 1 + 20
  artifact.plan.buffers[0].size_bytes = 22 * 4;
  EXPECT_OK(ValidateArtifact(artifact));
  artifact.plan.buffers[0].size_bytes += 1;
  EXPECT_THAT(ValidateArtifact(artifact), StatusIs(absl::StatusCode::kInvalidArgument, "more than what it stands for"));
}

// Three temporaries at `offsets`, of 300 bytes each; each step launches with the temporaries of its list.
Artifact MakeArenaArtifact(const std::vector<int64_t>& offsets, const std::vector<std::vector<int32_t>>& steps) {
  Artifact artifact = MakeArtifact(Target::Cpu());
  LaunchPlan& plan = artifact.plan;
  plan.buffers.pop_back();
  plan.checks.clear();
  const int32_t base = static_cast<int32_t>(plan.buffers.size());
  plan.arena_bytes = 1 << 20;
  for (const int64_t offset : offsets) plan.buffers.push_back({PlanBuffer::Kind::kTemporary, 0, 300, offset});
  for (const std::vector<int32_t>& temporaries : steps) {
    PlanStep step;
    for (const int32_t t : temporaries) step.buffers.push_back(base + t);
    plan.steps.push_back(step);
  }
  return artifact;
}

TEST(ArtifactCodecTest, TemporariesMayShareMemoryOnlyOneAfterTheOther) {
  struct Case {
    const char* name;
    std::vector<int64_t> offsets;
    std::vector<std::vector<int32_t>> steps;
    const char* message;  // empty: valid
  };
  const Case cases[] = {
      {"apart", {512, 1024, 1536}, {{0, 1, 2}}, ""},
      {"one after the other", {512, 512, 512}, {{0}, {1}, {2}}, ""},
      {"in use again later", {512, 512, 1536}, {{0}, {1}, {0}}, "temporaries 4 and 5 overlap"},
      {"in one step", {512, 1024, 512}, {{0, 1}, {1, 2}, {0}}, "temporaries 4 and 6 overlap"},
      {"end of one, start of another, in one step", {512, 512, 2048}, {{0}, {0, 1}}, "temporaries 4 and 5 overlap"},
      {"by its last bytes", {512, 768, 2048}, {{0, 1}}, "temporaries 4 and 5 overlap"},
      {"by its first bytes", {768, 512, 2048}, {{0, 1}}, "temporaries 4 and 5 overlap"},
      {"named twice in a step", {512, 512, 2048}, {{0, 0}, {1, 1}}, ""},
      {"never used", {512, 512, 512}, {{0}}, ""},
  };
  for (const Case& c : cases) {
    const absl::Status status = ValidateArtifact(MakeArenaArtifact(c.offsets, c.steps));
    if (*c.message == 0) {
      EXPECT_OK(status) << c.name;
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.name;
    }
  }
  Artifact artifact = MakeArenaArtifact({512, 512, 512}, {{0, 1, 2}});
  for (size_t b = 4; b < artifact.plan.buffers.size(); ++b) artifact.plan.buffers[b].size_bytes = 0;
  EXPECT_OK(ValidateArtifact(artifact));
}

TEST(ArtifactCodecTest, EmptyOutputNeedsNoStep) {
  Artifact artifact = MakeArtifact(Target::Cpu());
  artifact.plan.outputs[0] = MakePlanTensor("out0", {0, 5, 7});
  artifact.plan.buffers[3].size_bytes = 0;
  artifact.plan.steps.pop_back();
  EXPECT_OK(ValidateArtifact(artifact));
  // Empty as well, but its other dims overflow.
  artifact.plan.outputs[0].shape = {0, int64_t{1} << 60, int64_t{1} << 60};
  EXPECT_THAT(ValidateArtifact(artifact), StatusIs(absl::StatusCode::kInvalidArgument, "output 'out0' is too large"));
}

}  // namespace
}  // namespace fuseline
