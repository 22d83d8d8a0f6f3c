#include "common/case_file/reduce_graph.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/case_file/random_inputs.h"
#include "common/ir/op_table.h"

namespace fuseline {
namespace {

constexpr int64_t kMaxKeptValueBytes = int64_t{256} << 20;  // of all values of a graph together, kept between steps
constexpr int64_t kEditsPerTry = 32;                        // edits that the verifier refuses cost no run, but time

size_t At(int32_t id) { return static_cast<size_t>(id); }

double Magnitude(int64_t v) { return std::fabs(static_cast<double>(v)); }

Literal Whole(int64_t v) {
  Literal literal;
  literal.i = v;
  return literal;
}

// Of all values together, as far as that can be told.
double ElementsOf(const Graph& graph) {
  double elements = 0;
  for (const Value& value : graph.values) elements += static_cast<double>(value.type.element_count());
  return elements;
}

Tensor Filled(const Tensor& like, double value) {
  Tensor tensor = Tensor::Allocate(like.dtype(), like.shape());
  for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.SetDouble(i, value);
  return tensor;
}

class Reducer {
 public:
  Reducer(const GraphWithInputs& failing, const FailureOracle& fails, const ReduceOptions& options)
      : fails_(fails), options_(options), deadline_(absl::Now() + options.max_time) {
    result_.smallest = failing;
  }

  ReducedGraph Run() {
    for (bool changed = true; changed && !exhausted();) {
      changed = DropOutputs();
      if (options_.outputs_only) continue;
      changed |= ReturnEarlierValue();
      changed |= CutNodes();
      changed |= MergeValues();
      changed |= SimplifyOperands();
      changed |= SimplifyAttributes();
      changed |= ShrinkDims();
      changed |= MakeDense();
      changed |= SimplifyValues();
    }
    result_.is_minimal = !exhausted();
    return std::move(result_);
  }

 private:
  const Graph& graph() const { return result_.smallest.graph; }
  const std::vector<Tensor>& inputs() const { return result_.smallest.inputs; }
  bool exhausted() const {
    return result_.tries >= options_.max_tries || edits_ >= options_.max_tries * kEditsPerTry ||
           absl::Now() >= deadline_;
  }

  // Keeps the edited graph if it is valid and still fails.
  bool Try(const GraphEdit& edit, std::vector<ValueId>* renamed = nullptr) {
    if (exhausted()) return false;
    ++edits_;
    absl::StatusOr<GraphWithInputs> candidate = EditGraph(result_.smallest, edit, renamed);
    if (!candidate.ok()) return false;
    // A size that reshapes alone have changes nothing.
    if (edit.resize.has_value() && ElementsOf(candidate->graph) >= ElementsOf(graph())) return false;
    ++result_.tries;
    if (!fails_(*candidate)) return false;
    result_.smallest = *std::move(candidate);
    values_.clear();
    return true;
  }

  std::vector<ValueId> OutputIds() const {
    std::vector<ValueId> ids;
    for (const GraphOutput& output : graph().outputs) ids.push_back(output.value);
    return ids;
  }

  // --- Outputs. ---

  bool ReturnOnly(std::vector<ValueId> outputs) {
    GraphEdit edit;
    edit.outputs = std::move(outputs);
    return Try(edit);
  }

  bool DropOutputs() {
    if (graph().outputs.size() < 2) return false;
    for (const ValueId id : OutputIds()) {
      if (ReturnOnly({id})) return true;
    }
    bool changed = false;
    for (size_t i = 0; graph().outputs.size() > 1 && i < graph().outputs.size();) {
      std::vector<ValueId> fewer = OutputIds();
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (ReturnOnly(fewer)) {
        changed = true;
      } else {
        ++i;
      }
    }
    return changed;
  }

  // The first wrong value in place of the one output. In a long graph only some positions are asked about.
  bool ReturnEarlierValue() {
    if (graph().outputs.size() != 1) return false;
    const size_t step = std::max<size_t>(1, graph().nodes.size() / 64);
    for (size_t n = 0; n < graph().nodes.size(); n += step) {
      for (const ValueId id : std::vector<ValueId>(graph().nodes[n].results)) {
        if (id < graph().outputs[0].value && ReturnOnly({id})) return true;
      }
    }
    return false;
  }

  // --- Nodes turned into inputs. ---

  // The value of a result, to become an input.
  Tensor ValueOf(ValueId id) {
    if (values_.empty()) FindValues();
    if (const auto it = values_.find(id); it != values_.end()) return it->second;
    return MakeRandomInput(graph().type(id), 1 + static_cast<uint64_t>(id), 0);
  }

  void FindValues() {
    values_.clear();
    if (!options_.values || !can_find_values_) return;
    GraphWithInputs all = result_.smallest;
    all.graph.outputs.clear();
    std::vector<ValueId> ids;
    int64_t bytes = 0;
    for (const Node& node : all.graph.nodes) {
      for (const ValueId id : node.results) {
        const TensorType& type = all.graph.type(id);
        if (type.element_count() > (kMaxKeptValueBytes - bytes) / DTypeSizeBytes(type.dtype)) continue;
        bytes += type.element_count() * DTypeSizeBytes(type.dtype);
        all.graph.outputs.push_back({absl::StrCat("value", id), id});
        ids.push_back(id);
      }
    }
    const std::optional<std::vector<Tensor>> tensors = options_.values(all);
    can_find_values_ = tensors.has_value() && tensors->size() == ids.size();
    if (!can_find_values_) return;  // not asked again: each time costs a run
    for (size_t i = 0; i < ids.size(); ++i) values_[ids[i]] = (*tensors)[i];
  }

  // Turns the results of nodes [begin, end) that others read into inputs.
  bool Cut(size_t begin, size_t end) {
    const std::vector<ValueId> outputs = OutputIds();
    GraphEdit edit;
    for (size_t n = begin; n < end; ++n) {
      for (const ValueId id : graph().nodes[n].results) {
        if (std::find(outputs.begin(), outputs.end(), id) != outputs.end()) continue;
        if (last_reader_[At(id)] >= end) edit.cuts[id] = ValueOf(id);
      }
    }
    if (edit.cuts.empty()) return false;
    std::map<ValueId, Tensor> kept = values_;
    std::vector<ValueId> renamed;
    if (!Try(edit, &renamed)) return false;
    // The rest has the values that it had.
    for (const auto& [id, tensor] : kept) {
      if (renamed[At(id)] != kNoValue) values_[renamed[At(id)]] = tensor;
    }
    return true;
  }

  void FindLastReaders() {
    last_reader_.assign(graph().values.size(), 0);
    for (size_t n = 0; n < graph().nodes.size(); ++n) {
      for (const Operand& operand : graph().nodes[n].operands) {
        if (!operand.is_literal()) last_reader_[At(operand.value)] = n;
      }
    }
  }

  // Runs of nodes, halved until they are single ones; the last ones first, since a cut drops what stands before it.
  bool CutNodes() {
    bool changed = false;
    for (size_t size = std::max<size_t>(1, graph().nodes.size() / 2);; size = (size + 1) / 2) {
      FindLastReaders();
      for (size_t end = graph().nodes.size(); end > 0 && !exhausted();) {
        const size_t begin = end > size ? end - size : 0;
        if (Cut(begin, end)) {
          changed = true;
          FindLastReaders();
          end = std::min(begin, graph().nodes.size());
        } else {
          end = begin;
        }
      }
      if (size == 1 || exhausted()) return changed;
    }
  }

  // --- Values replaced by others. ---

  bool Replace(ValueId from, ValueId to) {
    const TensorType &a = graph().type(from), &b = graph().type(to);
    if (from == to || a.dtype != b.dtype || a.shape() != b.shape()) return false;
    GraphEdit edit;
    edit.replaced[from] = to;
    return Try(edit);
  }

  bool MergeValues() {
    bool changed = false;
    for (size_t n = graph().nodes.size(); n-- > 0;) {
      if (n >= graph().nodes.size()) continue;
      const Node node = graph().nodes[n];
      for (const Operand& operand : node.operands) {
        if (operand.is_literal() || node.results.size() != 1) continue;
        if (Replace(node.results[0], operand.value)) {
          changed = true;
          break;
        }
      }
    }
    for (size_t i = 1; i < graph().inputs.size(); ++i) {
      for (size_t k = 0; k < i && i < graph().inputs.size(); ++k) {
        if (Replace(graph().inputs[i], graph().inputs[k])) {
          changed = true;
          --i;
          break;
        }
      }
    }
    return changed;
  }

  // --- Operands and attributes. ---

  bool TryNode(size_t n, Node node) {
    GraphEdit edit;
    edit.nodes.emplace(static_cast<NodeId>(n), std::move(node));
    return Try(edit);
  }

  bool SimplifyOperands() {
    bool changed = false;
    for (size_t n = 0; n < graph().nodes.size(); ++n) {
      while (n < graph().nodes.size()) {
        Node node = graph().nodes[n];
        if (static_cast<int>(node.operands.size()) <= node.def->min_operands) break;
        node.operands.pop_back();
        if (!TryNode(n, std::move(node))) break;
        changed = true;
      }
      for (size_t k = 0; n < graph().nodes.size() && k < graph().nodes[n].operands.size(); ++k) {
        if (graph().nodes[n].operands[k].is_literal()) continue;
        for (const int64_t v : {1, 0}) {
          Node node = graph().nodes[n];
          node.operands[k] = Operand{kNoValue, Whole(v)};
          if (!TryNode(n, std::move(node))) continue;
          changed = true;
          break;
        }
      }
    }
    return changed;
  }

  // Simpler values of an attribute, the simplest first.
  static std::vector<AttrValue> Simpler(const AttrValue& value) {
    std::vector<AttrValue> simpler;
    if (const auto* number = std::get_if<int64_t>(&value)) {
      for (const int64_t v : {int64_t{0}, int64_t{1}, *number / 2}) {
        if (Magnitude(v) < Magnitude(*number)) simpler.emplace_back(v);
      }
    } else if (const auto* real = std::get_if<double>(&value)) {
      for (const double v : {0.0, 1.0}) {
        if (*real != v && *real != 0.0) simpler.emplace_back(v);
      }
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      if (*flag) simpler.emplace_back(false);
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      for (size_t i = 0; i < list->size(); ++i) {
        std::vector<int64_t> shorter = *list;
        shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
        simpler.emplace_back(std::move(shorter));
      }
      for (size_t i = 0; i < list->size(); ++i) {
        for (const int64_t v : {0, 1}) {
          if (Magnitude((*list)[i]) <= Magnitude(v)) continue;
          std::vector<int64_t> lower = *list;
          lower[i] = v;
          simpler.emplace_back(std::move(lower));
        }
      }
    }
    return simpler;
  }

  bool SimplifyAttribute(size_t n, const AttrSpec& spec) {
    const auto it = graph().nodes[n].attrs.find(spec.name);
    if (it == graph().nodes[n].attrs.end()) return false;
    if (spec.default_value.has_value() && *spec.default_value == it->second) return false;
    if (!spec.required) {
      Node node = graph().nodes[n];
      node.attrs.erase(spec.name);
      if (TryNode(n, std::move(node))) return true;
    }
    for (const AttrValue& value : Simpler(it->second)) {
      Node node = graph().nodes[n];
      node.attrs[spec.name] = value;
      if (TryNode(n, std::move(node))) return true;
    }
    return false;
  }

  bool SimplifyAttributes() {
    bool changed = false;
    for (size_t n = 0; n < graph().nodes.size(); ++n) {
      if (graph().nodes[n].constant_bytes != nullptr) continue;
      const OpDef* def = graph().nodes[n].def;
      for (const AttrSpec& spec : def->attrs) {
        for (int step = 0; step < 64 && n < graph().nodes.size() && graph().nodes[n].def == def; ++step) {
          if (!SimplifyAttribute(n, spec)) break;
          changed = true;
        }
      }
    }
    return changed;
  }

  // --- Sizes. ---

  static std::vector<int64_t> SmallerSizes(int64_t size) {
    std::vector<int64_t> smaller;
    for (const int64_t v : {int64_t{1}, int64_t{2}, (size + 1) / 2, size - 1}) {
      if (v > 0 && v < size && (smaller.empty() || v > smaller.back())) smaller.push_back(v);
    }
    return smaller;
  }

  bool ShrinkDims() {
    bool changed = false;
    std::set<int64_t, std::greater<int64_t>> sizes;
    for (const Value& value : graph().values) {
      for (const int64_t size : value.type.shape()) {
        if (size > 1) sizes.insert(size);
      }
    }
    // Everywhere at once, so that what belongs together stays so.
    for (int64_t size : sizes) {
      for (bool smaller = true; smaller && size > 1;) {
        smaller = false;
        for (const int64_t to : SmallerSizes(size)) {
          GraphEdit edit;
          edit.resize = {size, to};
          if (!Try(edit)) continue;
          size = to;
          changed = smaller = true;
          break;
        }
      }
    }
    for (size_t i = 0; i < graph().inputs.size(); ++i) {
      const size_t rank = graph().type(graph().inputs[i]).dims.size();
      for (size_t d = 0; d < rank; ++d) {
        while (i < graph().inputs.size() && graph().type(graph().inputs[i]).dims.size() == rank && ShrinkDim(i, d))
          changed = true;
      }
    }
    return changed;
  }

  bool ShrinkDim(size_t input, size_t d) {
    const ValueId id = graph().inputs[input];
    const TensorType& type = graph().type(id);
    for (const int64_t to : SmallerSizes(type.shape()[d])) {
      Shape shape = type.shape();
      shape[d] = to;
      GraphEdit edit;
      edit.input_types[id] = TensorType::Make(type.dtype, shape);
      edit.input_tensors[id] = LeadingPart(inputs()[input], shape);
      if (Try(edit)) return true;
    }
    return false;
  }

  // --- Inputs. ---

  bool MakeDense() {
    bool changed = false;
    for (size_t i = 0; i < graph().inputs.size(); ++i) {
      const ValueId id = graph().inputs[i];
      if (!graph().type(id).strides.has_value()) continue;
      GraphEdit edit;
      edit.input_types[id] = TensorType::Make(graph().type(id).dtype, graph().type(id).shape());
      changed |= Try(edit);
    }
    return changed;
  }

  bool TryTensor(size_t input, Tensor tensor) {
    if (tensor.bytes() == inputs()[input].bytes()) return false;
    GraphEdit edit;
    edit.input_tensors[graph().inputs[input]] = std::move(tensor);
    return Try(edit);
  }

  static bool IsAll(const Tensor& tensor, double value) {
    for (int64_t i = 0; i < tensor.element_count(); ++i) {
      if (tensor.GetDouble(i) != value) return false;
    }
    return true;
  }

  bool SimplifyValues() {
    bool changed = false;
    for (size_t i = 0; i < graph().inputs.size(); ++i) {
      if (IsAll(inputs()[i], 0) || IsAll(inputs()[i], 1)) continue;
      if (TryTensor(i, Filled(inputs()[i], 0)) || TryTensor(i, Filled(inputs()[i], 1))) {
        changed = true;
        continue;
      }
      changed |= RoundValues(i);
      changed |= ZeroParts(i);
    }
    return changed;
  }

  bool RoundValues(size_t input) {
    const Tensor& tensor = inputs()[input];
    if (!IsFloat(tensor.dtype())) return false;
    Tensor rounded = Tensor::Allocate(tensor.dtype(), tensor.shape());
    for (int64_t k = 0; k < tensor.element_count(); ++k) {
      const double v = tensor.GetDouble(k);
      rounded.SetDouble(k, std::isfinite(v) ? std::nearbyint(v) : v);
    }
    return TryTensor(input, std::move(rounded));
  }

  // Halves, quarters and so on set to 0; single elements only of a small tensor.
  bool ZeroParts(size_t input) {
    bool changed = false;
    const int64_t n = inputs()[input].element_count();
    for (int64_t size = (n + 1) / 2; size >= std::max<int64_t>(1, n / 32); size = size == 1 ? 0 : (size + 1) / 2) {
      for (int64_t begin = 0; begin < n && !exhausted(); begin += size) {
        Tensor tensor = LeadingPart(inputs()[input], inputs()[input].shape());
        for (int64_t k = begin; k < std::min(n, begin + size); ++k) tensor.SetDouble(k, 0);
        changed |= TryTensor(input, std::move(tensor));
      }
    }
    return changed;
  }

  const FailureOracle& fails_;
  const ReduceOptions& options_;
  const absl::Time deadline_;
  ReducedGraph result_;
  int64_t edits_ = 0;
  bool can_find_values_ = true;
  std::map<ValueId, Tensor> values_;  // of the smallest graph's results, as far as they are known
  std::vector<size_t> last_reader_;   // of each value, the last node that reads it
};

}  // namespace

ReducedGraph ReduceGraph(const GraphWithInputs& failing, const FailureOracle& fails, const ReduceOptions& options) {
  return Reducer(failing, fails, options).Run();
}

}  // namespace fuseline
