#include "tests/conformance/key_mutations.h"

#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/op_table.h"
#include "tests/testing/random_source.h"

namespace fuseline::testing {
namespace {

template <typename T>
void Shuffle(std::vector<T>& list, RandomSource& random) {
  for (size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
}

double FlipBit(double value, int bit) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ (uint64_t{1} << bit));
}
// Never overflows, unlike + 1.
int64_t OtherInteger(int64_t value) { return value == std::numeric_limits<int64_t>::max() ? value - 1 : value + 1; }

DType OtherDType(DType dtype, int step) { return static_cast<DType>((static_cast<int>(dtype) - 1 + step) % 12 + 1); }

template <typename T, typename Other>
std::vector<AttrValue> OtherLists(const std::vector<T>& v, const Other& other) {
  std::vector<AttrValue> lists;
  std::vector<T> longer = v;
  longer.push_back(T());
  lists.emplace_back(std::move(longer));
  for (size_t i = 0; i < v.size(); ++i) {
    std::vector<T> changed = v;
    changed[i] = other(changed[i]);
    lists.emplace_back(std::move(changed));
  }
  if (!v.empty()) lists.emplace_back(std::vector<T>(v.begin(), v.end() - 1));
  if (v.size() > 1 && v.front() != v.back()) lists.emplace_back(std::vector<T>(v.rbegin(), v.rend()));
  return lists;
}

// Where a kind of mutation applies, and the graph that it makes.
class Mutator {
 public:
  Mutator(const Graph& graph, uint64_t seed, int per_kind) : graph_(graph), random_(seed), per_kind_(per_kind) {}

  std::vector<Mutation> Run() {
    Signature();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) NodeSites(id);
    // Each kind at some of its places, not always at the first ones.
    std::vector<Mutation> chosen;
    for (auto& [kind, sites] : sites_) {
      Shuffle(sites, random_);
      for (size_t i = 0; i < sites.size() && i < static_cast<size_t>(per_kind_); ++i) {
        Graph changed = graph_;
        sites[i].change(changed);
        chosen.push_back({kind, sites[i].name, std::move(changed)});
      }
    }
    return chosen;
  }

 private:
  using Change = std::function<void(Graph&)>;
  struct Site {
    std::string name;
    Change change;
  };

  void Add(const std::string& kind, std::string site, Change change) {
    sites_[kind].push_back({std::move(site), std::move(change)});
  }

  void Signature() {
    Add("opset version", "", [](Graph& g) { ++g.opset_version; });
    Add("input: another one", "", [](Graph& g) {
      Value value;
      value.name = "another";
      value.result_index = static_cast<int>(g.inputs.size());
      value.type = TensorType::Make(DType::kF32, {});
      g.inputs.push_back(static_cast<ValueId>(g.values.size()));
      g.values.push_back(std::move(value));
    });
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId id = graph_.inputs[i];
      const TensorType& type = graph_.type(id);
      const std::string site = graph_.value(id).name;
      const auto add = [&](const char* kind, std::function<void(TensorType&)> change) {
        Add(kind, site, [id, change = std::move(change)](Graph& g) { change(g.values[static_cast<size_t>(id)].type); });
      };
      for (int step = 1; step < 12; ++step)
        add("input: dtype", [step](TensorType& t) { t.dtype = OtherDType(t.dtype, step); });
      add("input: rank", [](TensorType& t) {
        t.dims.insert(t.dims.begin(), Dim(1));
        t.strides.reset();
      });
      for (size_t d = 0; d < type.dims.size(); ++d) {
        add("input: size", [d](TensorType& t) { ++t.dims[d].size; });
        add("input: stride", [d](TensorType& t) {
          if (!t.strides.has_value()) t.strides = DenseStrides(t.shape());
          ++(*t.strides)[d];
        });
      }
      if (type.strides.has_value()) add("input: no strides", [](TensorType& t) { t.strides.reset(); });
    }
    for (size_t i = 0; i + 1 < graph_.inputs.size(); ++i) {
      Add("input: order", absl::StrCat(i), [i](Graph& g) {
        std::swap(g.inputs[i], g.inputs[i + 1]);
        for (size_t k : {i, i + 1}) g.values[static_cast<size_t>(g.inputs[k])].result_index = static_cast<int>(k);
      });
      // Swapping two inputs of one type that are used alike is the same graph under other names.
      if (!UsesDiffer(graph_.inputs[i], graph_.inputs[i + 1])) sites_["input: order"].pop_back();
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      Add("output: twice", absl::StrCat(i), [i](Graph& g) { g.outputs.push_back({"twice", g.outputs[i].value}); });
      if (graph_.outputs.size() > 1)
        Add("output: left out", absl::StrCat(i),
            [i](Graph& g) { g.outputs.erase(g.outputs.begin() + static_cast<std::ptrdiff_t>(i)); });
      // Two results of one type may be made alike, by two equal nodes.
      if (i + 1 < graph_.outputs.size() &&
          !(graph_.type(graph_.outputs[i].value) == graph_.type(graph_.outputs[i + 1].value)))
        Add("output: order", absl::StrCat(i), [i](Graph& g) { std::swap(g.outputs[i].value, g.outputs[i + 1].value); });
    }
  }

  // Whether a and b, as inputs, differ in type, or one is read and the other is not: enough to know that changing
  // places is no mere renaming.
  bool UsesDiffer(ValueId a, ValueId b) const {
    if (!(graph_.type(a) == graph_.type(b))) return true;
    return IsRead(a) != IsRead(b);
  }
  bool IsRead(ValueId id) const {
    for (const Node& node : graph_.nodes) {
      for (const Operand& operand : node.operands) {
        if (!operand.is_literal() && operand.value == id) return true;
      }
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (output.value == id) return true;
    }
    return false;
  }

  void NodeSites(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const std::string site = absl::StrCat(graph_.NodeName(id), ": ", node.op);
    const auto add = [&](const std::string& kind, const std::string& where, std::function<void(Node&)> change) {
      Add(kind, absl::StrCat(site, where),
          [id, change = std::move(change)](Graph& g) { change(g.nodes[static_cast<size_t>(id)]); });
    };
    const OpDef* other = AllOps()[static_cast<size_t>(random_.Below(static_cast<int64_t>(AllOps().size())))];
    if (node.op != other->name) add("op", "", [name = std::string(other->name)](Node& n) { n.op = name; });
    for (size_t i = 0; i < node.operands.size(); ++i) OperandSites(node, i, add);
    for (const auto& [name, value] : node.attrs) {
      const std::string where = absl::StrCat(" {", name, "}");
      for (const AttrValue& changed : OtherValues(value)) {
        add(absl::StrCat("attribute: ", AttrKind(value)), where,
            [name = name, changed](Node& n) { n.attrs[name] = changed; });
      }
      add("attribute: left out", where, [name = name](Node& n) { n.attrs.erase(name); });
    }
    add("attribute: another one", "", [](Node& n) { n.attrs["another"] = int64_t{0}; });
    if (node.constant_bytes == nullptr || node.constant_bytes->empty()) return;
    const size_t byte = static_cast<size_t>(random_.Below(static_cast<int64_t>(node.constant_bytes->size())));
    const int bit = static_cast<int>(random_.Below(8));
    add("constant: one bit", absl::StrCat(" byte ", byte), [byte, bit](Node& n) {
      std::string bytes = *n.constant_bytes;
      bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
      n.constant_bytes = std::make_shared<const std::string>(std::move(bytes));
    });
  }

  template <typename AddSite>
  void OperandSites(const Node& node, size_t i, const AddSite& add) {
    const Operand& operand = node.operands[i];
    const std::string where = absl::StrCat(" operand ", i);
    add("operand: left out", where,
        [i](Node& n) { n.operands.erase(n.operands.begin() + static_cast<std::ptrdiff_t>(i)); });
    if (operand.is_literal()) {
      add("literal: kind", where, [i](Node& n) {
        n.operands[i].literal.kind =
            n.operands[i].literal.kind == Literal::Kind::kBool ? Literal::Kind::kInt : Literal::Kind::kBool;
      });
      if (operand.literal.kind != Literal::Kind::kFloat) {
        add("literal: integer", where,
            [i](Node& n) { n.operands[i].literal.i = OtherInteger(n.operands[i].literal.i); });
        return;
      }
      // The last bit, the sign (0.0 and -0.0 too), and a bit of a NaN's payload.
      for (const int bit : {0, 63, 50})
        add("literal: one bit", where,
            [i, bit](Node& n) { n.operands[i].literal.f = FlipBit(n.operands[i].literal.f, bit); });
      add("literal: NaN", where,
          [i](Node& n) { n.operands[i].literal.f = std::bit_cast<double>(0x7ff8'0000'0000'0123); });
      return;
    }
    add("operand: a literal", where, [i](Node& n) { n.operands[i] = Operand(); });
    for (const ValueId input : graph_.inputs) {
      if (input != operand.value)
        add("operand: another value", where, [i, input](Node& n) { n.operands[i].value = input; });
    }
    // Of two inputs the order shows; two results might change places with all that makes them.
    if (i + 1 < node.operands.size() && !node.operands[i + 1].is_literal() &&
        node.operands[i + 1].value != operand.value && graph_.value(operand.value).producer == kNoNode &&
        graph_.value(node.operands[i + 1].value).producer == kNoNode) {
      add("operand: order", where, [i](Node& n) { std::swap(n.operands[i], n.operands[i + 1]); });
    }
  }

  static const char* AttrKind(const AttrValue& value) {
    static constexpr const char* kNames[] = {"integer", "float",        "bool",       "string",
                                             "dtype",   "integer list", "float list", "bool list"};
    return kNames[value.index()];
  }

  const Graph& graph_;
  RandomSource random_;
  int per_kind_;
  std::map<std::string, std::vector<Site>> sites_;
};

}  // namespace

std::vector<AttrValue> OtherValues(const AttrValue& value) {
  struct Changes {
    std::vector<AttrValue> operator()(int64_t v) const { return {OtherInteger(v), static_cast<double>(v)}; }
    std::vector<AttrValue> operator()(double v) const {
      return {FlipBit(v, 0), FlipBit(v, 63), std::bit_cast<double>(0x7ff8'0000'0000'0123),
              std::bit_cast<double>(0x7ff8'0000'0000'0124)};
    }
    std::vector<AttrValue> operator()(bool v) const { return {!v, static_cast<int64_t>(v)}; }
    std::vector<AttrValue> operator()(const std::string& v) const { return {v + "x", v + std::string(1, '\0')}; }
    std::vector<AttrValue> operator()(DType v) const {
      std::vector<AttrValue> others;
      for (int step = 1; step < 12; ++step) others.push_back(OtherDType(v, step));
      return others;
    }
    std::vector<AttrValue> operator()(const std::vector<int64_t>& v) const {
      return OtherLists(v, [](int64_t x) { return OtherInteger(x); });
    }
    std::vector<AttrValue> operator()(const std::vector<double>& v) const {
      return OtherLists(v, [](double x) { return FlipBit(x, 0); });
    }
    std::vector<AttrValue> operator()(const std::vector<bool>& v) const {
      return OtherLists(v, [](bool x) { return !x; });
    }
  };
  return std::visit(Changes(), value);
}

std::vector<Mutation> Mutate(const Graph& graph, uint64_t seed, int per_kind) {
  return Mutator(graph, seed, per_kind).Run();
}

Graph Respell(const Graph& graph, uint64_t seed) {
  RandomSource random(seed);
  // Dead nodes first, so that they are shuffled with the others.
  Graph from = graph;
  for (int dead = static_cast<int>(random.Below(3)); dead > 0 && !from.inputs.empty(); --dead) {
    Node node;
    node.op = "isnan";
    const ValueId input = from.inputs[static_cast<size_t>(random.Below(static_cast<int64_t>(from.inputs.size())))];
    if (!IsFloat(from.type(input).dtype)) continue;
    node.operands.push_back({input, {}});
    node.results.push_back(static_cast<ValueId>(from.values.size()));
    Value value;
    value.producer = static_cast<NodeId>(from.nodes.size());
    value.type = TensorType::Make(DType::kBool, from.type(input).shape());
    from.values.push_back(std::move(value));
    from.nodes.push_back(std::move(node));
  }
  // A random topological order: of the nodes whose operands are there, any.
  std::vector<std::vector<NodeId>> readers(from.nodes.size());
  std::vector<int> missing(from.nodes.size(), 0);
  std::vector<NodeId> ready;
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes.size()); ++id) {
    for (const Operand& operand : from.nodes[static_cast<size_t>(id)].operands) {
      if (operand.is_literal() || from.value(operand.value).producer == kNoNode) continue;
      readers[static_cast<size_t>(from.value(operand.value).producer)].push_back(id);
      ++missing[static_cast<size_t>(id)];
    }
    if (missing[static_cast<size_t>(id)] == 0) ready.push_back(id);
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    std::swap(ready[static_cast<size_t>(random.Below(static_cast<int64_t>(ready.size())))], ready.back());
    const NodeId id = ready.back();
    ready.pop_back();
    order.push_back(id);
    for (const NodeId reader : readers[static_cast<size_t>(id)]) {
      if (--missing[static_cast<size_t>(reader)] == 0) ready.push_back(reader);
    }
  }
  // New numbers and names. The codec and the text form number values in the order of the nodes, so inputs stay first.
  Graph to;
  to.name = absl::StrCat("g", random.Below(1000));
  to.opset_version = from.opset_version;
  std::vector<ValueId> renumbered(from.values.size(), kNoValue);
  std::vector<int64_t> name_numbers(from.values.size());
  for (size_t i = 0; i < name_numbers.size(); ++i) name_numbers[i] = static_cast<int64_t>(i);
  Shuffle(name_numbers, random);
  const auto add_value = [&](ValueId old, NodeId producer) {
    Value value = from.value(old);
    renumbered[static_cast<size_t>(old)] = static_cast<ValueId>(to.values.size());
    value.name = absl::StrCat(random.Pick({"a", "_", "Z.", "out", "in", "v"}), name_numbers[to.values.size()], "_");
    value.producer = producer;
    value.declared_type.reset();
    if (producer != kNoNode && random.Chance(30)) value.declared_type = value.type;
    to.values.push_back(std::move(value));
    return renumbered[static_cast<size_t>(old)];
  };
  for (const ValueId input : from.inputs) to.inputs.push_back(add_value(input, kNoNode));
  for (const NodeId id : order) {
    Node node = from.nodes[static_cast<size_t>(id)];
    node.origin = absl::StrCat("model.py:", random.Below(100));
    for (Operand& operand : node.operands) {
      if (!operand.is_literal()) operand.value = renumbered[static_cast<size_t>(operand.value)];
    }
    for (ValueId& result : node.results) result = add_value(result, static_cast<NodeId>(to.nodes.size()));
    to.nodes.push_back(std::move(node));
  }
  for (const GraphOutput& output : from.outputs)
    to.outputs.push_back({absl::StrCat("result", to.outputs.size()), renumbered[static_cast<size_t>(output.value)]});
  return to;
}

}  // namespace fuseline::testing
