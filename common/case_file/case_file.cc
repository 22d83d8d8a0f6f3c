#include "common/case_file/case_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/case_file/random_values.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace fuseline {
namespace {

using Json = nlohmann::ordered_json;  // keeps the file's order of inputs and outputs

absl::Status FieldError(const std::string& field, const std::string& message) {
  return InvalidArgument(ErrorReason::kCaseFile, field,
                         absl::StrCat("case file: ", field.empty() ? "" : absl::StrCat("'", field, "': "), message));
}

std::string Child(const std::string& field, const std::string& key) {
  return field.empty() ? key : absl::StrCat(field, ".", key);
}

// Reads the fields of one object; Done() refuses keys that nobody asked for, so that a misspelt one is not passed over.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string field) : json_(json), field_(std::move(field)) {}

  absl::Status CheckIsObject() const {
    return json_.is_object() ? absl::OkStatus() : FieldError(field_, "expected an object");
  }
  const Json* Find(const char* key) {
    known_.emplace_back(key);
    const auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }
  absl::StatusOr<const Json*> Require(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return FieldError(Child(field_, key), "is missing");
    return value;
  }
  absl::StatusOr<std::string> String(const char* key, bool required) {
    const Json* value = Find(key);
    if (value == nullptr && !required) return std::string();
    if (value == nullptr) return FieldError(Child(field_, key), "is missing");
    if (!value->is_string()) return FieldError(Child(field_, key), "expected a string");
    return value->get<std::string>();
  }
  absl::Status Bool(const char* key, bool& out) {
    const Json* value = Find(key);
    if (value == nullptr) return absl::OkStatus();
    if (!value->is_boolean()) return FieldError(Child(field_, key), "expected true or false");
    out = value->get<bool>();
    return absl::OkStatus();
  }
  absl::Status Done() const {
    for (const auto& [key, value] : json_.items()) {
      bool known = false;
      for (const std::string& k : known_) known = known || k == key;
      if (!known) return FieldError(Child(field_, key), "unknown field");
    }
    return absl::OkStatus();
  }

 private:
  const Json& json_;
  std::string field_;
  std::vector<std::string> known_;
};

absl::StatusOr<int64_t> ReadInteger(const Json& json, const std::string& field, int64_t low, int64_t high) {
  if (!json.is_number_integer()) return FieldError(field, "expected an integer");
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return FieldError(field, absl::StrCat(json.dump(), " does not fit 64 bits"));
  }
  const int64_t value = json.get<int64_t>();
  if (value < low || value > high) return FieldError(field, absl::StrCat(value, " is outside [", low, ", ", high, "]"));
  return value;
}

// A float: a number, or one of the strings that JSON cannot spell as numbers. A plain zero is +0.0 however it is
// written.
absl::StatusOr<double> ReadFloat(const Json& json, const std::string& field) {
  if (json.is_number()) {
    const double value = json.get<double>();
    return value == 0 ? 0.0 : value;
  }
  if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    if (text == "-0.0") return -0.0;
  }
  return FieldError(field, "expected a number, \"nan\", \"inf\", \"-inf\" or \"-0.0\"");
}

int64_t LowestInteger(DType dtype) {
  if (dtype == DType::kU8) return 0;
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * DTypeSizeBytes(dtype));
}
int64_t HighestInteger(DType dtype) {
  if (dtype == DType::kU8) return 255;
  return std::numeric_limits<int64_t>::max() >> (64 - 8 * DTypeSizeBytes(dtype));
}

absl::Status ReadElement(const Json& json, const std::string& field, Tensor& tensor, int64_t i) {
  const DType dtype = tensor.dtype();
  if (IsFloat(dtype)) {
    FUSELINE_ASSIGN_OR_RETURN(const double value, ReadFloat(json, field));
    tensor.SetDouble(i, value);
  } else if (IsBool(dtype)) {
    if (!json.is_boolean()) return FieldError(field, "expected true or false");
    tensor.SetInt(i, json.get<bool>() ? 1 : 0);
  } else {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t value,
                              ReadInteger(json, field, LowestInteger(dtype), HighestInteger(dtype)));
    tensor.SetInt(i, value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> ReadShape(const Json& json, const std::string& field, const CaseFileLimits& limits) {
  if (!json.is_array()) return FieldError(field, "expected a list of sizes");
  if (static_cast<int64_t>(json.size()) > limits.max_rank)
    return FieldError(field, absl::StrCat("more than ", limits.max_rank, " dims"));
  Shape shape;
  for (size_t d = 0; d < json.size(); ++d) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t size, ReadInteger(json[d], absl::StrCat(field, "[", d, "]"), 0,
                                                              std::numeric_limits<int64_t>::max()));
    shape.push_back(size);
  }
  return shape;
}

// The size in bytes, or an error where it is over `budget`.
absl::StatusOr<int64_t> BoundedSize(DType dtype, const Shape& shape, const std::string& field, int64_t budget) {
  // Zeros count as one here, as in the graph's verifier, so that no product of the other dims overflows anywhere later.
  const int64_t most = std::max(budget, GraphLimits().max_elements);
  bool empty = false;
  int64_t bytes = DTypeSizeBytes(dtype);
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes) || bytes > most)
      return FieldError(field, "the tensors of the file are too large");
  }
  if (empty) return 0;
  if (bytes > budget) return FieldError(field, "the tensors of the file are too large");
  return bytes;
}

absl::Status FillRandom(ObjectReader& reader, const Json& random, const std::string& field, Tensor& tensor) {
  if (!random.is_string()) return FieldError(Child(field, "random"), "expected \"normal\", \"uniform\" or \"int\"");
  const std::string kind = random.get<std::string>();
  int64_t seed = 0;
  if (const Json* value = reader.Find("seed")) {
    FUSELINE_ASSIGN_OR_RETURN(seed, ReadInteger(*value, Child(field, "seed"), std::numeric_limits<int64_t>::min(),
                                                std::numeric_limits<int64_t>::max()));
  }
  const Json* low = reader.Find("low");
  const Json* high = reader.Find("high");
  const uint64_t key = static_cast<uint64_t>(seed);
  if (kind == "normal") {
    if (low != nullptr || high != nullptr) return FieldError(field, "'low' and 'high' do not go with \"normal\"");
    if (!IsFloat(tensor.dtype())) return FieldError(Child(field, "random"), "\"normal\" needs a float dtype");
    FillNormal(tensor, key);
    return absl::OkStatus();
  }
  if (kind == "uniform") {
    if (!IsFloat(tensor.dtype())) return FieldError(Child(field, "random"), "\"uniform\" needs a float dtype");
    double bounds[2] = {0, 1};
    const char* names[2] = {"low", "high"};
    const Json* values[2] = {low, high};
    for (int k = 0; k < 2; ++k) {
      if (values[k] == nullptr) continue;
      if (!values[k]->is_number()) return FieldError(Child(field, names[k]), "expected a number");
      bounds[k] = values[k]->get<double>();
    }
    if (!(bounds[0] < bounds[1])) return FieldError(Child(field, "low"), "must be below 'high'");
    FillUniform(tensor, key, bounds[0], bounds[1]);
    return absl::OkStatus();
  }
  if (kind == "int") {
    const DType dtype = tensor.dtype();
    // Exclusive high: one more than the largest value that the dtype holds (2^24 for floats: exact in f32), bounded by
    // int64's own.
    const int64_t least = IsBool(dtype) ? 0 : IsFloat(dtype) ? -(1 << 24) : LowestInteger(dtype);
    const int64_t most = IsBool(dtype) ? 1 : IsFloat(dtype) ? (1 << 24) : HighestInteger(dtype);
    const int64_t end = most == std::numeric_limits<int64_t>::max() ? most : most + 1;
    int64_t begin_value = IsBool(dtype) || dtype == DType::kU8 ? 0 : -8;
    int64_t end_value = IsBool(dtype) ? 2 : 9;
    if (low != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(begin_value, ReadInteger(*low, Child(field, "low"), least, most));
    }
    if (high != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(end_value, ReadInteger(*high, Child(field, "high"), least, end));
    }
    if (begin_value >= end_value) return FieldError(Child(field, "low"), "must be below 'high'");
    FillRandomInt(tensor, key, begin_value, end_value);
    return absl::OkStatus();
  }
  return FieldError(Child(field, "random"),
                    absl::StrCat("expected \"normal\", \"uniform\" or \"int\", got \"", kind, "\""));
}

absl::StatusOr<Tensor> ReadTensor(const Json& json, const std::string& field, bool is_input,
                                  const CaseFileLimits& limits, int64_t& budget) {
  ObjectReader reader(json, field);
  FUSELINE_RETURN_IF_ERROR(reader.CheckIsObject());
  FUSELINE_ASSIGN_OR_RETURN(const std::string dtype_name, reader.String("dtype", true));
  const std::optional<DType> dtype = ParseDType(dtype_name);
  if (!dtype.has_value()) return FieldError(Child(field, "dtype"), absl::StrCat("unknown dtype '", dtype_name, "'"));
  FUSELINE_ASSIGN_OR_RETURN(const Json* shape_json, reader.Require("shape"));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReadShape(*shape_json, Child(field, "shape"), limits));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, BoundedSize(*dtype, shape, field, budget));
  const Json* data = reader.Find("data");
  const Json* fill = is_input ? reader.Find("fill") : nullptr;
  const Json* random = is_input ? reader.Find("random") : nullptr;
  if ((data != nullptr) + (fill != nullptr) + (random != nullptr) != 1) {
    return FieldError(field, is_input ? "expected exactly one of 'data', 'fill' and 'random'" : "expected 'data'");
  }
  const std::string data_field = Child(field, "data");
  if (data != nullptr) {
    // Checked before the tensor is made: then its size is bounded by the text's.
    if (!data->is_array()) return FieldError(data_field, "expected a list of values");
    const int64_t wanted = ElementCount(shape);
    if (static_cast<int64_t>(data->size()) != wanted) {
      return FieldError(data_field, absl::StrCat("the shape has ", wanted, " elements, the list has ", data->size()));
    }
  }
  budget -= bytes;
  Tensor tensor = Tensor::Allocate(*dtype, shape);
  const int64_t count = tensor.element_count();
  if (data != nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const Json& element = (*data)[static_cast<size_t>(i)];
      if (absl::Status status = ReadElement(element, data_field, tensor, i); !status.ok()) {
        return ReadElement(element, absl::StrCat(data_field, "[", i, "]"), tensor,
                           i);  // again, with the element's own name
      }
    }
  } else if (fill != nullptr) {
    // Read once even where there is no element, so that a bad value is found; the tensor of one element holds it.
    Tensor one = Tensor::Allocate(*dtype, {});
    FUSELINE_RETURN_IF_ERROR(ReadElement(*fill, Child(field, "fill"), one, 0));
    for (int64_t i = 0; i < count; ++i) {
      if (IsFloat(*dtype)) {
        tensor.SetDouble(i, one.GetDouble(0));
      } else {
        tensor.SetInt(i, one.GetInt(0));
      }
    }
  } else {
    FUSELINE_RETURN_IF_ERROR(FillRandom(reader, *random, field, tensor));
  }
  FUSELINE_RETURN_IF_ERROR(reader.Done());
  return tensor;
}

absl::Status ReadTolerance(const Json& json, Tolerance& tolerance) {
  ObjectReader reader(json, "tolerance");
  FUSELINE_RETURN_IF_ERROR(reader.CheckIsObject());
  const std::pair<const char*, double*> parts[] = {{"rtol", &tolerance.rtol}, {"atol", &tolerance.atol}};
  for (const auto& [key, target] : parts) {
    const Json* value = reader.Find(key);
    if (value == nullptr) continue;
    if (!value->is_number() || !(value->get<double>() >= 0))
      return FieldError(Child("tolerance", key), "expected a number of at least 0");
    *target = value->get<double>();
  }
  return reader.Done();
}

absl::Status ReadOptions(const Json& json, CompileOptions& options) {
  ObjectReader reader(json, "options");
  FUSELINE_RETURN_IF_ERROR(reader.CheckIsObject());
  if (const Json* numerics = reader.Find("numerics")) {
    if (!numerics->is_string()) return FieldError("options.numerics", "expected a string");
    const absl::StatusOr<Numerics> parsed = ParseNumerics(numerics->get<std::string>());
    if (!parsed.ok()) return FieldError("options.numerics", std::string(parsed.status().message()));
    options.numerics = *parsed;
  }
  FUSELINE_RETURN_IF_ERROR(reader.Bool("fast_math", options.fast_math));
  FUSELINE_RETURN_IF_ERROR(reader.Bool("allow_tf32", options.allow_tf32));
  FUSELINE_RETURN_IF_ERROR(reader.Bool("fuse", options.fuse));
  return reader.Done();
}

absl::StatusOr<SymbolSizes> ReadSymbols(const Json& json) {
  if (!json.is_object()) return FieldError("symbols", "expected an object");
  SymbolSizes sizes;
  for (const auto& [name, size] : json.items()) {
    FUSELINE_ASSIGN_OR_RETURN(sizes[name],
                              ReadInteger(size, Child("symbols", name), 0, std::numeric_limits<int64_t>::max()));
  }
  return sizes;
}

constexpr absl::StatusCode kErrorCodes[] = {absl::StatusCode::kCancelled,         absl::StatusCode::kUnknown,
                                            absl::StatusCode::kInvalidArgument,   absl::StatusCode::kDeadlineExceeded,
                                            absl::StatusCode::kNotFound,          absl::StatusCode::kAlreadyExists,
                                            absl::StatusCode::kPermissionDenied,  absl::StatusCode::kUnauthenticated,
                                            absl::StatusCode::kResourceExhausted, absl::StatusCode::kFailedPrecondition,
                                            absl::StatusCode::kAborted,           absl::StatusCode::kOutOfRange,
                                            absl::StatusCode::kUnimplemented,     absl::StatusCode::kInternal,
                                            absl::StatusCode::kUnavailable,       absl::StatusCode::kDataLoss};

absl::StatusOr<ExpectedError> ReadExpectedError(const Json& json) {
  ObjectReader reader(json, "error");
  FUSELINE_RETURN_IF_ERROR(reader.CheckIsObject());
  ExpectedError error;
  FUSELINE_ASSIGN_OR_RETURN(const std::string code, reader.String("code", true));
  for (const absl::StatusCode c : kErrorCodes) {
    if (absl::StatusCodeToString(c) == code) error.code = c;
  }
  if (error.code == absl::StatusCode::kOk)
    return FieldError("error.code", absl::StrCat("unknown status code '", code, "'"));
  FUSELINE_ASSIGN_OR_RETURN(error.contains, reader.String("contains", false));
  FUSELINE_RETURN_IF_ERROR(reader.Done());
  return error;
}

// The parsed text, its depth bounded by a scan that respects strings.
absl::StatusOr<Json> ParseJson(std::string_view text, const CaseFileLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_text_bytes)
    return FieldError("", absl::StrCat("larger than ", limits.max_text_bytes, " bytes"));
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits.max_depth) return FieldError("", absl::StrCat("JSON nested deeper than ", limits.max_depth));
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  try {
    Json json = Json::parse(text.begin(), text.end());
    if (!json.is_object()) return FieldError("", "expected a JSON object");
    return json;
  } catch (const Json::exception& e) {
    return FieldError("", absl::StrCat("not JSON: ", e.what()));
  }
}

Json ElementJson(const Tensor& tensor, int64_t i) {
  if (IsBool(tensor.dtype())) return tensor.GetInt(i) != 0;
  if (IsInteger(tensor.dtype())) return tensor.GetInt(i);
  const double v = tensor.GetDouble(i);
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  if (v == 0 && std::signbit(v)) return "-0.0";
  // Whole numbers without a fraction, as people write them.
  if (v == std::floor(v) && std::fabs(v) < 0x1p53) return static_cast<int64_t>(v);
  return v;
}

Json TensorJson(const Tensor& tensor) {
  Json json;
  json["dtype"] = std::string(DTypeName(tensor.dtype()));
  json["shape"] = tensor.shape();
  Json data = Json::array();
  for (int64_t i = 0; i < tensor.element_count(); ++i) data.push_back(ElementJson(tensor, i));
  json["data"] = std::move(data);
  return json;
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// {"a": …, "b": …} with one entry a line.
void AppendObject(std::string& out, const char* key, const std::vector<std::pair<std::string, Json>>& entries) {
  absl::StrAppend(&out, ",\n \"", key, "\": {");
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "\n" : ",\n", "  ", Dump(entries[i].first), ": ", Dump(entries[i].second));
  }
  absl::StrAppend(&out, entries.empty() ? "}" : "\n }");
}

}  // namespace

absl::StatusOr<CaseFile> ParseCaseFile(std::string_view text, const CaseFileLimits& limits) {
  FUSELINE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, limits));
  ObjectReader reader(json, "");
  CaseFile result;
  FUSELINE_ASSIGN_OR_RETURN(result.name, reader.String("name", true));
  FUSELINE_ASSIGN_OR_RETURN(result.source, reader.String("source", false));
  FUSELINE_ASSIGN_OR_RETURN(result.why, reader.String("why", false));
  FUSELINE_ASSIGN_OR_RETURN(result.graph_text, reader.String("graph", true));
  int64_t budget = limits.max_tensor_bytes;
  if (const Json* inputs = reader.Find("inputs")) {
    if (!inputs->is_object()) return FieldError("inputs", "expected an object");
    for (const auto& [name, value] : inputs->items()) {
      FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(value, Child("inputs", name), true, limits, budget));
      result.inputs.push_back({name, std::move(tensor)});
    }
  }
  const Json* outputs = reader.Find("outputs");
  const Json* error = reader.Find("error");
  if ((outputs != nullptr) == (error != nullptr))
    return FieldError("outputs", "expected exactly one of 'outputs' and 'error'");
  if (outputs != nullptr) {
    if (!outputs->is_object() || outputs->empty())
      return FieldError("outputs", "expected an object with at least one output");
    for (const auto& [name, value] : outputs->items()) {
      CaseOutput output;
      output.name = name;
      if (value.is_string()) {
        if (value.get<std::string>() != "reference")
          return FieldError(Child("outputs", name), "expected a tensor or \"reference\"");
        output.reference = true;
      } else {
        FUSELINE_ASSIGN_OR_RETURN(output.tensor, ReadTensor(value, Child("outputs", name), false, limits, budget));
      }
      result.outputs.push_back(std::move(output));
    }
  } else {
    FUSELINE_ASSIGN_OR_RETURN(result.error, ReadExpectedError(*error));
  }
  result.tolerance.negative_zero_matters = true;
  if (const Json* tolerance = reader.Find("tolerance"))
    FUSELINE_RETURN_IF_ERROR(ReadTolerance(*tolerance, result.tolerance));
  if (const Json* options = reader.Find("options")) FUSELINE_RETURN_IF_ERROR(ReadOptions(*options, result.options));
  if (const Json* symbols = reader.Find("symbols")) {
    FUSELINE_ASSIGN_OR_RETURN(result.symbols, ReadSymbols(*symbols));
  }
  FUSELINE_RETURN_IF_ERROR(reader.Done());
  return result;
}

absl::StatusOr<CaseFile> ReadCaseFile(const std::string& path, const CaseFileLimits& limits) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, path,
                     absl::StrCat("can't read '", path, "'"));
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<CaseFile> result = ParseCaseFile(text.str(), limits);
  if (!result.ok()) return Wrap(result.status(), path);
  return result;
}

std::string WriteCaseFile(const CaseFile& c) {
  std::string out = absl::StrCat("{\n \"name\": ", Dump(c.name), ",\n \"source\": ", Dump(c.source),
                                 ",\n \"why\": ", Dump(c.why), ",\n \"graph\": ", Dump(c.graph_text));
  std::vector<std::pair<std::string, Json>> entries;
  for (const CaseInput& input : c.inputs) entries.emplace_back(input.name, TensorJson(input.tensor));
  AppendObject(out, "inputs", entries);
  if (c.error.has_value()) {
    const Json error = {{"code", absl::StatusCodeToString(c.error->code)}, {"contains", c.error->contains}};
    absl::StrAppend(&out, ",\n \"error\": ", Dump(error));
  } else {
    entries.clear();
    for (const CaseOutput& output : c.outputs)
      entries.emplace_back(output.name, output.reference ? Json("reference") : TensorJson(output.tensor));
    AppendObject(out, "outputs", entries);
    absl::StrAppend(&out, ",\n \"tolerance\": ", Dump(Json{{"rtol", c.tolerance.rtol}, {"atol", c.tolerance.atol}}));
  }
  Json options = Json::object();
  const CompileOptions defaults;
  if (c.options.numerics != defaults.numerics) options["numerics"] = std::string(NumericsName(c.options.numerics));
  if (c.options.fast_math != defaults.fast_math) options["fast_math"] = c.options.fast_math;
  if (c.options.allow_tf32 != defaults.allow_tf32) options["allow_tf32"] = c.options.allow_tf32;
  if (c.options.fuse != defaults.fuse) options["fuse"] = c.options.fuse;
  if (!options.empty()) absl::StrAppend(&out, ",\n \"options\": ", Dump(options));
  if (!c.symbols.empty()) {
    Json symbols = Json::object();
    for (const auto& [name, size] : c.symbols) symbols[name] = size;
    absl::StrAppend(&out, ",\n \"symbols\": ", Dump(symbols));
  }
  return absl::StrCat(out, "\n}\n");
}

}  // namespace fuseline
