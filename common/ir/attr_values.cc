// Tested by tests/unit/common/verify_graph_test.cc
#include "common/ir/attr_values.h"

#include <bit>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

bool IsEmptyList(const AttrValue& value) {
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return list->empty();
  if (const auto* list = std::get_if<std::vector<bool>>(&value)) return list->empty();
  return false;
}

uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace

const AttrSpec* FindAttrSpec(const OpDef& def, std::string_view name) {
  for (const AttrSpec& spec : def.attrs) {
    if (name == spec.name) return &spec;
  }
  return nullptr;
}

absl::Status NormalizeAttrValue(const AttrSpec& spec, AttrValue& value) {
  bool fits = false;
  const char* wanted = "";
  switch (spec.type) {
    case AttrType::kInt:
      fits = std::holds_alternative<int64_t>(value);
      wanted = "an integer";
      break;
    case AttrType::kFloat:
      if (const int64_t* integer = std::get_if<int64_t>(&value)) value = static_cast<double>(*integer);
      fits = std::holds_alternative<double>(value);
      wanted = "a number";
      break;
    case AttrType::kBool:
      fits = std::holds_alternative<bool>(value);
      wanted = "true or false";
      break;
    case AttrType::kString:
      fits = std::holds_alternative<std::string>(value);
      wanted = "a string";
      break;
    case AttrType::kDType: {
      const DType* dtype = std::get_if<DType>(&value);
      fits = dtype != nullptr && GetDTypeKind(*dtype) != DTypeKind::kInvalid;
      wanted = "a dtype";
      break;
    }
    case AttrType::kIntList:
      if (IsEmptyList(value)) value = std::vector<int64_t>();
      fits = std::holds_alternative<std::vector<int64_t>>(value);
      wanted = "a list of integers";
      break;
    case AttrType::kFloatList:
      if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
        value = std::vector<double>(integers->begin(), integers->end());
      } else if (IsEmptyList(value)) {
        value = std::vector<double>();
      }
      fits = std::holds_alternative<std::vector<double>>(value);
      wanted = "a list of numbers";
      break;
    case AttrType::kScalar:
      fits = std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value) ||
             std::holds_alternative<bool>(value);
      wanted = "a number or a boolean";
      break;
    case AttrType::kData:
      wanted = "data, which is kept aside from the attributes";
      break;
  }
  if (fits) return absl::OkStatus();
  return InvalidArgument(ErrorReason::kGraphStructure, "", StrCat("attribute '", spec.name, "' must be ", wanted));
}

AttrValue DefaultAttrValue(const AttrSpec& spec) {
  AttrValue value = *spec.default_value;
  // A default that is not of its row's type is the table's own mistake; its test finds it.
  NormalizeAttrValue(spec, value).IgnoreError();
  return value;
}

bool SameAttrValue(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a)) return Bits(*x) == Bits(std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    if (x->size() != y.size()) return false;
    for (size_t i = 0; i < x->size(); ++i) {
      if (Bits((*x)[i]) != Bits(y[i])) return false;
    }
    return true;
  }
  return a == b;
}

}  // namespace fuseline
