// The printer of the text form.
// Tested by tests/unit/common/text_form_test.cc
#include "absl/strings/str_format.h"
#include "common/ir/attr_values.h"
#include "common/ir/element_text.h"
#include "common/ir/number_text.h"
#include "common/ir/op_table.h"
#include "common/ir/text_form.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

void AppendString(const std::string& value, std::string* text) {
  *text += '"';
  for (char c : value) {
    switch (c) {
      case '"':
        *text += "\\\"";
        break;
      case '\\':
        *text += "\\\\";
        break;
      case '\n':
        *text += "\\n";
        break;
      case '\t':
        *text += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          absl::StrAppendFormat(text, "\\x%02x", static_cast<unsigned char>(c));
        } else {
          *text += c;
        }
    }
  }
  *text += '"';
}

struct AttrPrinter {
  std::string* text;

  void operator()(int64_t v) const { StrAppend(text, v); }
  void operator()(double v) const { text->append(DoubleText(v)); }
  void operator()(bool v) const { text->append(v ? "true" : "false"); }
  void operator()(const std::string& v) const { AppendString(v, text); }
  void operator()(DType v) const { text->append(DTypeName(v)); }
  template <typename T>
  void operator()(const std::vector<T>& v) const {
    *text += '[';
    bool first = true;
    for (const T item : v) {
      if (!first) text->append(", ");
      first = false;
      (*this)(item);
    }
    *text += ']';
  }
};

void AppendOperand(const Graph& graph, const Operand& operand, std::string* text) {
  text->append(operand.is_literal() ? LiteralText(operand.literal) : graph.DisplayName(operand.value));
}

// The bytes of a constant as the list they were parsed from; nothing where there is no dtype to read them with.
void AppendData(const Node& node, std::string* text) {
  const auto it = node.attrs.find("dtype");
  const DType* dtype = it == node.attrs.end() ? nullptr : std::get_if<DType>(&it->second);
  const auto size = static_cast<size_t>(dtype == nullptr ? 0 : DTypeSizeBytes(*dtype));
  *text += '[';
  for (size_t i = 0; size > 0 && i + size <= node.constant_bytes->size(); i += size) {
    if (i > 0) text->append(", ");
    AppendElementText(*dtype, node.constant_bytes->data() + i, text);
  }
  *text += ']';
}

void AppendAttrs(const Node& node, std::string* text) {
  bool first = true;
  const auto begin_attr = [&](std::string_view name) {
    StrAppend(text, first ? " {" : ", ", name, " = ");
    first = false;
  };
  bool data_pending = node.constant_bytes != nullptr;
  const auto print_data = [&] {
    begin_attr("data");
    AppendData(node, text);
    data_pending = false;
  };
  for (const auto& [name, value] : node.attrs) {
    if (data_pending && name > "data") print_data();
    if (node.def != nullptr) {
      const AttrSpec* spec = FindAttrSpec(*node.def, name);
      if (spec != nullptr && spec->default_value.has_value() && SameAttrValue(DefaultAttrValue(*spec), value)) continue;
    }
    begin_attr(name);
    std::visit(AttrPrinter{text}, value);
  }
  if (data_pending) print_data();
  if (!first) *text += '}';
}

void AppendDeclaredTypes(const Graph& graph, const Node& node, std::string* text) {
  bool any = false;
  for (ValueId id : node.results) any = any || graph.value(id).declared_type.has_value();
  if (!any) return;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const std::optional<TensorType>& type = graph.value(node.results[i]).declared_type;
    StrAppend(text, i == 0 ? " : " : ", ", type.has_value() ? type->ToString() : "_");
  }
}

}  // namespace

std::string PrintGraph(const Graph& graph) {
  std::string text = "graph ";
  StrAppend(&text, graph.name, "(");
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& input = graph.value(graph.inputs[i]);
    StrAppend(&text, i > 0 ? ", " : "", input.name, ": ", input.type.ToString());
  }
  text += ") {\n";
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      StrAppend(&text, i == 0 ? "  %" : ", %", graph.value(node.results[i]).name);
    }
    StrAppend(&text, " = ", node.op, "(");
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (i > 0) text += ", ";
      AppendOperand(graph, node.operands[i], &text);
    }
    text += ')';
    AppendAttrs(node, &text);
    AppendDeclaredTypes(graph, node, &text);
    text += '\n';
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphOutput& output = graph.outputs[i];
    text += i == 0 ? "  return " : ", ";
    if (output.name != StrCat("out", i)) StrAppend(&text, output.name, " = ");
    text += graph.DisplayName(output.value);
  }
  text += "\n}\n";
  return text;
}

}  // namespace fuseline
