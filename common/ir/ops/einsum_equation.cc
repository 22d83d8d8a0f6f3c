#include "common/ir/ops/einsum_equation.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

constexpr int32_t kEllipsis = -1;

absl::Status EquationError(const std::string& what) { return TypeError(absl::StrCat("attribute 'equation': ", what)); }

bool IsLabel(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The characters of one operand or of the result, with kEllipsis for "...".
absl::StatusOr<std::vector<int32_t>> ParseTerm(std::string_view term) {
  std::vector<int32_t> out;
  bool ellipsis = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (IsLabel(term[i])) {
      out.push_back(term[i]);
    } else if (term.substr(i, 3) == "..." && !ellipsis) {
      out.push_back(kEllipsis);
      ellipsis = true;
      i += 2;
    } else {
      return EquationError(absl::StrCat("'", std::string(1, term[i]), "' is neither a letter nor a single \"...\""));
    }
  }
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

class Parser {
 public:
  absl::StatusOr<EinsumPlan> Parse(const std::string& equation, const std::vector<Shape>& shapes) {
    std::string text;
    for (char c : equation) {
      if (c != ' ') text += c;
    }
    const std::string_view all = text;
    const size_t arrow = all.find("->");
    const std::vector<std::string_view> terms = Split(all.substr(0, arrow), ',');
    if (terms.size() != shapes.size()) {
      return EquationError(absl::StrCat("it has ", terms.size(), " terms for ", shapes.size(), " operands"));
    }
    std::vector<std::vector<int32_t>> parsed;
    for (std::string_view term : terms) {
      FUSELINE_ASSIGN_OR_RETURN(parsed.emplace_back(), ParseTerm(term));
    }
    // All ellipses have as many labels as the longest stands for; a shorter one takes the last of them.
    for (size_t k = 0; k < parsed.size(); ++k) FUSELINE_RETURN_IF_ERROR(CountEllipsis(k, parsed[k], shapes[k]));
    for (size_t e = 0; e < ellipsis_; ++e) NewLabel();
    label_of_.fill(-1);
    for (size_t k = 0; k < parsed.size(); ++k) FUSELINE_RETURN_IF_ERROR(AddOperand(parsed[k], shapes[k]));
    if (arrow == std::string_view::npos) {
      ImplicitResult();
    } else {
      FUSELINE_ASSIGN_OR_RETURN(const std::vector<int32_t> result, ParseTerm(all.substr(arrow + 2)));
      FUSELINE_RETURN_IF_ERROR(ExplicitResult(result));
    }
    return std::move(plan_);
  }

 private:
  int32_t NewLabel() {
    plan_.sizes.push_back(1);
    return static_cast<int32_t>(plan_.sizes.size() - 1);
  }

  absl::Status CountEllipsis(size_t operand, const std::vector<int32_t>& term, const Shape& shape) {
    const bool ellipsis = std::find(term.begin(), term.end(), kEllipsis) != term.end();
    const size_t letters = term.size() - (ellipsis ? 1 : 0);
    if (ellipsis ? shape.size() < letters : shape.size() != letters) {
      return EquationError(
          absl::StrCat("term ", operand, " has ", letters, " labels for an operand of rank ", shape.size()));
    }
    if (ellipsis) ellipsis_ = std::max(ellipsis_, shape.size() - letters);
    return absl::OkStatus();
  }

  absl::Status AddOperand(const std::vector<int32_t>& term, const Shape& shape) {
    std::vector<int32_t> labels;
    for (int32_t c : term) {
      if (c == kEllipsis) {
        const size_t dims = shape.size() - (term.size() - 1);
        for (size_t e = ellipsis_ - dims; e < ellipsis_; ++e) labels.push_back(static_cast<int32_t>(e));
        continue;
      }
      int32_t& label = label_of_[static_cast<size_t>(c)];
      if (label < 0) label = NewLabel();
      ++uses_[static_cast<size_t>(c)];
      labels.push_back(label);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& size = plan_.sizes[static_cast<size_t>(labels[d])];
      if (shape[d] != size && size != 1 && shape[d] != 1) {
        return EquationError(absl::StrCat("a label stands for sizes ", size, " and ", shape[d]));
      }
      if (shape[d] != 1) size = shape[d];
    }
    plan_.operands.push_back(std::move(labels));
    return absl::OkStatus();
  }

  void ImplicitResult() {
    for (size_t e = 0; e < ellipsis_; ++e) plan_.result.push_back(static_cast<int32_t>(e));
    for (size_t c = 0; c < label_of_.size(); ++c) {
      if (uses_[c] == 1) plan_.result.push_back(label_of_[c]);
    }
  }

  absl::Status ExplicitResult(const std::vector<int32_t>& term) {
    std::array<bool, 128> seen{};
    for (int32_t c : term) {
      if (c == kEllipsis) {
        for (size_t e = 0; e < ellipsis_; ++e) plan_.result.push_back(static_cast<int32_t>(e));
        continue;
      }
      const size_t i = static_cast<size_t>(c);
      const std::string name(1, static_cast<char>(c));
      if (label_of_[i] < 0) return EquationError(absl::StrCat("the result's label '", name, "' is in no operand"));
      if (seen[i]) return EquationError(absl::StrCat("the result has label '", name, "' twice"));
      seen[i] = true;
      plan_.result.push_back(label_of_[i]);
    }
    return absl::OkStatus();
  }

  EinsumPlan plan_;
  size_t ellipsis_ = 0;
  std::array<int32_t, 128> label_of_{};
  std::array<int32_t, 128> uses_{};
};

}  // namespace

std::vector<int32_t> PartialLabels(const EinsumPlan& plan, size_t last) {
  if (last + 1 >= plan.operands.size()) return plan.result;
  std::vector<bool> known(plan.sizes.size(), false);
  std::vector<bool> needed(plan.sizes.size(), false);
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    for (int32_t label : plan.operands[k]) (k <= last ? known : needed)[static_cast<size_t>(label)] = true;
  }
  for (int32_t label : plan.result) needed[static_cast<size_t>(label)] = true;
  std::vector<int32_t> labels;
  for (size_t label = 0; label < known.size(); ++label) {
    if (known[label] && needed[label]) labels.push_back(static_cast<int32_t>(label));
  }
  return labels;
}

absl::StatusOr<EinsumPlan> ParseEinsum(const std::string& equation, const std::vector<Shape>& shapes) {
  return Parser().Parse(equation, shapes);
}

}  // namespace fuseline::ops
