#include "client/onnx/import_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/onnx/constant_folding.h"
#include "client/onnx/function_inliner.h"
#include "client/onnx/importers.h"
#include "client/onnx/model_reader.h"
#include "common/ir/graph_builder.h"
#include "common/ir/value_names.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::onnx_import {
namespace {

constexpr size_t kMaxProblems = 100;
constexpr size_t kMaxTrackedInputs = 16;
constexpr int64_t kMaxSmallWeight = 64;  // elements

// "input.1:0" -> "input.1_0": a name of the graph IR.
std::string CleanName(const std::string& name) {
  std::string clean;
  for (const char c : name.substr(0, 200)) clean += IsNameChar(c) ? c : '_';
  if (clean.empty() || !IsNameStart(clean[0])) clean = absl::StrCat("_", clean);
  if (IsLiteralWord(clean)) clean += "_";
  return clean;
}

std::string NodeText(const ModelNode& node) {
  const std::string op = node.domain.empty() ? node.op : absl::StrCat(node.domain, "::", node.op);
  const std::string& name = !node.name.empty() || node.outputs.empty() ? node.name : node.outputs[0];
  return absl::StrCat("node '", name, "' (", op, ")");
}

// One try at importing: with the inputs of `constant_inputs` as constants.
class Importer {
 public:
  Importer(const Model& model, const ImportOptions& options, const ImporterTable& table,
           const std::set<std::string>& constant_inputs)
      : model_(model),
        options_(options),
        table_(table),
        constant_inputs_(constant_inputs),
        builder_(CleanName(model.name), options.limits),
        emitter_(builder_) {}

  absl::StatusOr<ImportedModel> Run(const std::vector<ModelNode>& nodes) {
    CheckOpsets();
    for (const std::string& problem : model_.problems) AddProblem(problem, true);
    AddInitializers();
    AddInputs();
    for (const ModelNode& node : nodes) ImportNode(node);
    AddOutputs();
    if (!problems_.empty()) return Error();
    result_.constant_inputs = constant_inputs_;
    result_.graph = builder_.Build();
    return std::move(result_);
  }

  // After an error: inputs whose values would have helped.
  const std::set<std::string>& wanted_inputs() const { return wanted_inputs_; }

 private:
  void AddProblem(const std::string& problem, bool unimplemented) {
    only_unimplemented_ = only_unimplemented_ && unimplemented;
    if (problem_set_.insert(problem).second) problems_.push_back(problem);
  }

  absl::Status Error() const {
    const size_t shown = std::min(problems_.size(), kMaxProblems);
    std::string text = absl::StrCat("onnx: ", problems_.size(), problems_.size() == 1 ? " problem: " : " problems: ",
                                    absl::StrJoin(problems_.begin(), problems_.begin() + shown, "; "));
    if (shown < problems_.size()) absl::StrAppend(&text, "; and ", problems_.size() - shown, " more");
    if (only_unimplemented_) return Unimplemented("onnx", text);
    return InvalidArgument(ErrorReason::kGraphStructure, "onnx", text);
  }

  void CheckOpsets() {
    for (const auto& [domain, version] : model_.opsets) {
      if (!domain.empty()) continue;
      if (version < 1 || version > kMaxOpset) {
        AddProblem(absl::StrCat("opset ", version, " is not imported, only up to ", kMaxOpset), true);
      }
    }
  }

  int64_t Opset(const std::string& domain) const {
    const auto at = model_.opsets.find(domain);
    return at == model_.opsets.end() ? 1 : at->second;
  }

  void AddInitializers() {
    for (const FileTensor& tensor : model_.initializers) {
      Imported value;
      value.name = tensor.name;
      value.from_file = true;
      value.problem = tensor.problem;
      if (tensor.problem.empty()) value.known = tensor.tensor;
      values_[tensor.name] = std::move(value);
    }
  }

  std::optional<Shape> InputShape(const ModelValue& input) {
    const auto given = options_.shapes.find(input.name);
    const std::string what = absl::StrCat("input '", input.name, "'");
    if (given != options_.shapes.end()) return given->second;
    if (!input.dims.has_value()) {
      AddProblem(absl::StrCat(what, " has no shape: give it one"), false);
      return std::nullopt;
    }
    Shape shape;
    for (size_t d = 0; d < input.dims->size(); ++d) {
      const ModelDim& dim = (*input.dims)[d];
      const auto symbol = options_.symbols.find(dim.symbol);
      if (dim.size.has_value()) {
        shape.push_back(*dim.size);
      } else if (!dim.symbol.empty() && symbol != options_.symbols.end()) {
        shape.push_back(symbol->second);
      } else {
        AddProblem(dim.symbol.empty()
                       ? absl::StrCat(what, ": the size of dim ", d, " is open: give the input a shape")
                       : absl::StrCat(what, ": the size of dim ", d, ", '", dim.symbol, "', is open: give it one"),
                   false);
        return std::nullopt;
      }
    }
    return shape;
  }

  void AddInputs() {
    for (const ModelValue& input : model_.inputs) {
      if (values_.find(input.name) != values_.end()) continue;  // an initializer's declaration
      Imported value;
      value.name = input.name;
      const auto known = options_.known_inputs.find(input.name);
      if (constant_inputs_.count(input.name) > 0 && known != options_.known_inputs.end()) {
        value.known = known->second;
        values_[input.name] = std::move(value);
        continue;
      }
      value.from_inputs = {input.name};
      if (!input.problem.empty()) {
        AddProblem(absl::StrCat("input '", input.name, "' is ", input.problem), true);
        value.failed = true;
      } else if (const std::optional<Shape> shape = InputShape(input)) {
        value.value = AddGraphInput(input.name, TensorType::Make(input.dtype, *shape));
        value.failed = !value.value.ok();
      } else {
        value.failed = true;
      }
      values_[input.name] = std::move(value);
    }
  }

  // A name for an input or output that no other has.
  std::string UniqueName(const std::string& name, absl::flat_hash_set<std::string>& taken) {
    const std::string clean = CleanName(name);
    std::string unique = clean;
    for (int i = 2; !taken.insert(unique).second; ++i) unique = absl::StrCat(clean, "_", i);
    return unique;
  }

  Val AddGraphInput(const std::string& name, const TensorType& type) {
    // Names of the form t<N> are those of nodes.
    std::string unique = UniqueName(name, input_names_);
    absl::StatusOr<ValueId> id = builder_.AddInput(unique, type);
    for (int i = 2; !id.ok() && i < 10 && NameTaken(unique); ++i) {
      unique = UniqueName(absl::StrCat(name, "_in"), input_names_);
      id = builder_.AddInput(unique, type);
    }
    if (!id.ok()) {
      AddProblem(absl::StrCat("input '", name, "': ", std::string(id.status().message())),
                 absl::IsUnimplemented(id.status()));
      return {};
    }
    result_.input_names.push_back(name);
    return {&emitter_, *id};
  }

  bool NameTaken(const std::string& name) const {
    const auto& values = builder_.graph().values;
    return std::any_of(values.begin(), values.end(), [&](const Value& value) { return value.name == name; });
  }

  bool BecomesInput(const Imported& value) const {
    return options_.weights_as_inputs && value.from_file && value.known.has_value() &&
           value.known->element_count() > kMaxSmallWeight;
  }

  static Val MaterializeThunk(void* self, Imported& value) { return static_cast<Importer*>(self)->Materialize(value); }

  Val Materialize(Imported& value) {
    if (value.value.ok() || !value.known.has_value()) return value.value;
    const Tensor& tensor = *value.known;
    if (BecomesInput(value)) {
      value.value = AddGraphInput(value.name, TensorType::Make(tensor.dtype(), tensor.shape()));
      if (value.value.ok()) {
        result_.weights.push_back({builder_.graph().values[static_cast<size_t>(value.value.id())].name, tensor});
      }
      return value.value;
    }
    value.value = emitter_.Constant(tensor);
    return value.value;
  }

  void ImportNode(const ModelNode& node) {
    const std::string key = node.domain.empty() ? node.op : absl::StrCat(node.domain, "::", node.op);
    const auto row = table_.find(key);
    bool usable = true;
    if (row == table_.end()) {
      AddProblem(absl::StrCat("op ", key, ": ", RefusalReason(node.domain, node.op)), true);
      usable = false;
    }
    std::vector<Imported*> inputs;
    std::set<std::string> from;
    for (const std::string& name : node.inputs) {
      Imported* input = name.empty() ? nullptr : FindInput(node, name, usable);
      if (input != nullptr && from.size() < kMaxTrackedInputs)
        from.insert(input->from_inputs.begin(), input->from_inputs.end());
      inputs.push_back(input);
    }
    while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
    if (!usable) {
      FailOutputs(node);
      return;
    }
    // What is computed from a weight that is an input can't be a constant.
    const bool has_weight = std::any_of(inputs.begin(), inputs.end(), [&](const Imported* input) {
      return input != nullptr && BecomesInput(*input) && IsFloat(input->known->dtype());
    });
    emitter_.Begin(NodeText(node));
    OpCall call(node, Opset(node.domain), std::move(inputs), emitter_, &Importer::MaterializeThunk, this);
    if (has_weight || !FoldKnown(call)) row->second(call);
    if (call.ok()) CheckAttributesAndResults(call);
    if (!call.ok()) {
      AddProblem(absl::StrCat(NodeText(node), ": ", std::string(emitter_.status().message())),
                 absl::IsUnimplemented(emitter_.status()));
      wanted_inputs_.insert(call.wanted_inputs().begin(), call.wanted_inputs().end());
      FailOutputs(node);
      return;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      Imported result = std::move(call.results()[i]);
      result.name = node.outputs[i];
      if (!result.known.has_value() && !call.shape_only()) result.from_inputs = from;
      if (!Define(node.outputs[i], std::move(result))) {
        AddProblem(absl::StrCat(NodeText(node), ": '", node.outputs[i], "' has a value already"), false);
      }
    }
  }

  Imported* FindInput(const ModelNode& node, const std::string& name, bool& usable) {
    const auto at = values_.find(name);
    if (at == values_.end()) {
      AddProblem(absl::StrCat(NodeText(node), ": nothing before it gives '", name, "'"), false);
      usable = false;
      return nullptr;
    }
    if (!at->second.problem.empty()) {
      AddProblem(absl::StrCat("'", name, "': ", at->second.problem), true);
      usable = false;
    }
    if (at->second.failed) usable = false;
    return &at->second;
  }

  void CheckAttributesAndResults(OpCall& call) {
    for (const std::string& name : call.UnusedAttributes()) {
      call.Refuse(absl::StrCat("attribute '", name, "' is not known"));
    }
    for (size_t i = 0; i < call.output_count() && call.ok(); ++i) {
      const Imported& result = call.results()[i];
      if (call.WantsOut(i) && !result.value.ok() && !result.known.has_value()) {
        call.Refuse(absl::StrCat("result ", i, " is not imported"));
      }
    }
  }

  bool Define(const std::string& name, Imported value) { return values_.emplace(name, std::move(value)).second; }

  void FailOutputs(const ModelNode& node) {
    for (const std::string& name : node.outputs) {
      if (name.empty()) continue;
      Imported failed;
      failed.name = name;
      failed.failed = true;
      values_.emplace(name, std::move(failed));
    }
  }

  void AddOutputs() {
    if (model_.outputs.empty()) AddProblem("the model has no outputs", false);
    absl::flat_hash_set<std::string> taken;
    for (const ModelValue& output : model_.outputs) {
      const auto at = values_.find(output.name);
      if (at == values_.end()) {
        AddProblem(absl::StrCat("nothing gives the output '", output.name, "'"), false);
        continue;
      }
      if (!at->second.problem.empty()) AddProblem(absl::StrCat("'", output.name, "': ", at->second.problem), true);
      if (at->second.failed || !at->second.problem.empty()) continue;
      emitter_.Begin(absl::StrCat("output '", output.name, "'"));
      const Val value = Materialize(at->second);
      if (value.ok()) {
        if (absl::Status added = builder_.AddOutput(UniqueName(output.name, taken), value.id()); !added.ok()) {
          emitter_.Fail(added);
        }
        result_.output_names.push_back(output.name);
      }
      if (!emitter_.ok()) {
        AddProblem(absl::StrCat("output '", output.name, "': ", std::string(emitter_.status().message())),
                   absl::IsUnimplemented(emitter_.status()));
      }
    }
  }

  const Model& model_;
  const ImportOptions& options_;
  const ImporterTable& table_;
  const std::set<std::string>& constant_inputs_;
  GraphBuilder builder_;
  Emitter emitter_;
  // Nodes are looked at one after another, and an OpCall holds pointers to values only while its node is: no value is
  // added meanwhile.
  absl::flat_hash_map<std::string, Imported> values_;
  absl::flat_hash_set<std::string> input_names_;
  std::vector<std::string> problems_;
  absl::flat_hash_set<std::string> problem_set_;
  bool only_unimplemented_ = true;
  std::set<std::string> wanted_inputs_;
  ImportedModel result_;
};

}  // namespace

absl::StatusOr<ImportedModel> ImportModel(const Model& model, const ImportOptions& options) {
  const ImporterTable table = MakeImporterTable();
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ModelNode> nodes, InlineFunctions(model, table));
  std::set<std::string> constant_inputs;
  while (true) {
    Importer importer(model, options, table, constant_inputs);
    absl::StatusOr<ImportedModel> imported = importer.Run(nodes);
    if (imported.ok()) return imported;
    // Each round makes at least one more input a constant, so that it ends.
    const size_t before = constant_inputs.size();
    for (const std::string& name : importer.wanted_inputs()) {
      if (options.known_inputs.find(name) != options.known_inputs.end()) constant_inputs.insert(name);
    }
    if (constant_inputs.size() == before) return imported;
  }
}

absl::StatusOr<ImportedModel> ImportModelBytes(const std::string& bytes, const ImportOptions& options) {
  FUSELINE_ASSIGN_OR_RETURN(const Model model, ReadModel(bytes));
  return ImportModel(model, options);
}

}  // namespace fuseline::onnx_import
