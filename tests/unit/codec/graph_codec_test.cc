// Round trips through fuseline.v1.Graph, and what hostile messages get.
#include "common/ir/codec/graph_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "fuseline/v1/graph.pb.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

// Every kind of thing that a graph can have. Canonical text, so that printing it must give it back.
constexpr const char* kTexts[] = {
    "graph pointwise(x: f32[1024, 1024], w: f32[1024], b: f32[1024]) {\n"
    "  %t0 = mul(x, w)\n"
    "  %t1 = add(%t0, b)\n"
    "  %t2 = sigmoid(%t1)\n"
    "  return y = %t2\n"
    "}\n",
    "graph literals(x: f32[4], n: i32[4]) {\n"
    "  %a = mul(x, 2.5)\n"
    "  %b = add(%a, -inf)\n"
    "  %c = maximum(%b, nan)\n"
    "  %d = add(n, 7)\n"
    "  return c = %c, d = %d\n"
    "}\n",
    "graph attributes(x: f32[2, 3]) {\n"
    "  %s = sum(x) {dims = [0, 1], keepdim = true}\n"
    "  %c = cast(%s) {dtype = f64}\n"
    "  %g = gelu(x) {approximate = \"tanh\"}\n"
    "  %l = leaky_relu(%g) {slope = 0.25}\n"
    "  %p = permute(%l) {dims = [1, 0]}\n"
    "  return a = %c, b = %p\n"
    "}\n",
    "graph none(x: f32[2, 3]) {\n"
    "  %s = sum(x) {dims = []}\n"
    "  return y = %s\n"
    "}\n",
    "graph several(x: f32[2, 3]) {\n"
    "  %v, %m = var_mean(x) {dims = [1]}\n"
    "  return v = %v, m = %m, again = %v, same = x\n"
    "}\n",
    "graph symbolic(x: f32[batch, 4096], y: f32[batch, 1]) {\n"
    "  %t = add(x, y)\n"
    "  return y0 = %t\n"
    "}\n",
    "graph strided(x: f32[64, 32]{1, 64}, s: f32[], e: f32[0, 5]) {\n"
    "  %t = mul(x, s)\n"
    "  return y = %t, z = e\n"
    "}\n",
};

v1::Graph ToProto(const Graph& graph) {
  v1::Graph proto;
  GraphToProto(graph, &proto);
  return proto;
}

Graph Parse(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  EXPECT_OK(graph) << text;
  return graph.ok() ? *std::move(graph) : Graph();
}

TEST(GraphCodecTest, RoundTripThroughBytesPrintsTheSameText) {
  for (const char* text : kTexts) {
    const Graph graph = Parse(text);
    v1::Graph decoded;
    ASSERT_TRUE(decoded.ParseFromString(ToProto(graph).SerializeAsString()));
    const absl::StatusOr<Graph> back = GraphFromProto(decoded);
    ASSERT_OK(back) << text;
    EXPECT_EQ(PrintGraph(*back), PrintGraph(graph));
    EXPECT_EQ(PrintGraph(*back), text);
  }
}

TEST(GraphCodecTest, VerifiedGraphComesBackVerifiable) {
  absl::StatusOr<Graph> graph = ParseGraph(kTexts[2]);
  ASSERT_OK(graph);
  absl::StatusOr<Graph> back = GraphFromProto(ToProto(*graph));
  ASSERT_OK(back);
  ASSERT_OK(VerifyGraph(*back));
  ASSERT_EQ(back->outputs.size(), graph->outputs.size());
  for (size_t i = 0; i < graph->outputs.size(); ++i) {
    EXPECT_EQ(back->type(back->outputs[i].value).ToString(), graph->type(graph->outputs[i].value).ToString());
  }
}

TEST(GraphCodecTest, DeclaredTypeOriginAndConstantBytesAreKept) {
  Graph graph = Parse("graph g(x: f32[2]) {\n  %t = neg(x) : f32[2]\n  return y = %t\n}\n");
  graph.nodes[0].origin = "model.py:42";
  graph.nodes[0].constant_bytes = std::make_shared<const std::string>(std::string("\0\x01\xff", 3));
  const absl::StatusOr<Graph> back = GraphFromProto(ToProto(graph));
  ASSERT_OK(back);
  EXPECT_EQ(back->nodes[0].origin, "model.py:42");
  ASSERT_NE(back->nodes[0].constant_bytes, nullptr);
  EXPECT_EQ(*back->nodes[0].constant_bytes, std::string("\0\x01\xff", 3));
  ASSERT_TRUE(back->value(back->nodes[0].results[0]).declared_type.has_value());
  EXPECT_EQ(back->value(back->nodes[0].results[0]).declared_type->ToString(), "f32[2]");
}

TEST(GraphCodecTest, NegativeZeroLiteralKeepsItsSign) {
  Graph graph = Parse("graph g(x: f32[2]) {\n  %t = add(x, -0.0)\n  return y = %t\n}\n");
  const absl::StatusOr<Graph> back = GraphFromProto(ToProto(graph));
  ASSERT_OK(back);
  EXPECT_TRUE(std::signbit(back->nodes[0].operands[1].literal.f));
}

TEST(GraphCodecTest, ValuesOutOfOrderInMemoryAreRenumbered) {
  // A pass may leave ids that do not follow the order of the nodes.
  Graph graph = Parse("graph g(x: f32[2]) {\n  %a = neg(x)\n  %b = exp(%a)\n  return y = %b\n}\n");
  std::swap(graph.values[1], graph.values[2]);
  graph.nodes[0].results[0] = 2;
  graph.nodes[1].operands[0].value = 2;
  graph.nodes[1].results[0] = 1;
  graph.outputs[0].value = 1;
  const absl::StatusOr<Graph> back = GraphFromProto(ToProto(graph));
  ASSERT_OK(back);
  EXPECT_EQ(PrintGraph(*back), PrintGraph(graph));
}

// x -> neg -> returned, written by hand with names.
v1::Graph SmallMessage() {
  v1::Graph proto;
  proto.set_name("g");
  v1::GraphInput* input = proto.add_inputs();
  input->set_name("x");
  input->mutable_type()->set_dtype(v1::DATA_TYPE_F32);
  input->mutable_type()->add_dims()->set_size(4);
  v1::Node* node = proto.add_nodes();
  node->set_op("neg");
  node->add_operands()->set_value_name("x");
  node->add_results()->set_name("t");
  v1::GraphOutput* output = proto.add_outputs();
  output->set_name("y");
  output->set_value_name("t");
  return proto;
}

TEST(GraphCodecTest, NamesServeAsWellAsNumbers) {
  const absl::StatusOr<Graph> graph = GraphFromProto(SmallMessage());
  ASSERT_OK(graph);
  EXPECT_EQ(PrintGraph(*graph), "graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}\n");
  EXPECT_EQ(graph->opset_version, 1);
}

TEST(GraphCodecTest, UnnamedResultsAndOutputsGetNamesThatNoOneTook) {
  v1::Graph proto = SmallMessage();
  proto.mutable_inputs(0)->set_name("v1");
  proto.mutable_nodes(0)->mutable_operands(0)->set_value_index(0);
  proto.mutable_nodes(0)->mutable_results(0)->clear_name();
  proto.mutable_outputs(0)->clear_name();
  proto.mutable_outputs(0)->set_value_index(1);
  const absl::StatusOr<Graph> graph = GraphFromProto(proto);
  ASSERT_OK(graph);
  EXPECT_EQ(graph->values[1].name, "v1_");
  EXPECT_EQ(graph->outputs[0].name, "out0");
}

struct HostileCase {
  const char* name;
  std::function<void(v1::Graph&)> damage;
  absl::StatusCode code;
  const char* message;
};

TEST(GraphCodecTest, HostileMessageIsRefusedWithWhatIsWrong) {
  const auto kBad = absl::StatusCode::kInvalidArgument;
  const HostileCase cases[] = {
      {"no dtype", [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->clear_dtype(); }, kBad, "'x': dtype 0"},
      {"unknown dtype",
       [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->set_dtype(static_cast<v1::DataType>(99)); }, kBad,
       "dtype 99"},
      {"huge dtype",
       [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->set_dtype(static_cast<v1::DataType>(258)); }, kBad,
       "dtype 258"},
      {"no type", [](v1::Graph& g) { g.mutable_inputs(0)->clear_type(); }, kBad, "'x': dtype 0"},
      {"negative dim", [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->mutable_dims(0)->set_size(-1); }, kBad,
       "negative dim -1"},
      {"empty symbol", [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->mutable_dims(0)->set_symbol(""); }, kBad,
       "symbol is empty"},
      {"symbol that is no name",
       [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->mutable_dims(0)->set_symbol("4 rows"); }, kBad,
       "symbol '4 rows' is not a name"},
      {"unset dim", [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->mutable_dims(0)->clear_kind(); }, kBad,
       "neither size nor symbol"},
      {"strides of another rank", [](v1::Graph& g) { g.mutable_inputs(0)->mutable_type()->mutable_layout(); }, kBad,
       "0 strides for 1 dims"},
      {"rank over the limit",
       [](v1::Graph& g) {
         for (int i = 0; i < 12; ++i) g.mutable_inputs(0)->mutable_type()->add_dims()->set_size(1);
       },
       kBad, "rank 13 is over the limit of 12"},
      {"unnamed input", [](v1::Graph& g) { g.mutable_inputs(0)->clear_name(); }, kBad, "input 0 has no name"},
      {"two values with one name", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_results(0)->set_name("x"); }, kBad,
       "two values have the name 'x'"},
      {"no results", [](v1::Graph& g) { g.mutable_nodes(0)->clear_results(); }, kBad, "node 'nodes[0]' has no results"},
      {"operand not set", [](v1::Graph& g) { g.mutable_nodes(0)->add_operands(); }, kBad,
       "node '%t': operand 1 is not set"},
      {"literal not set", [](v1::Graph& g) { g.mutable_nodes(0)->add_operands()->mutable_literal(); }, kBad,
       "a literal has no value"},
      {"operand of the future", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_operands(0)->set_value_index(1); }, kBad,
       "operand 0 is value 1"},
      {"negative operand", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_operands(0)->set_value_index(-1); }, kBad,
       "operand 0 is value -1"},
      {"operand beyond 32 bits",
       [](v1::Graph& g) { g.mutable_nodes(0)->mutable_operands(0)->set_value_index(int64_t{1} << 32); }, kBad,
       "operand 0 is value 4294967296"},
      {"operand by unknown name", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_operands(0)->set_value_name("q"); },
       kBad, "operand 0 is 'q'"},
      {"operand is its own result", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_operands(0)->set_value_name("t"); },
       kBad, "operand 0 is 't'"},
      {"attribute not set", [](v1::Graph& g) { (*g.mutable_nodes(0)->mutable_attributes())["dims"]; }, kBad,
       "attribute 'dims' has no value"},
      {"attribute of unknown dtype",
       [](v1::Graph& g) {
         (*g.mutable_nodes(0)->mutable_attributes())["dtype"].set_dtype_value(static_cast<v1::DataType>(77));
       },
       kBad, "dtype 77"},
      {"output not set", [](v1::Graph& g) { g.mutable_outputs(0)->clear_value(); }, kBad, "output 'y' names no value"},
      {"output of nothing",
       [](v1::Graph& g) { g.mutable_outputs(0)->set_value_index(std::numeric_limits<int64_t>::max()); }, kBad,
       "output 'y' returns a value that the graph does not define"},
      {"op set of the future", [](v1::Graph& g) { g.set_opset_version(2); }, absl::StatusCode::kUnimplemented,
       "op set 2 is newer"},
      {"negative op set", [](v1::Graph& g) { g.set_opset_version(-1); }, kBad, "'opset_version' is negative"},
  };
  for (const HostileCase& c : cases) {
    v1::Graph proto = SmallMessage();
    c.damage(proto);
    EXPECT_THAT(GraphFromProto(proto), StatusIs(c.code, c.message)) << c.name;
  }
}

TEST(GraphCodecTest, EmptyMessageIsNoCrash) {
  const absl::StatusOr<Graph> graph = GraphFromProto(v1::Graph());
  ASSERT_OK(graph);  // no outputs: for VerifyGraph to refuse
  Graph verified = *graph;
  EXPECT_THAT(VerifyGraph(verified), ::testing::Not(IsOk()));
}

TEST(GraphCodecTest, LimitsOnNodesAndConstantsAreKept) {
  GraphLimits limits;
  limits.max_nodes = 0;
  EXPECT_THAT(GraphFromProto(SmallMessage(), limits),
              StatusIs(absl::StatusCode::kInvalidArgument, "1 nodes, over the limit of 0"));
  limits = GraphLimits();
  limits.max_constant_bytes = 7;
  v1::Graph proto = SmallMessage();
  *proto.add_nodes() = proto.nodes(0);
  proto.mutable_nodes(1)->mutable_results(0)->set_name("u");
  proto.mutable_nodes(0)->set_constant_data("1234");
  proto.mutable_nodes(1)->set_constant_data("1234");
  const absl::StatusOr<Graph> graph = GraphFromProto(proto, limits);
  EXPECT_THAT(graph, StatusIs(absl::StatusCode::kInvalidArgument, "over the limit of 7 bytes in all"));
  EXPECT_EQ(GetErrorReason(graph.status()), ErrorReason::kLimitExceeded);
  EXPECT_EQ(GetErrorSubject(graph.status()), "%u");
}

TEST(GraphCodecTest, DeepGraphNeedsNoRecursion) {
  v1::Graph proto = SmallMessage();
  for (int i = 1; i < 100'000; ++i) {
    v1::Node* node = proto.add_nodes();
    node->set_op("neg");
    node->add_operands()->set_value_index(i);
    node->add_results();
  }
  proto.mutable_outputs(0)->set_value_index(100'000);
  const absl::StatusOr<Graph> graph = GraphFromProto(proto);
  ASSERT_OK(graph);
  EXPECT_EQ(graph->nodes.size(), 100'000u);
  EXPECT_EQ(ToProto(*graph).nodes_size(), 100'000);
}

}  // namespace
}  // namespace fuseline
