// The reader without protobuf against the codec with it.
#include "common/artifact/artifact_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/artifact/codec/artifact_codec.h"
#include "common/artifact/wire_fields.h"
#include "common/status/error.h"
#include "fuseline/v1/artifact.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

// Every field that launching reads has a value of its own.
Artifact MakeArtifact(const Target& target) {
  Artifact artifact;
  for (size_t i = 0; i < artifact.fingerprint.bytes.size(); ++i)
    artifact.fingerprint.bytes[i] = static_cast<uint8_t>(i * 7);
  artifact.canonical_graph = std::string("canonical\0bytes", 15);
  artifact.target = target;
  artifact.options.numerics = Numerics::kEager;
  artifact.options.allow_tf32 = true;
  artifact.options.fuse = false;
  artifact.compiler_identity = "compiler 1";
  artifact.least_driver_version = 12040;
  KernelImage kernel;
  kernel.format = target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
  kernel.entry = "fuseline_pointwise_mul_0";
  kernel.bytes = std::string("\x7f\0ELF", 5);
  kernel.resources = {32, 1024, 8, 16, 64};
  artifact.kernels = {kernel};
  LaunchPlan& plan = artifact.plan;
  plan.inputs.push_back({"in0", DType::kF32, {2, 3}, {1, 200}, 16});
  plan.inputs.push_back({"in1", DType::kBool, {}, {}, 1});
  plan.outputs.push_back({"out0", DType::kBF16, {2, 3}, {3, 1}, 16});
  plan.constants = {std::string(12, '\x01')};
  plan.checks = {{"%v3", 128}};
  plan.arena_bytes = 512;
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 1608, 0},
                  {PlanBuffer::Kind::kConstant, 0, 12, 0},
                  {PlanBuffer::Kind::kTemporary, 0, 12, 256},
                  {PlanBuffer::Kind::kChecks, 0, 16, 0},
                  {PlanBuffer::Kind::kOutput, 0, 12, 0}};
  plan.steps.resize(2);
  plan.steps[0].buffers = {0, 1, 2, 3};
  plan.steps[0].sizes = {1, 300, -5};
  plan.steps[0].work_items = 6;
  plan.steps[0].work_grain = 2;
  plan.steps[0].dims.grid[0] = 5;
  plan.steps[0].dims.block[1] = 3;
  plan.steps[0].dims.dynamic_shared_bytes = 4096;
  plan.steps[1].kind = PlanStep::Kind::kCopy;
  plan.steps[1].buffers = {2, 4};
  return artifact;
}

// What the reader leaves out is taken out of the other too.
std::string Reserialized(Artifact artifact) {
  artifact.report = {};
  for (KernelImage& kernel : artifact.kernels) kernel.source.clear();
  return SerializeArtifact(artifact);
}

TEST(ArtifactReaderTest, ReadsWhatTheCodecWrites) {
  for (const Target& target : {Target::Cpu(), Target::Cuda(90, true)}) {
    Artifact artifact = MakeArtifact(target);
    const std::string plain = SerializeArtifact(artifact);
    artifact.kernels[0].source = "void f();";
    artifact.report.kernels.push_back({"fuseline_pointwise_mul_0", "pointwise", "vec4", {"mul %t0"}});
    artifact.report.stage_micros["lower"] = 12;
    const auto read = ReadArtifact(SerializeArtifact(artifact));
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(SerializeArtifact(*read), plain);
  }
}

TEST(ArtifactReaderTest, UnpackedNumbersAndUnknownFieldsAreRead) {
  v1::LaunchPlan more;
  v1::PlanTensor* tensor = more.add_inputs();
  tensor->set_name("in2");
  tensor->set_dtype(v1::DATA_TYPE_F64);
  tensor->set_alignment_bytes(8);
  std::string bytes = SerializeArtifact(MakeArtifact(Target::Cpu()));
  // A second `plan` (field 9), which is merged with the first; its tensor has shape and strides one number a field.
  std::string tensor_bytes = tensor->SerializeAsString() + std::string("\x18\x04\x20\x01", 4);
  std::string plan_bytes = "\x0a" + std::string(1, static_cast<char>(tensor_bytes.size())) + tensor_bytes;
  bytes += "\x4a" + std::string(1, static_cast<char>(plan_bytes.size())) + plan_bytes;
  bytes += std::string("\xf8\x07\x01", 3);  // field 127, a varint
  bytes += std::string(
      "\xf9\x07"
      "12345678",
      10);  // the same as 8 bytes
  bytes += std::string(
      "\xfd\x07"
      "1234"
      "\xfa\x07\x01x",
      10);  // as 4 bytes, and as text
  const auto read = ReadArtifact(bytes);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->plan.inputs.size(), 3u);
  EXPECT_EQ(read->plan.inputs[2].shape, (Shape{4}));
  const auto decoded = DeserializeArtifact(bytes);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(SerializeArtifact(*read), SerializeArtifact(*decoded));
}

// What both take, they read alike; what the reader takes can be run.
TEST(ArtifactReaderTest, MutatedBytesAreReadAsTheCodecReadsThem) {
  google::protobuf::LogSilencer silencer;
  const std::string good = SerializeArtifact(MakeArtifact(Target::Cuda(90)));
  std::mt19937 random(1);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const size_t at = random() % bytes.size();
      if (random() % 8 == 0) {
        bytes.erase(at, 1);
      } else {
        bytes[at] = static_cast<char>(random());
      }
    }
    const auto read = ReadArtifact(bytes);
    const auto decoded = DeserializeArtifact(bytes);
    if (decoded.ok()) {
      ASSERT_THAT(read, IsOk()) << "seed 1, round " << round;
      ASSERT_EQ(Reserialized(*read), Reserialized(*decoded)) << "seed 1, round " << round;
      ++taken;
    }
    if (read.ok()) {
      ASSERT_OK(ValidateArtifact(*read));
    } else {
      EXPECT_EQ(GetErrorReason(read.status()), ErrorReason::kDataLoss);
    }
  }
  EXPECT_GT(taken, 1000);
}

TEST(ArtifactReaderTest, EveryTruncationIsRefusedOrReadAlike) {
  google::protobuf::LogSilencer silencer;
  const std::string good = SerializeArtifact(MakeArtifact(Target::Cpu()));
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string bytes = good.substr(0, size);
    EXPECT_EQ(ReadArtifact(bytes).ok(), DeserializeArtifact(bytes).ok()) << size;
  }
}

TEST(ArtifactReaderTest, OtherVersionsAreRefused) {
  v1::Artifact proto;
  ArtifactToProto(MakeArtifact(Target::Cpu()), &proto);
  proto.set_format_version(7);
  EXPECT_THAT(ReadArtifact(proto.SerializeAsString()),
              StatusIs(absl::StatusCode::kInvalidArgument, "format version 7, this program reads 1"));
}

TEST(WireFieldsTest, MalformedBytesEndTheWalk) {
  for (const std::string bytes : {"\x08",
                                  "\x0a\x05"
                                  "abc",
                                  "\x0b",
                                  "\x09"
                                  "123",
                                  "\x0d"
                                  "12",
                                  "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    WireFields fields(bytes);
    WireField field;
    EXPECT_FALSE(fields.Next(field));
    EXPECT_FALSE(fields.ok());
  }
  const std::string zero_number("\x00\x01", 2);
  WireFields fields(zero_number);
  WireField field;
  EXPECT_FALSE(fields.Next(field));
  EXPECT_FALSE(fields.ok());
}

}  // namespace
}  // namespace fuseline
