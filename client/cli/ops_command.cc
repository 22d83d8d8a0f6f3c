// fuseline ops: the op table, for people and for programs that make graphs. Needs neither server nor engine.
// Pipeline: common/ir/op_table -> text, JSON; the Python package takes its table from the JSON when it is built.
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "common/ir/attr_values.h"
#include "common/ir/op_table.h"

namespace fuseline::cli {
namespace {

const char* KindName(OpKind kind) {
  switch (kind) {
    case OpKind::kPointwise:
      return "pointwise";
    case OpKind::kCreation:
      return "creation";
    case OpKind::kView:
      return "view";
    case OpKind::kReduction:
      return "reduction";
    case OpKind::kLayout:
      return "layout";
    case OpKind::kIndexing:
      return "indexing";
    case OpKind::kOrdered:
      return "ordered";
    case OpKind::kContraction:
      return "contraction";
    case OpKind::kWindow:
      return "window";
    case OpKind::kComposite:
      return "composite";
  }
  return "unknown";
}

const char* TypeName(AttrType type) {
  switch (type) {
    case AttrType::kInt:
      return "int";
    case AttrType::kFloat:
      return "float";
    case AttrType::kBool:
      return "bool";
    case AttrType::kString:
      return "string";
    case AttrType::kDType:
      return "dtype";
    case AttrType::kIntList:
      return "int_list";
    case AttrType::kFloatList:
      return "float_list";
    case AttrType::kScalar:
      return "scalar";
    case AttrType::kData:
      return "data";
  }
  return "unknown";
}

Json ValueJson(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, DType>) {
          return std::string(DTypeName(v));
        } else {
          return v;
        }
      },
      value);
}

Json OpJson(const OpDef& op) {
  Json attributes = Json::array();
  for (const AttrSpec& spec : op.attrs) {
    Json attribute = {{"name", spec.name}, {"type", TypeName(spec.type)}, {"required", spec.required}};
    if (spec.default_value.has_value()) attribute["default"] = ValueJson(DefaultAttrValue(spec));
    attributes.push_back(std::move(attribute));
  }
  return {{"name", op.name},
          {"kind", KindName(op.kind)},
          {"min_operands", op.min_operands},
          {"max_operands", op.max_operands},
          {"results", op.results},
          {"attributes", std::move(attributes)}};
}

std::string OpText(const OpDef& op) {
  std::vector<std::string> attributes;
  for (const AttrSpec& spec : op.attrs) {
    std::string text = absl::StrCat(spec.name, spec.required ? "!" : spec.default_value.has_value() ? "" : "?");
    if (spec.default_value.has_value()) absl::StrAppend(&text, " = ", ValueJson(DefaultAttrValue(spec)).dump());
    attributes.push_back(std::move(text));
  }
  std::string operands = absl::StrCat(op.min_operands);
  if (op.max_operands < 0) {
    operands += " or more";
  } else if (op.max_operands != op.min_operands) {
    absl::StrAppend(&operands, " to ", op.max_operands);
  }
  return absl::StrCat(op.name, "  ", KindName(op.kind), ", ", operands, " -> ", op.results,
                      attributes.empty() ? "" : absl::StrCat("  {", absl::StrJoin(attributes, ", "), "}"), "\n");
}

absl::StatusOr<int> RunOps(CommandContext& context) {
  if (context.json()) {
    Json ops = Json::array();
    for (const OpDef* op : AllOps()) ops.push_back(OpJson(*op));
    PrintJson({{"ops", std::move(ops)}});
  } else {
    for (const OpDef* op : AllOps()) std::cout << OpText(*op);
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

void RegisterOpsCommand(CLI::App& app, const SetBody& set_body) {
  CLI::App* command =
      app.add_subcommand("ops", "list the ops of graphs: kind, operands -> results, attributes (docs/ir.md)");
  command->callback([=] { set_body([](CommandContext& context) { return RunOps(context); }); });
}

}  // namespace fuseline::cli
