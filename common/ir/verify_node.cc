// Tested by tests/unit/common/verify_graph_test.cc
#include "common/ir/verify_node.h"

#include <algorithm>
#include <optional>

#include "common/ir/attr_values.h"
#include "common/ir/number_text.h"
#include "common/ir/op_table.h"
#include "common/ir/type_limits.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

absl::Status StructureError(std::string_view message) {
  return InvalidArgument(ErrorReason::kGraphStructure, "", message);
}
absl::Status TypeError(std::string_view message) {
  return InvalidArgument(ErrorReason::kGraphTypeMismatch, "", message);
}

// The operand that is a bool condition whatever the dtype of the others; -1 if there is none.
int ConditionOperand(const Node& node) { return node.op == "where" ? 0 : -1; }

std::string CountText(int64_t count, std::string_view noun) { return StrCat(count, " ", noun, count == 1 ? "" : "s"); }

absl::Status CheckOperandCount(const Node& node, const OpDef& def) {
  const auto count = static_cast<int64_t>(node.operands.size());
  // A negative maximum means any number.
  const bool unbounded = def.max_operands < 0;
  if (count >= def.min_operands && (unbounded || count <= def.max_operands)) return absl::OkStatus();
  std::string wanted;
  if (def.min_operands == def.max_operands) {
    wanted = CountText(def.min_operands, "operand");
  } else if (unbounded || count < def.min_operands) {
    wanted = StrCat("at least ", CountText(def.min_operands, "operand"));
  } else {
    wanted = StrCat("at most ", CountText(def.max_operands, "operand"));
  }
  return StructureError(StrCat("takes ", wanted, ", got ", count));
}

absl::Status CheckAttrs(Node& node, const OpDef& def) {
  for (auto& [name, value] : node.attrs) {
    const AttrSpec* spec = FindAttrSpec(def, name);
    if (spec == nullptr) return StructureError(StrCat("unknown attribute '", name, "'"));
    FUSELINE_RETURN_IF_ERROR(NormalizeAttrValue(*spec, value));
  }
  for (const AttrSpec& spec : def.attrs) {
    if (spec.type == AttrType::kData || node.attrs.find(std::string_view(spec.name)) != node.attrs.end()) continue;
    if (spec.default_value.has_value()) {
      node.attrs.emplace(spec.name, DefaultAttrValue(spec));
    } else if (spec.required) {
      return StructureError(StrCat("attribute '", spec.name, "' is required"));
    }
  }
  return absl::OkStatus();
}

bool HoldsConstant(const Node& node) { return node.op == "constant"; }

absl::Status CheckConstantData(const Node& node, const TensorType& type) {
  const std::string& bytes = *node.constant_bytes;
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t element_bytes = DTypeSizeBytes(type.dtype);
  if (size % element_bytes != 0) {
    return TypeError(StrCat("data has ", size, " bytes, ", type.ToString(), " has ", type.size_bytes()));
  }
  if (size != type.size_bytes()) {
    return TypeError(
        StrCat("data has ", size / element_bytes, " elements, ", type.ToString(), " has ", type.element_count()));
  }
  // Any other byte would be a bool that is neither true nor false to generated code.
  if (IsBool(type.dtype) && std::any_of(bytes.begin(), bytes.end(), [](char c) { return c != 0 && c != 1; })) {
    return TypeError("a bool in the data is neither 0 nor 1");
  }
  return absl::OkStatus();
}

// Gives a literal that fits `dtype` the kind of that dtype, so that later code need not convert.
void NormalizeLiteral(DType dtype, Literal& literal) {
  if (IsFloat(dtype) && literal.kind == Literal::Kind::kInt) {
    literal.f = static_cast<double>(literal.i);
    literal.i = 0;
    literal.kind = Literal::Kind::kFloat;
  } else if (IsInteger(dtype) && literal.kind == Literal::Kind::kFloat) {
    literal.i = static_cast<int64_t>(literal.f);
    literal.f = 0.0;
    literal.kind = Literal::Kind::kInt;
  }
}

// Attributes become constants of the dtype that the op computes in, so they are held to what holds for literals.
absl::Status CheckFloatAttrs(const Node& node, const OpDef& def, DType dtype) {
  if (GetDTypeKind(dtype) != DTypeKind::kFloat) return absl::OkStatus();  // the type rule speaks of those
  for (const AttrSpec& spec : def.attrs) {
    if (spec.type != AttrType::kFloat && spec.type != AttrType::kScalar) continue;
    const auto it = node.attrs.find(std::string_view(spec.name));
    const double* value = it == node.attrs.end() ? nullptr : std::get_if<double>(&it->second);
    if (value == nullptr) continue;
    Literal literal;
    literal.kind = Literal::Kind::kFloat;
    literal.f = *value;
    if (CheckLiteral(literal, ComputeDType(dtype)).ok()) continue;
    return TypeError(StrCat("attribute '", spec.name, "': ", LiteralText(literal), " does not fit ",
                            std::string(DTypeName(ComputeDType(dtype)))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNodeStructure(Node& node) {
  node.def = FindOp(node.op);
  if (node.def == nullptr) return StructureError("unknown op");
  const OpDef& def = *node.def;
  FUSELINE_RETURN_IF_ERROR(CheckOperandCount(node, def));
  if (static_cast<int64_t>(node.results.size()) != def.results) {
    return StructureError(StrCat("gives ", CountText(def.results, "result"), ", not ", node.results.size()));
  }
  FUSELINE_RETURN_IF_ERROR(CheckAttrs(node, def));
  if (HoldsConstant(node) != (node.constant_bytes != nullptr)) {
    return StructureError(HoldsConstant(node) ? "attribute 'data' is required" : "only a constant has data");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> InferNodeTypes(const Graph& graph, Node& node, const GraphLimits& limits) {
  const OpDef& def = *node.def;
  if (def.infer == nullptr) return Internal("the op has no type rule");
  const int condition = ConditionOperand(node);
  InferArgs args{{}, node.attrs, limits};
  args.operands.reserve(node.operands.size());
  std::optional<DType> literal_dtype;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (node.operands[i].is_literal()) {
      args.operands.emplace_back();
      continue;
    }
    TensorType type = graph.type(node.operands[i].value);
    type.strides.reset();  // where the elements lie is no part of what an op means
    if (!literal_dtype.has_value() && static_cast<int>(i) != condition) literal_dtype = type.dtype;
    args.operands.push_back(std::move(type));
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    Operand& operand = node.operands[i];
    if (!operand.is_literal()) continue;
    if (static_cast<int>(i) == condition) {
      args.operands[i].dtype = DType::kBool;
    } else if (literal_dtype.has_value()) {
      args.operands[i].dtype = *literal_dtype;
    } else {
      return TypeError("a literal takes its dtype from another operand, and there is none");
    }
    FUSELINE_RETURN_IF_ERROR(CheckLiteral(operand.literal, args.operands[i].dtype));
    NormalizeLiteral(args.operands[i].dtype, operand.literal);
  }
  if (literal_dtype.has_value()) FUSELINE_RETURN_IF_ERROR(CheckFloatAttrs(node, def, *literal_dtype));
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> results, def.infer(args));
  if (static_cast<int64_t>(results.size()) != def.results)
    return Internal("the type rule gives another number of results");
  for (TensorType& type : results) {
    type.strides.reset();
    FUSELINE_RETURN_IF_ERROR(CheckTensorType(type, limits));
  }
  if (HoldsConstant(node)) FUSELINE_RETURN_IF_ERROR(CheckConstantData(node, results[0]));
  return results;
}

absl::Status NodeError(const absl::Status& status, std::string_view node_name, std::string_view op) {
  ErrorReason reason = GetErrorReason(status);
  if (reason == ErrorReason::kUnspecified) {
    reason =
        status.code() == absl::StatusCode::kUnimplemented ? ErrorReason::kUnsupported : ErrorReason::kGraphTypeMismatch;
  }
  return MakeError(status.code(), reason, node_name, StrCat("node '", node_name, "': ", op, ": ", status.message()));
}

absl::Status ConstantBytesOverLimit(const GraphLimits& limits) {
  return InvalidArgument(ErrorReason::kLimitExceeded, "",
                         StrCat("constants take more than ", limits.max_constant_bytes, " bytes"));
}

}  // namespace fuseline
