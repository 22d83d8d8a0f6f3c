#include "client/onnx/model_reader.h"

#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/graph.h"
#include "common/ir/type_limits.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "onnx/onnx.pb.h"

namespace fuseline::onnx_import {
namespace {

// TensorProto.DataType by number; newer files have numbers that an older onnx.proto has no name for.
struct TypeRow {
  const char* name;
  DType dtype;
};
constexpr std::array<TypeRow, 21> kTypes = {{{"undefined", DType::kInvalid},
                                             {"float", DType::kF32},
                                             {"uint8", DType::kU8},
                                             {"int8", DType::kI8},
                                             {"uint16", DType::kInvalid},
                                             {"int16", DType::kI16},
                                             {"int32", DType::kI32},
                                             {"int64", DType::kI64},
                                             {"string", DType::kInvalid},
                                             {"bool", DType::kBool},
                                             {"float16", DType::kF16},
                                             {"double", DType::kF64},
                                             {"uint32", DType::kInvalid},
                                             {"uint64", DType::kInvalid},
                                             {"complex64", DType::kInvalid},
                                             {"complex128", DType::kInvalid},
                                             {"bfloat16", DType::kBF16},
                                             {"float8e4m3fn", DType::kF8E4M3},
                                             {"float8e4m3fnuz", DType::kInvalid},
                                             {"float8e5m2", DType::kF8E5M2},
                                             {"float8e5m2fnuz", DType::kInvalid}}};

absl::Status Malformed(const std::string& message) {
  return InvalidArgument(ErrorReason::kGraphSyntax, "", absl::StrCat("onnx: ", message));
}

template <typename T, typename Values>
void StoreValues(const Values& values, Tensor& tensor) {
  auto* to = static_cast<T*>(tensor.data());
  for (int i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values.Get(i));
}

// The number of values in the typed field that this dtype uses.
int TypedCount(const ::onnx::TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return proto.float_data_size();
    case DType::kF64:
      return proto.double_data_size();
    case DType::kI64:
      return proto.int64_data_size();
    default:
      return proto.int32_data_size();
  }
}

void StoreTyped(const ::onnx::TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF32:
      StoreValues<float>(proto.float_data(), tensor);
      break;
    case DType::kF64:
      StoreValues<double>(proto.double_data(), tensor);
      break;
    case DType::kI64:
      StoreValues<int64_t>(proto.int64_data(), tensor);
      break;
    case DType::kI32:
      StoreValues<int32_t>(proto.int32_data(), tensor);
      break;
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      StoreValues<uint16_t>(proto.int32_data(), tensor);
      break;  // floats as their bits
    case DType::kBool: {
      auto* to = static_cast<uint8_t*>(tensor.data());
      for (int i = 0; i < proto.int32_data_size(); ++i) to[i] = proto.int32_data(i) != 0;
      break;
    }
    default:
      StoreValues<uint8_t>(proto.int32_data(), tensor);
      break;
  }
}

absl::StatusOr<FileTensor> ReadTensor(const ::onnx::TensorProto& proto, DType uint16_as = DType::kInvalid) {
  FileTensor result;
  result.name = proto.name();
  const bool is_uint16 = proto.data_type() == ::onnx::TensorProto::UINT16;
  const DType dtype = is_uint16 ? uint16_as : DTypeOfOnnx(proto.data_type());
  if (dtype == DType::kInvalid) {
    result.problem = absl::StrCat("element type ", OnnxTypeName(proto.data_type()), " is not supported");
    return result;
  }
  if (proto.data_location() == ::onnx::TensorProto::EXTERNAL || proto.external_data_size() > 0) {
    result.problem = "its data lies in another file (external data), which is not read";
    return result;
  }
  if (proto.has_segment()) {
    result.problem = "its data comes in segments, which are not read";
    return result;
  }
  const Shape shape(proto.dims().begin(), proto.dims().end());
  const std::string what = absl::StrCat("tensor '", proto.name(), "'");
  for (const int64_t size : shape) {
    if (size < 0) return Malformed(absl::StrCat(what, " has a negative dim"));
  }
  if (absl::Status fits = CheckTensorType(TensorType::Make(dtype, shape), GraphLimits()); !fits.ok()) {
    return Malformed(absl::StrCat(what, ": ", std::string(fits.message())));
  }
  const int64_t count = ElementCount(shape);
  if (proto.has_raw_data() && TypedCount(proto, dtype) == 0) {
    const std::string& raw = proto.raw_data();
    if (static_cast<int64_t>(raw.size()) != count * DTypeSizeBytes(dtype)) {
      return Malformed(
          absl::StrCat(what, " has ", raw.size(), " bytes, and its shape asks for ", count * DTypeSizeBytes(dtype)));
    }
    result.tensor = Tensor::Allocate(dtype, shape);
    if (!raw.empty()) std::memcpy(result.tensor.data(), raw.data(), raw.size());
    if (dtype == DType::kBool) {
      auto* to = static_cast<uint8_t*>(result.tensor.data());
      for (int64_t i = 0; i < count; ++i) to[i] = to[i] != 0;
    }
    return result;
  }
  if (TypedCount(proto, dtype) != count) {
    return Malformed(absl::StrCat(what, " has ", TypedCount(proto, dtype), " values, and its shape asks for ", count));
  }
  result.tensor = Tensor::Allocate(dtype, shape);
  StoreTyped(proto, result.tensor);
  return result;
}

absl::StatusOr<Attribute> ReadAttribute(const ::onnx::AttributeProto& proto) {
  Attribute a;
  a.ref_name = proto.ref_attr_name();
  if (!a.ref_name.empty()) return a;
  switch (proto.type()) {
    case ::onnx::AttributeProto::INT:
      a.value = static_cast<int64_t>(proto.i());
      break;
    case ::onnx::AttributeProto::FLOAT:
      a.value = static_cast<double>(proto.f());
      break;
    case ::onnx::AttributeProto::STRING:
      a.value = std::string(proto.s());
      break;
    case ::onnx::AttributeProto::INTS:
      a.value = std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
      break;
    case ::onnx::AttributeProto::FLOATS:
      a.value = std::vector<double>(proto.floats().begin(), proto.floats().end());
      break;
    case ::onnx::AttributeProto::STRINGS:
      a.value = std::vector<std::string>(proto.strings().begin(), proto.strings().end());
      break;
    case ::onnx::AttributeProto::TENSOR: {
      FUSELINE_ASSIGN_OR_RETURN(a.value, ReadTensor(proto.t()));
      break;
    }
    case ::onnx::AttributeProto::GRAPH:
    case ::onnx::AttributeProto::GRAPHS:
      a.problem = "subgraphs are not imported";
      break;
    default:
      a.problem = "attributes of this type are not imported";
      break;
  }
  return a;
}

absl::StatusOr<ModelNode> ReadNode(const ::onnx::NodeProto& proto) {
  ModelNode node;
  node.name = proto.name();
  node.op = proto.op_type();
  node.domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (const auto& attribute : proto.attribute()) {
    FUSELINE_ASSIGN_OR_RETURN(Attribute a, ReadAttribute(attribute));
    if (!node.attributes.emplace(attribute.name(), std::move(a)).second) {
      return Malformed(
          absl::StrCat("node '", node.name, "' (", node.op, ") has attribute '", attribute.name(), "' twice"));
    }
  }
  return node;
}

ModelValue ReadValue(const ::onnx::ValueInfoProto& proto) {
  ModelValue value;
  value.name = proto.name();
  if (!proto.has_type() || !proto.type().has_tensor_type()) {
    value.problem = proto.has_type() && proto.type().has_sequence_type()   ? "a sequence"
                    : proto.has_type() && proto.type().has_optional_type() ? "an optional"
                    : proto.has_type() && proto.type().has_map_type()      ? "a map"
                                                                           : "of a type that is not given";
    return value;
  }
  const auto& type = proto.type().tensor_type();
  value.dtype = DTypeOfOnnx(type.elem_type());
  if (value.dtype == DType::kInvalid) value.problem = absl::StrCat("of element type ", OnnxTypeName(type.elem_type()));
  if (type.has_shape()) {
    std::vector<ModelDim> dims;
    for (const auto& dim : type.shape().dim()) {
      ModelDim d;
      if (dim.has_dim_value()) d.size = dim.dim_value();
      if (dim.has_dim_param()) d.symbol = dim.dim_param();
      dims.push_back(std::move(d));
    }
    value.dims = std::move(dims);
  }
  return value;
}

template <typename Opsets>
std::map<std::string, int64_t, std::less<>> ReadOpsets(const Opsets& protos) {
  std::map<std::string, int64_t, std::less<>> opsets;
  for (const auto& opset : protos) opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = opset.version();
  return opsets;
}

absl::StatusOr<ModelFunction> ReadFunction(const ::onnx::FunctionProto& proto) {
  ModelFunction function;
  function.domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  function.name = proto.name();
  function.inputs.assign(proto.input().begin(), proto.input().end());
  function.outputs.assign(proto.output().begin(), proto.output().end());
  function.opsets = ReadOpsets(proto.opset_import());
  for (const auto& node : proto.node()) {
    FUSELINE_ASSIGN_OR_RETURN(ModelNode read, ReadNode(node));
    function.nodes.push_back(std::move(read));
  }
  return function;
}

absl::Status CheckCounts(const ::onnx::ModelProto& proto, const ReadLimits& limits) {
  int64_t nodes = proto.graph().node_size();
  for (const auto& function : proto.functions()) nodes += function.node_size();
  if (nodes > limits.max_nodes) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("onnx: ", nodes, " nodes, and ", limits.max_nodes, " are allowed"));
  }
  const int64_t tensors = proto.graph().initializer_size();
  if (tensors > limits.max_tensors) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("onnx: ", tensors, " initializers, and ", limits.max_tensors, " are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string OnnxTypeName(int64_t data_type) {
  if (data_type >= 0 && data_type < static_cast<int64_t>(kTypes.size())) {
    return kTypes[static_cast<size_t>(data_type)].name;
  }
  return absl::StrCat("number ", data_type);
}

DType DTypeOfOnnx(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(kTypes.size())) return DType::kInvalid;
  return kTypes[static_cast<size_t>(data_type)].dtype;
}

absl::StatusOr<Model> ReadModel(const std::string& bytes, const ReadLimits& limits) {
  if (static_cast<int64_t>(bytes.size()) >= limits.max_bytes) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("onnx: ", bytes.size(), " bytes, and ", limits.max_bytes, " are allowed"));
  }
  ::onnx::ModelProto proto;
  if (!proto.ParseFromString(bytes)) return Malformed("not an ONNX model: the bytes are no ModelProto message");
  if (!proto.has_graph()) return Malformed("not an ONNX model: it has no graph");
  FUSELINE_RETURN_IF_ERROR(CheckCounts(proto, limits));
  Model model;
  model.name = proto.graph().name();
  model.opsets = ReadOpsets(proto.opset_import());
  for (const auto& input : proto.graph().input()) model.inputs.push_back(ReadValue(input));
  for (const auto& output : proto.graph().output()) model.outputs.push_back(ReadValue(output));
  for (const auto& initializer : proto.graph().initializer()) {
    FUSELINE_ASSIGN_OR_RETURN(FileTensor tensor, ReadTensor(initializer));
    model.initializers.push_back(std::move(tensor));
  }
  for (const auto& sparse : proto.graph().sparse_initializer()) {
    model.problems.push_back(
        absl::StrCat("initializer '", sparse.values().name(), "': sparse tensors are not imported"));
  }
  for (const auto& node : proto.graph().node()) {
    FUSELINE_ASSIGN_OR_RETURN(ModelNode read, ReadNode(node));
    model.nodes.push_back(std::move(read));
  }
  for (const auto& function : proto.functions()) {
    FUSELINE_ASSIGN_OR_RETURN(ModelFunction read, ReadFunction(function));
    model.functions.push_back(std::move(read));
  }
  return model;
}

absl::StatusOr<FileTensor> ReadTensorFile(const std::string& bytes, DType uint16_as) {
  ::onnx::TensorProto proto;
  if (!proto.ParseFromString(bytes)) return Malformed("the bytes are no TensorProto message");
  return ReadTensor(proto, uint16_as);
}

}  // namespace fuseline::onnx_import
