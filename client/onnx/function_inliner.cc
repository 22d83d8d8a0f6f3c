#include "client/onnx/function_inliner.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/graph.h"
#include "common/status/error.h"

namespace fuseline::onnx_import {
namespace {

constexpr int kMaxDepth = 64;

using FunctionMap = std::map<std::pair<std::string, std::string>, const ModelFunction*>;

struct Pending {
  ModelNode node;
  int depth = 0;
};

// The body of a call, with the names of its inner values made unique by `prefix`.
std::vector<ModelNode> ExpandCall(const ModelNode& call, const ModelFunction& function, const std::string& prefix) {
  std::map<std::string, std::string, std::less<>> names;
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    names[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
  }
  for (size_t i = 0; i < function.outputs.size(); ++i) {
    if (i < call.outputs.size() && !call.outputs[i].empty()) names[function.outputs[i]] = call.outputs[i];
  }
  const auto renamed = [&](const std::string& name) {
    if (name.empty()) return name;
    const auto at = names.find(name);
    return at == names.end() ? absl::StrCat(prefix, name) : at->second;
  };
  std::vector<ModelNode> body;
  for (const ModelNode& inner : function.nodes) {
    ModelNode node = inner;
    node.name = absl::StrCat(call.name.empty() ? call.op : call.name, "/", inner.name.empty() ? inner.op : inner.name);
    for (std::string& name : node.inputs) name = renamed(name);
    for (std::string& name : node.outputs) name = renamed(name);
    for (auto at = node.attributes.begin(); at != node.attributes.end();) {
      if (at->second.ref_name.empty()) {
        ++at;
        continue;
      }
      const auto given = call.attributes.find(at->second.ref_name);
      if (given == call.attributes.end()) {
        at = node.attributes.erase(at);  // the op's own default
      } else {
        at->second = given->second;
        ++at;
      }
    }
    body.push_back(std::move(node));
  }
  return body;
}

}  // namespace

absl::StatusOr<std::vector<ModelNode>> InlineFunctions(const Model& model, const ImporterTable& table) {
  if (model.functions.empty()) return model.nodes;
  FunctionMap functions;
  for (const ModelFunction& function : model.functions) functions[{function.domain, function.name}] = &function;
  const auto max_nodes = static_cast<size_t>(GraphLimits().max_nodes);
  std::vector<ModelNode> result;
  std::vector<Pending> pending;  // the next one last
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node) pending.push_back({*node, 0});
  int64_t calls = 0;
  while (!pending.empty()) {
    Pending next = std::move(pending.back());
    pending.pop_back();
    const ModelNode& node = next.node;
    const auto function = functions.find({node.domain, node.op});
    const std::string key = node.domain.empty() ? node.op : absl::StrCat(node.domain, "::", node.op);
    if (function == functions.end() || table.find(key) != table.end()) {
      result.push_back(std::move(next.node));
    } else {
      if (next.depth >= kMaxDepth) {
        return InvalidArgument(
            ErrorReason::kLimitExceeded, "onnx",
            absl::StrCat("onnx: function ", key, ": calls are nested more than ", kMaxDepth, " deep"));
      }
      std::vector<ModelNode> body = ExpandCall(node, *function->second, absl::StrCat("call", calls++, "/"));
      for (auto inner = body.rbegin(); inner != body.rend(); ++inner) {
        pending.push_back({std::move(*inner), next.depth + 1});
      }
    }
    if (result.size() + pending.size() > max_nodes || static_cast<size_t>(calls) > max_nodes) {
      return InvalidArgument(ErrorReason::kLimitExceeded, "onnx",
                             absl::StrCat("onnx: more than ", max_nodes, " nodes once functions are expanded"));
    }
  }
  return result;
}

}  // namespace fuseline::onnx_import
