#include "client/cli/explain_page.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/explain_page_template.h"

namespace fuseline::cli {
namespace {

constexpr size_t kMostAttributeCharacters = 300;  // of a node; lists of a constant's size would drown the page

template <typename T>
std::string ElementText(const T& value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  if constexpr (std::is_same_v<T, DType>) return std::string(DTypeName(value));
  if constexpr (std::is_same_v<T, std::string>) return absl::StrCat("\"", value, "\"");
  if constexpr (std::is_arithmetic_v<T>) return absl::StrCat(value);
}

template <typename T>
std::string ValueText(const T& value) {
  return ElementText(value);
}

template <typename T>
std::string ValueText(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size() && text.size() < kMostAttributeCharacters; ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", ElementText<T>(values[i]));
  return text + "]";
}

std::string AttributesText(const Node& node) {
  std::string text;
  for (const auto& [name, value] : node.attrs) {
    if (text.size() >= kMostAttributeCharacters) return absl::StrCat(text, ", …");
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " = ",
                    std::visit([](const auto& v) { return ValueText(v); }, value));
  }
  return text;
}

std::string LiteralText(const Literal& literal) {
  if (literal.kind == Literal::Kind::kBool) return literal.i != 0 ? "true" : "false";
  return literal.kind == Literal::Kind::kInt ? absl::StrCat(literal.i) : absl::StrCat(literal.f);
}

Json GraphJson(const Graph& graph, const SymbolSizes& symbols) {
  // The sizes and the inferred types; where the graph can't be bound here, as declared. The nodes are the same.
  const absl::StatusOr<Graph> bound = BindSymbols(graph, symbols);
  const auto type_text = [&](ValueId id) -> std::string {
    if (bound.ok()) return bound->type(id).ToString();
    const Value& value = graph.value(id);
    if (value.producer == kNoNode) return value.type.ToString();
    return value.declared_type.has_value() ? value.declared_type->ToString() : "";
  };
  Json inputs = Json::array();
  for (const ValueId id : graph.inputs) inputs.push_back({graph.value(id).name, type_text(id)});
  Json nodes = Json::array();
  for (const Node& node : graph.nodes) {
    Json operands = Json::array();
    for (const Operand& operand : node.operands) {
      if (operand.is_literal()) {
        operands.push_back(Json::array({LiteralText(operand.literal)}));
      } else {
        operands.push_back(graph.DisplayName(operand.value));
      }
    }
    Json results = Json::array();
    for (const ValueId id : node.results) results.push_back({graph.value(id).name, type_text(id)});
    nodes.push_back(Json::array({node.op, std::move(operands), std::move(results), AttributesText(node)}));
  }
  Json outputs = Json::array();
  for (const GraphOutput& output : graph.outputs) outputs.push_back({output.name, graph.DisplayName(output.value)});
  return {{"name", graph.name},
          {"inputs", std::move(inputs)},
          {"nodes", std::move(nodes)},
          {"outputs", std::move(outputs)}};
}

const char* BufferKindName(PlanBuffer::Kind kind) {
  switch (kind) {
    case PlanBuffer::Kind::kInput:
      return "input";
    case PlanBuffer::Kind::kOutput:
      return "output";
    case PlanBuffer::Kind::kTemporary:
      return "temporary";
    case PlanBuffer::Kind::kConstant:
      return "constant";
    case PlanBuffer::Kind::kChecks:
      return "checks";
  }
  return "";
}

Json PlanJson(const LaunchPlan& plan) {
  Json buffers = Json::array();
  for (const PlanBuffer& buffer : plan.buffers)
    buffers.push_back(Json::array({BufferKindName(buffer.kind), buffer.index, buffer.size_bytes}));
  Json launches = Json::array();
  for (const PlanStep& step : plan.steps) {
    launches.push_back({{"image", step.kind == PlanStep::Kind::kLaunch ? step.kernel : -1}, {"buffers", step.buffers}});
  }
  return {{"buffers", std::move(buffers)}, {"launches", std::move(launches)}};
}

Json BenchmarkJson(const client::BenchmarkResult& benchmark) {
  return {{"micros", benchmark.micros},
          {"copy_bytes_per_second", benchmark.copy_bytes_per_second},
          {"moved_bytes", benchmark.moved_bytes},
          {"device_name", benchmark.device_name}};
}

}  // namespace

Json ExplainPageData(const ExplainPageInput& input) {
  Json images = Json::array();
  for (const KernelImage& image : input.artifact.kernels) {
    images.push_back({{"name", image.entry},
                      {"source", image.source},
                      {"registers", image.resources.registers},
                      {"shared_bytes", image.resources.static_shared_bytes},
                      {"spill_store_bytes", image.resources.spill_store_bytes},
                      {"spill_load_bytes", image.resources.spill_load_bytes}});
  }
  return {{"summary", SummaryJson(input.summary)},
          {"report", ReportJson(input.report)},
          {"graph", GraphJson(input.graph, input.symbols)},
          {"plan", PlanJson(input.artifact.plan)},
          {"images", std::move(images)},
          {"benchmark", input.benchmark.has_value() ? BenchmarkJson(*input.benchmark) : Json()},
          {"key", KeyFieldsJson(input.key_fields)}};
}

std::string ExplainPage(const Json& data) {
  // Inside a script of data nothing but "<" can end it or begin a comment; JSON has it within strings alone.
  const std::string text =
      absl::StrReplaceAll(data.dump(-1, ' ', false, Json::error_handler_t::replace), {{"<", "\\u003c"}});
  std::string page;
  page.reserve(kExplainPageHead.size() + text.size() + kExplainPageTail.size());
  page.append(kExplainPageHead).append(text).append(kExplainPageTail);
  return page;
}

}  // namespace fuseline::cli
