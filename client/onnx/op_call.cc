#include "client/onnx/op_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"

namespace fuseline::onnx_import {
namespace {

const Tensor& EmptyTensor() {
  static const Tensor* const empty = new Tensor(Tensor::Allocate(DType::kI64, {0}));
  return *empty;
}

}  // namespace

void OpCall::Refuse(const std::string& message) { e.Fail(Unimplemented(node_.op, message)); }

Val OpCall::In(size_t i) {
  if (!Has(i)) {
    Fail(absl::StrCat("operand ", i, " is missing"));
    return {};
  }
  return materialize_(context_, *inputs_[i]);
}

DType OpCall::InType(size_t i) const {
  if (!Has(i)) return DType::kInvalid;
  return inputs_[i]->known.has_value() ? inputs_[i]->known->dtype() : inputs_[i]->value.dtype();
}

Shape OpCall::InShape(size_t i) const {
  if (!Has(i)) return {};
  return inputs_[i]->known.has_value() ? inputs_[i]->known->shape() : inputs_[i]->value.shape();
}

std::vector<Val> OpCall::AllIn() {
  std::vector<Val> values;
  for (size_t i = 0; i < inputs_.size(); ++i) values.push_back(In(i));
  return values;
}

const Tensor* OpCall::Known(size_t i) const {
  return Has(i) && inputs_[i]->known.has_value() ? &*inputs_[i]->known : nullptr;
}

const Tensor& OpCall::MustKnow(size_t i, const char* what) {
  if (const Tensor* known = Known(i)) return *known;
  if (!Has(i)) {
    Fail(absl::StrCat("operand '", what, "' is missing"));
    return EmptyTensor();
  }
  const std::set<std::string>& from = inputs_[i]->from_inputs;
  wanted_inputs_.insert(from.begin(), from.end());
  std::string names;
  for (const std::string& name : from) absl::StrAppend(&names, names.empty() ? "'" : ", '", name, "'");
  Refuse(absl::StrCat("operand '", what, "' must be known when the model is imported",
                      names.empty() ? "" : ", and it depends on the inputs ", names));
  return EmptyTensor();
}

Ints OpCall::KnownInts(size_t i, const char* what) {
  const Tensor& tensor = MustKnow(i, what);
  if (IsFloat(tensor.dtype())) {
    Fail(absl::StrCat("operand '", what, "' is not of integers"));
    return {};
  }
  constexpr int64_t kMaxValues = 1 << 20;
  if (tensor.element_count() > kMaxValues) {
    Fail(absl::StrCat("operand '", what, "' has too many elements"));
    return {};
  }
  Ints values;
  for (int64_t k = 0; k < tensor.element_count(); ++k) values.push_back(tensor.GetInt(k));
  return values;
}

double OpCall::KnownNumber(size_t i, const char* what) {
  const Tensor& tensor = MustKnow(i, what);
  if (!ok()) return 0;
  if (tensor.element_count() != 1) {
    Fail(absl::StrCat("operand '", what, "' is not one number"));
    return 0;
  }
  return IsFloat(tensor.dtype()) ? tensor.GetDouble(0) : static_cast<double>(tensor.GetInt(0));
}

std::optional<Ints> OpCall::IntsFrom(size_t i, const char* attribute) {
  if (Has(i)) return KnownInts(i, attribute);
  if (HasAttr(attribute)) return IntList(attribute, {});
  return std::nullopt;
}

const Attribute* OpCall::Find(const char* name) {
  used_.insert(name);
  const auto at = node_.attributes.find(name);
  if (at == node_.attributes.end()) return nullptr;
  if (!at->second.problem.empty()) {
    Refuse(absl::StrCat("attribute '", name, "': ", at->second.problem));
    return nullptr;
  }
  return &at->second;
}

void OpCall::WrongType(const char* name) { Fail(absl::StrCat("attribute '", name, "' has a value of the wrong type")); }

bool OpCall::HasAttr(const char* name) const { return node_.attributes.find(name) != node_.attributes.end(); }

int64_t OpCall::Int(const char* name, int64_t otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<int64_t>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

double OpCall::Float(const char* name, double otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<double>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

std::string OpCall::String(const char* name, const char* otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<std::string>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

Ints OpCall::IntList(const char* name, Ints otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<Ints>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

std::vector<double> OpCall::FloatList(const char* name, std::vector<double> otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<std::vector<double>>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

std::vector<std::string> OpCall::StringList(const char* name, std::vector<std::string> otherwise) {
  const Attribute* a = Find(name);
  if (a == nullptr) return otherwise;
  if (const auto* v = std::get_if<std::vector<std::string>>(&a->value)) return *v;
  WrongType(name);
  return otherwise;
}

const Tensor* OpCall::TensorAttr(const char* name) {
  const Attribute* a = Find(name);
  if (a == nullptr) return nullptr;
  const auto* v = std::get_if<FileTensor>(&a->value);
  if (v == nullptr) {
    WrongType(name);
    return nullptr;
  }
  if (!v->problem.empty()) {
    Refuse(absl::StrCat("attribute '", name, "': ", v->problem));
    return nullptr;
  }
  return &v->tensor;
}

std::vector<std::string> OpCall::UnusedAttributes() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : node_.attributes) {
    if (used_.find(name) == used_.end()) names.push_back(name);
  }
  return names;
}

void OpCall::Out(size_t i, Val value) {
  if (i < results_.size()) results_[i].value = value;
}

void OpCall::OutKnown(size_t i, Tensor tensor) {
  if (i < results_.size()) results_[i].known = std::move(tensor);
}

int64_t OpCall::Axis(int64_t axis, int64_t rank) {
  const int64_t d = axis < 0 ? axis + rank : axis;
  if (d < 0 || d >= rank) {
    Fail(absl::StrCat("axis ", axis, " is out of range for rank ", rank));
    return 0;
  }
  return d;
}

}  // namespace fuseline::onnx_import
