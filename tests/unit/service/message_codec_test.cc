#include "server/service/message_codec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kText[] = "graph g(x: f32[n]) {\n  %t = neg(x)\n  return y = %t\n}\n";

v1::Tensor F32Tensor(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  v1::Tensor proto;
  proto.set_dtype(v1::DATA_TYPE_F32);
  proto.mutable_shape()->Add(shape.begin(), shape.end());
  proto.set_data(values.data(), values.size() * sizeof(float));
  return proto;
}

TEST(MessageCodecTest, SpecGivesTheEngineWhatTheClientAsked) {
  FakeEngine engine;
  v1::CompileSpec spec;
  spec.set_graph_text(kText);
  (*spec.mutable_symbol_sizes())["n"] = 4;
  spec.set_target("cuda:sm_90a");
  spec.mutable_options()->set_numerics(v1::NUMERICS_EAGER);
  spec.mutable_options()->set_fast_math(true);
  spec.mutable_options()->set_allow_tf32(true);
  spec.mutable_options()->set_disable_fusion(true);
  spec.set_bypass_cache(true);
  const absl::StatusOr<CompileRequest> request = DecodeGraphSpec(spec, engine);
  ASSERT_OK(request);
  EXPECT_EQ(PrintGraph(request->graph), kText);
  EXPECT_EQ(request->symbols, (SymbolSizes{{"n", 4}}));
  EXPECT_EQ(request->target, Target::Cuda(90, true));
  EXPECT_EQ(request->options, (CompileOptions{Numerics::kEager, true, true, false}));
  EXPECT_TRUE(request->bypass_cache);
}

TEST(MessageCodecTest, EmptySpecFieldsAreTheDefaults) {
  FakeEngine engine;
  v1::CompileSpec spec;
  const absl::StatusOr<Graph> graph = ParseGraphText(kText);
  ASSERT_OK(graph);
  GraphToProto(*graph, spec.mutable_graph());
  const absl::StatusOr<CompileRequest> request = DecodeGraphSpec(spec, engine);
  ASSERT_OK(request);
  EXPECT_EQ(request->options, CompileOptions());
  EXPECT_EQ(request->target, Target::Cpu());
  EXPECT_FALSE(request->bypass_cache);
}

TEST(MessageCodecTest, BadSpecIsRefused) {
  FakeEngine engine;
  v1::CompileSpec spec;
  EXPECT_THAT(DecodeGraphSpec(spec, engine), StatusIs(kInvalid, "neither graph nor fingerprint"));
  spec.set_fingerprint("abc");
  EXPECT_THAT(DecodeGraphSpec(spec, engine), StatusIs(kInvalid, "send the graph"));
  EXPECT_THAT(DecodeFingerprint(spec), StatusIs(kInvalid, "a fingerprint has 32 bytes, not 3"));
  spec.set_graph_text("graph g(");
  EXPECT_THAT(DecodeGraphSpec(spec, engine), StatusIs(kInvalid, "line 1"));
  spec.set_graph_text(kText);
  spec.set_target("tpu");
  EXPECT_THAT(DecodeGraphSpec(spec, engine), StatusIs(kInvalid, "tpu"));
  spec.set_target("cpu");
  spec.mutable_options()->set_numerics(static_cast<v1::Numerics>(9));
  EXPECT_THAT(DecodeGraphSpec(spec, engine), StatusIs(kInvalid, "'numerics': 9"));
}

TEST(MessageCodecTest, DefaultTargetIsTheFirstThatRunsHere) {
  EngineInfo info;
  EXPECT_THAT(DefaultTarget(info), StatusIs(absl::StatusCode::kFailedPrecondition, "any target"));
  info.targets = {{Target::Cuda(90), true, false, ""}, {Target::Cpu(), false, true, ""}};
  EXPECT_EQ(*DefaultTarget(info), Target::Cuda(90));
  info.targets.push_back({Target::Cuda(80), true, true, ""});
  EXPECT_EQ(*DefaultTarget(info), Target::Cuda(80));
}

TEST(MessageCodecTest, TensorRoundTripKeepsBytes) {
  const v1::Tensor proto = F32Tensor({2, 2}, {1, -0.0f, 3, 4});
  const absl::StatusOr<Tensor> tensor = DecodeTensor(proto, "x", GraphLimits(), nullptr);
  ASSERT_OK(tensor);
  EXPECT_EQ(tensor->shape(), (Shape{2, 2}));
  v1::Tensor back;
  EncodeTensor(*tensor, &back);
  EXPECT_EQ(back.SerializeAsString(), proto.SerializeAsString());
}

TEST(MessageCodecTest, ScalarAndEmptyTensorsAreFine) {
  EXPECT_OK(DecodeTensor(F32Tensor({}, {1}), "x", GraphLimits(), nullptr));
  EXPECT_OK(DecodeTensor(F32Tensor({3, 0, 5}, {}), "x", GraphLimits(), nullptr));
}

TEST(MessageCodecTest, AlignedTensorIsBorrowedAndKeepsItsOwnerAlive) {
  auto owner = std::make_shared<v1::Tensor>(F32Tensor({1 << 20}, std::vector<float>(1 << 20, 2.0f)));
  const bool aligned = reinterpret_cast<uintptr_t>(owner->data().data()) % 64 == 0;  // the allocator's choice
  absl::StatusOr<Tensor> tensor = DecodeTensor(*owner, "x", GraphLimits(), owner);
  ASSERT_OK(tensor);
  EXPECT_EQ(tensor->data() == owner->data().data(), aligned);
  EXPECT_EQ(owner.use_count(), aligned ? 2 : 1);
  owner.reset();
  EXPECT_EQ(tensor->GetDouble((1 << 20) - 1), 2.0);
}

struct TensorCase {
  const char* name;
  std::function<void(v1::Tensor&)> damage;
  const char* message;
};

TEST(MessageCodecTest, HostileTensorIsRefused) {
  const TensorCase cases[] = {
      {"no dtype", [](v1::Tensor& t) { t.clear_dtype(); }, "dtype 0"},
      {"unknown dtype", [](v1::Tensor& t) { t.set_dtype(static_cast<v1::DataType>(258)); }, "dtype 258"},
      {"negative dim", [](v1::Tensor& t) { t.set_shape(0, -4); }, "dim -4 is negative"},
      {"negative beside zero", [](v1::Tensor& t) { t.set_shape(0, 0), t.add_shape(-1), t.clear_data(); },
       "dim -1 is negative"},
      {"too few bytes", [](v1::Tensor& t) { t.mutable_data()->pop_back(); }, "15 bytes of data, not 16"},
      {"too many bytes", [](v1::Tensor& t) { t.mutable_data()->push_back('x'); }, "17 bytes of data, not 16"},
      {"overflowing shape", [](v1::Tensor& t) { t.add_shape(std::numeric_limits<int64_t>::max()); },
       "more elements than the limit"},
      {"overflowing product", [](v1::Tensor& t) { t.set_shape(0, int64_t{1} << 40), t.add_shape(int64_t{1} << 40); },
       "more elements than the limit"},
      {"empty with dims that overflow",
       [](v1::Tensor& t) {
         t.set_shape(0, int64_t{1} << 40);
         t.add_shape(int64_t{1} << 40);
         t.add_shape(0);
         t.clear_data();
       },
       "more elements than the limit"},
      {"rank over the limit",
       [](v1::Tensor& t) {
         for (int i = 0; i < 12; ++i) t.add_shape(1);
       },
       "rank 13 is over the limit of 12"},
      {"bool of 2", [](v1::Tensor& t) { t.set_dtype(v1::DATA_TYPE_BOOL), t.set_data(std::string("\0\1\2\0", 4)); },
       "neither 0 nor 1"},
  };
  for (const TensorCase& c : cases) {
    v1::Tensor proto = F32Tensor({4}, {1, 2, 3, 4});
    c.damage(proto);
    EXPECT_THAT(DecodeTensor(proto, "x", GraphLimits(), nullptr), StatusIs(kInvalid, c.message)) << c.name;
  }
}

TEST(MessageCodecTest, TensorsBindByNameOrByPosition) {
  const v1::Tensor one = F32Tensor({}, {1});
  const v1::Tensor two = F32Tensor({}, {2});
  const GraphLimits limits;
  const std::vector<std::string> names = {"a", "b"};
  const auto values = [&](const std::vector<TensorArgument>& arguments) {
    const absl::StatusOr<std::vector<Tensor>> tensors = BindTensors(names, arguments, "input", limits, nullptr);
    EXPECT_OK(tensors);
    return tensors.ok() ? std::vector<double>{(*tensors)[0].GetDouble(0), (*tensors)[1].GetDouble(0)}
                        : std::vector<double>();
  };
  EXPECT_EQ(values({{"", &one}, {"", &two}}), (std::vector<double>{1, 2}));
  EXPECT_EQ(values({{"b", &one}, {"a", &two}}), (std::vector<double>{2, 1}));
  const auto status = [&](const std::vector<TensorArgument>& arguments) {
    return BindTensors(names, arguments, "input", limits, nullptr).status();
  };
  EXPECT_THAT(status({{"", &one}}), StatusIs(kInvalid, "1 input tensors, the graph has 2"));
  EXPECT_THAT(status({{"a", &one}}), StatusIs(kInvalid, "input 'b' is missing"));
  EXPECT_THAT(status({{"a", &one}, {"", &two}}), StatusIs(kInvalid, "some input tensors have names"));
  EXPECT_THAT(status({{"a", &one}, {"a", &two}}), StatusIs(kInvalid, "input 'a' is given twice"));
  EXPECT_THAT(status({{"a", &one}, {"c", &two}}), StatusIs(kInvalid, "no input 'c'"));
  EXPECT_THAT(status({{"a", &one}, {"b", nullptr}}), StatusIs(kInvalid, "input 'b' has no tensor"));
  EXPECT_EQ(GetErrorReason(status({})), ErrorReason::kTensorMismatch);
  EXPECT_OK(BindTensors({}, {}, "input", limits, nullptr));
}

}  // namespace
}  // namespace fuseline::service
