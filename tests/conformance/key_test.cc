// The key's discipline: what means the same has one key, and whatever changes the code changes the key
// (docs/fingerprint.md).
#include <bit>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fingerprint/fingerprint.h"
#include "common/ir/canonical.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/op_table.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "fuseline/v1/graph.pb.h"
#include "gtest/gtest.h"
#include "server/engine/build_artifact.h"
#include "tests/conformance/key_mutations.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/random_source.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

constexpr uint64_t kSeeds = 500;

FingerprintInputs Inputs(const Graph& graph) {
  return {CanonicalBytes(Canonicalize(graph)), Target::Cpu(), CompileOptions(), "identity"};
}
Fingerprint KeyOf(const Graph& graph) { return ComputeFingerprint(Inputs(graph)); }

Graph Parsed(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_OK(graph) << text;
  return graph.ok() ? *std::move(graph) : Graph();
}
Fingerprint KeyOf(const std::string& text) { return KeyOf(Parsed(text)); }

// "graph g(SIGNATURE) { BODY }".
std::string Text(const std::string& signature, const std::string& body) {
  return absl::StrCat("graph g(", signature, ") {\n  ", body, "\n}\n");
}

TEST(KeyTest, SpellingsOfOneGraphHaveOneKey) {
  const std::vector<std::vector<std::string>> kGroups = {
      {"graph g(x: f32[2, 3], w: f32[3]) {\n  %a = mul(x, w)\n  %b = exp(x)\n  return y = %a, z = %b\n}",
       "graph h(p: f32[2, 3], q: f32[3]) {\n  %a = mul(p, q)\n  %b = exp(p)\n  return %a, %b\n}",
       "graph g(x: f32[2, 3], w: f32[3]) {\n  %b = exp(x)\n  %a = mul(x, w)\n  return y = %a, z = %b\n}",
       "graph g(x: f32[2, 3], w: f32[3]) {\n  %d = exp(w)\n  %b = exp(x)\n  %a = mul(x, w) : f32[2, 3]\n  # x times w\n"
       "  return y = %a, z = %b\n}",
       "graph g(x: f32[2, 3]{3, 1}, w: f32[3]{1}) {\n  %a = mul(x, w)\n  %b = exp(x)\n  return y = %a, z = %b\n}"},
      {Text("x: f32[4]", "%a = mul(x, 2.0)\n  return %a"), Text("x: f32[4]", "%a = mul(x, 2)\n  return %a"),
       Text("x: f32[4]", "%a = mul(x, 2e0)\n  return %a")},
      {Text("x: i32[4]", "%a = mul(x, 2)\n  return %a"), Text("x: i32[4]", "%a = mul(x, 2.0)\n  return %a")},
      {Text("x: f32[4]", "%a = softplus(x)\n  return %a"),
       Text("x: f32[4]", "%a = softplus(x) {beta = 1, threshold = 20}\n  return %a"),
       Text("x: f32[4]", "%a = softplus(x) {threshold = 20.0, beta = 1.0}\n  return %a")},
      {Text("x: f32[4, 2]", "%a = sum(x)\n  return %a"),
       Text("x: f32[4, 2]", "%a = sum(x) {keepdim = false}\n  return %a")},
      {Text("", "%a = constant() {dtype = f32, shape = [2], data = [1, 0.1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [1.0, 0.100000001490116]}\n  return %a")},
  };
  for (const std::vector<std::string>& group : kGroups) {
    for (const std::string& text : group)
      EXPECT_EQ(KeyOf(text).ToHex(), KeyOf(group[0]).ToHex()) << text << "\nand\n" << group[0];
  }
}

TEST(KeyTest, SizesOfSymbolsAreAsGoodAsSizes) {
  const absl::StatusOr<Graph> symbolic =
      ParseGraphText(Text("x: f32[rows, 4], w: f32[cols]", "%a = mul(x, w)\n  return %a"));
  ASSERT_OK(symbolic);
  const auto bound = [&](int64_t rows) {
    const absl::StatusOr<Graph> graph = BindSymbols(*symbolic, {{"rows", rows}, {"cols", 4}});
    EXPECT_OK(graph);
    return KeyOf(*graph).ToHex();
  };
  EXPECT_EQ(bound(3), KeyOf(Text("x: f32[3, 4], w: f32[4]", "%a = mul(x, w)\n  return %a")).ToHex());
  EXPECT_NE(bound(3), bound(5));
}

TEST(KeyTest, EveryChangeOfMeaningChangesTheKey) {
  // Within a group, all keys differ.
  std::vector<std::vector<std::string>> groups = {
      // Values of literals: signs of zero, neighbours, infinities, NaN.
      {},
      // Constants by dtype: signs of zero and neighbours.
      {Text("", "%a = constant() {dtype = f32, shape = [2], data = [0.0, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [-0.0, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [1, 0.0]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [1e-45, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [nan, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [inf, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [2], data = [0.0, 1.00000012]}\n  return %a"),
       Text("", "%a = constant() {dtype = f32, shape = [1, 2], data = [0.0, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = i32, shape = [2], data = [0, 1]}\n  return %a"),
       Text("", "%a = constant() {dtype = i32, shape = [2], data = [0, 1065353216]}\n  return %a")},
      {Text("x: f64[2]", "%a = add(x, 0.1)\n  return %a"),
       Text("x: f64[2]", "%a = add(x, 0.10000000000000002)\n  return %a"),
       Text("x: f64[2]", "%a = sub(x, 0.1)\n  return %a"), Text("x: f64[2]", "%a = sub(0.1, x)\n  return %a"),
       Text("x: f64[3]", "%a = add(x, 0.1)\n  return %a"), Text("x: f64[2, 1]", "%a = add(x, 0.1)\n  return %a"),
       Text("x: f64[2]", "%a = add(x, x)\n  return %a"), Text("x: f64[2], y: f64[2]", "%a = add(x, x)\n  return %a"),
       Text("x: f64[2], y: f64[2]", "%a = add(x, y)\n  return %a"),
       Text("x: f64[2], y: f64[2]", "%a = add(y, x)\n  return %a"),
       Text("x: f64[2]", "%a = add(x, 0.1)\n  return %a, %a"), Text("x: f64[2]", "%a = add(x, 0.1)\n  return %a, x"),
       Text("x: f64[2]", "%a = add(x, 0.1)\n  return x, %a"), Text("x: f64[2]", "return x")},
      // Strides.
      {Text("x: f32[4, 4]", "%a = exp(x)\n  return %a"), Text("x: f32[4, 4]{1, 4}", "%a = exp(x)\n  return %a"),
       Text("x: f32[4, 4]{8, 1}", "%a = exp(x)\n  return %a"), Text("x: f32[4, 4]{0, 1}", "%a = exp(x)\n  return %a"),
       Text("x: f32[4, 4]{8, 2}", "%a = exp(x)\n  return %a")},
      // Attributes.
      {Text("x: f32[4, 4]", "%a = sum(x)\n  return %a"), Text("x: f32[4, 4]", "%a = sum(x) {dims = []}\n  return %a"),
       Text("x: f32[4, 4]", "%a = sum(x) {dims = [0]}\n  return %a"),
       Text("x: f32[4, 4]", "%a = sum(x) {dims = [1]}\n  return %a"),
       Text("x: f32[4, 4]", "%a = sum(x) {dims = [1], keepdim = true}\n  return %a"),
       Text("x: f32[4, 4]", "%a = sum(x) {dims = [1], dtype = f64}\n  return %a"),
       Text("x: f32[4, 4]", "%a = mean(x) {dims = [1]}\n  return %a")},
      {Text("x: f32[4]", "%a = gelu(x) {approximate = \"none\"}\n  return %a"),
       Text("x: f32[4]", "%a = gelu(x) {approximate = \"tanh\"}\n  return %a")},
      {Text("x: f32[4]", "%a = clamp(x) {min = 0.0}\n  return %a"),
       Text("x: f32[4]", "%a = clamp(x) {min = -0.0}\n  return %a"),
       Text("x: f32[4]", "%a = clamp(x) {max = 0.0}\n  return %a"),
       Text("x: f32[4]", "%a = clamp(x) {min = 0.0, max = inf}\n  return %a"),
       Text("x: f32[4]", "%a = clamp(x) {min = nan}\n  return %a")},
      // The order of outputs, and of the results of one node.
      {Text("x: f32[4]", "%a = exp(x)\n  %b = neg(x)\n  return %a, %b"),
       Text("x: f32[4]", "%a = exp(x)\n  %b = neg(x)\n  return %b, %a"),
       Text("x: f32[4]", "%a = exp(x)\n  %b = neg(%a)\n  return %a, %b")},
      {Text("x: f32[4]", "%v, %m = var_mean(x)\n  return %v, %m"),
       Text("x: f32[4]", "%v, %m = var_mean(x)\n  return %m, %v"),
       Text("x: f32[4]", "%v, %m = var_mean(x)\n  return %m")},
  };
  for (const char* literal : {"0.0", "-0.0", "1.0", "1.0000000000000002", "0.9999999999999999", "-1.0", "inf", "-inf",
                              "nan", "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308"}) {
    groups[0].push_back(Text("x: f64[4]", absl::StrCat("%a = add(x, ", literal, ")\n  return %a")));
  }
  // Dtypes: of an input, of a cast, of a constant.
  for (const char* statement : {"return x", "%a = cast(y) {dtype = $}\n  return %a",
                                "%a = full() {shape = [2], value = #, dtype = $}\n  return %a"}) {
    groups.emplace_back();
    for (int dtype = 1; dtype < kDTypeCount; ++dtype) {
      const std::string name(DTypeName(static_cast<DType>(dtype)));
      std::string body = statement;
      if (const size_t at = body.find('#'); at != std::string::npos) body.replace(at, 1, name == "bool" ? "true" : "1");
      if (const size_t at = body.find('$'); at != std::string::npos) body.replace(at, 1, name);
      groups.back().push_back(Text(absl::StrCat("x: ", body == "return x" ? name : "f32", "[2], y: f32[2]"), body));
    }
  }
  int pairs = 0;
  for (const std::vector<std::string>& group : groups) {
    std::map<Fingerprint, std::string> seen;
    for (const std::string& text : group) {
      const auto [it, is_new] = seen.emplace(KeyOf(text), text);
      EXPECT_TRUE(is_new) << text << "\nhas the key of\n" << it->second;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 90);
}

TEST(KeyTest, NanPayloadsAreDifferentConstants) {
  // Text has one NaN; messages and programs have all of them.
  std::set<Fingerprint> keys;
  const uint64_t kNans[] = {0x7ff8'0000'0000'0000, 0xfff8'0000'0000'0000, 0x7ff8'0000'0000'0001, 0x7ff0'0000'0000'0001};
  for (const uint64_t bits : kNans) {
    Graph graph = Parsed(Text("x: f64[4]", "%a = add(x, 1.0)\n  return %a"));
    graph.nodes[0].operands[1].literal.f = std::bit_cast<double>(bits);
    ASSERT_OK(VerifyGraph(graph));
    keys.insert(KeyOf(graph));
    v1::Graph message;
    GraphToProto(graph, &message);
    v1::Graph sent;
    ASSERT_TRUE(sent.ParseFromString(message.SerializeAsString()));
    absl::StatusOr<Graph> received = GraphFromProto(sent);
    ASSERT_OK(received);
    ASSERT_OK(VerifyGraph(*received));
    EXPECT_EQ(KeyOf(*received), KeyOf(graph)) << "lost on the way";
  }
  EXPECT_EQ(keys.size(), std::size(kNans));
}

TEST(KeyTest, RespelledRandomGraphsKeepTheirKeys) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random);
    const std::string want = KeyOf(random->graph).ToHex();
    for (uint64_t spelling = 0; spelling < 4; ++spelling) {
      Graph respelled = Respell(random->graph, seed * 4 + spelling);
      ASSERT_OK(VerifyGraph(respelled)) << "seed " << seed << "\n" << PrintGraph(respelled);
      ASSERT_EQ(KeyOf(respelled).ToHex(), want) << "seed " << seed << ", spelling " << spelling << "\n"
                                                << PrintGraph(random->graph) << PrintGraph(respelled);
      // As it comes from a client, in both forms.
      const absl::StatusOr<Graph> from_text = ParseGraph(PrintGraph(respelled));
      ASSERT_OK(from_text);
      ASSERT_EQ(KeyOf(*from_text).ToHex(), want) << "seed " << seed << ": text";
      v1::Graph message;
      GraphToProto(respelled, &message);
      absl::StatusOr<Graph> from_message = GraphFromProto(message);
      ASSERT_OK(from_message);
      ASSERT_OK(VerifyGraph(*from_message));
      ASSERT_EQ(KeyOf(*from_message).ToHex(), want) << "seed " << seed << ": message";
    }
  }
}

TEST(KeyTest, GraphsOfOneKeyGiveTheSameCode) {
  // Hash tables are seeded by where they lie, so that a walk over one would give another order each time.
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random);
    Graph respelled = Respell(random->graph, seed);
    ASSERT_OK(VerifyGraph(respelled));
    for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
      const absl::StatusOr<GeneratedCode> a = GenerateCode(Canonicalize(random->graph), target, {});
      const absl::StatusOr<GeneratedCode> b = GenerateCode(Canonicalize(respelled), target, {});
      ASSERT_EQ(a.status().code(), b.status().code());
      if (!a.ok()) continue;
      ASSERT_EQ(a->kernels.sources.size(), b->kernels.sources.size()) << "seed " << seed;
      for (size_t i = 0; i < a->kernels.sources.size(); ++i)
        ASSERT_EQ(a->kernels.sources[i].text, b->kernels.sources[i].text) << "seed " << seed;
      ASSERT_EQ(PrintLaunchPlan(a->kernels.plan, a->kernels.sources),
                PrintLaunchPlan(b->kernels.plan, b->kernels.sources))
          << "seed " << seed;
    }
  }
}

TEST(KeyTest, MutatedRandomGraphsHaveOtherKeys) {
  std::map<std::string, int> kinds;
  std::set<std::string> ops;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random);
    const Graph canonical = Canonicalize(random->graph);
    const Fingerprint key = KeyOf(canonical);
    for (const Node& node : canonical.nodes) ops.insert(node.op);
    for (const Mutation& mutation : Mutate(canonical, seed, 4)) {
      ++kinds[mutation.kind];
      ASSERT_FALSE(KeyOf(mutation.graph) == key)
          << "seed " << seed << ": " << mutation.kind << " at " << mutation.site << "\n"
          << PrintGraph(canonical);
    }
  }
  for (const char* kind : {"attribute: another one",
                           "attribute: bool",
                           "attribute: dtype",
                           "attribute: float",
                           "attribute: integer",
                           "attribute: integer list",
                           "attribute: left out",
                           "attribute: string",
                           "constant: one bit",
                           "input: another one",
                           "input: dtype",
                           "input: no strides",
                           "input: order",
                           "input: rank",
                           "input: size",
                           "input: stride",
                           "literal: NaN",
                           "literal: integer",
                           "literal: kind",
                           "literal: one bit",
                           "op",
                           "operand: a literal",
                           "operand: another value",
                           "operand: left out",
                           "operand: order",
                           "opset version",
                           "output: left out",
                           "output: order",
                           "output: twice"}) {
    EXPECT_GE(kinds[kind], 10) << kind;
  }
  for (const OpDef* op : RandomGraphOps()) EXPECT_TRUE(ops.count(op->name)) << op->name;
}

// An application of the op with every attribute that its row knows.
Graph ApplicationOf(const OpDef& op) {
  Graph graph;
  Node node;
  node.op = op.name;
  for (int i = 0; i < op.min_operands; ++i) {
    Value value;
    value.name = absl::StrCat("x", i);
    value.result_index = i;
    value.type = TensorType::Make(DType::kF32, {2, 3});
    graph.inputs.push_back(i);
    graph.values.push_back(value);
    node.operands.push_back({i, {}});
  }
  for (const AttrSpec& spec : op.attrs) {
    switch (spec.type) {
      case AttrType::kInt:
        node.attrs[spec.name] = int64_t{1};
        break;
      case AttrType::kFloat:
      case AttrType::kScalar:
        node.attrs[spec.name] = 0.0;
        break;
      case AttrType::kBool:
        node.attrs[spec.name] = false;
        break;
      case AttrType::kString:
        node.attrs[spec.name] = std::string("none");
        break;
      case AttrType::kDType:
        node.attrs[spec.name] = DType::kF32;
        break;
      case AttrType::kIntList:
        node.attrs[spec.name] = std::vector<int64_t>{0, 1};
        break;
      case AttrType::kFloatList:
        node.attrs[spec.name] = std::vector<double>{0.5, 1.0};
        break;
      case AttrType::kData:
        node.constant_bytes = std::make_shared<const std::string>(24, '\0');
        break;
    }
  }
  for (int i = 0; i < op.results; ++i) {
    Value value;
    value.name = absl::StrCat("r", i);
    value.producer = 0;
    value.result_index = i;
    graph.outputs.push_back({absl::StrCat("out", i), static_cast<ValueId>(graph.values.size())});
    node.results.push_back(static_cast<ValueId>(graph.values.size()));
    graph.values.push_back(value);
  }
  graph.nodes.push_back(node);
  return graph;
}

TEST(KeyTest, EveryAttributeOfEveryOpIsInTheKey) {
  std::map<Fingerprint, std::string> seen;
  int attributes = 0;
  const auto is_new = [&seen](const Graph& graph, const std::string& what) {
    const auto [it, inserted] = seen.emplace(KeyOf(graph), what);
    EXPECT_TRUE(inserted) << what << " has the key of " << it->second;
  };
  for (const OpDef* op : AllOps()) {
    const Graph graph = ApplicationOf(*op);
    is_new(graph, op->name);
    for (const AttrSpec& spec : op->attrs) {
      const std::string what = absl::StrCat(op->name, " {", spec.name, "}");
      ++attributes;
      if (spec.type == AttrType::kData) {
        Graph changed = graph;
        changed.nodes[0].constant_bytes = std::make_shared<const std::string>(std::string(23, '\0') + '\1');
        is_new(changed, what);
        continue;
      }
      int change = 0;
      for (const AttrValue& value : OtherValues(graph.nodes[0].attrs.at(spec.name))) {
        Graph changed = graph;
        changed.nodes[0].attrs[spec.name] = value;
        is_new(changed, absl::StrCat(what, " change ", ++change));
      }
      Graph without = graph;
      without.nodes[0].attrs.erase(spec.name);
      is_new(without, absl::StrCat(what, " left out"));
    }
  }
  EXPECT_GT(attributes, 80);
}

TEST(KeyTest, EveryOptionTargetAndCompilerIsInTheKey) {
  const Graph graph = Parsed(Text("x: f32[4]", "%a = exp(x)\n  return %a"));
  std::set<Fingerprint> keys;
  int count = 0;
  // All combinations: no two options share a field.
  for (const char* target : {"cpu", "cuda:sm_80", "cuda:sm_90", "cuda:sm_90a", "cuda:sm_100"}) {
    for (int bits = 0; bits < 16; ++bits) {
      for (const char* identity : {"", "a", "a;g++ 12", "a;g++ 13"}) {
        FingerprintInputs inputs = Inputs(graph);
        const absl::StatusOr<Target> parsed = ParseTarget(target);
        ASSERT_OK(parsed);
        inputs.target = *parsed;
        inputs.options.numerics = (bits & 1) != 0 ? Numerics::kEager : Numerics::kFused;
        inputs.options.fast_math = (bits & 2) != 0;
        inputs.options.allow_tf32 = (bits & 4) != 0;
        inputs.options.fuse = (bits & 8) != 0;
        inputs.compiler_identity = identity;
        keys.insert(ComputeFingerprint(inputs));
        ++count;
      }
    }
  }
  EXPECT_EQ(static_cast<int>(keys.size()), count);
}

}  // namespace
}  // namespace fuseline::testing
