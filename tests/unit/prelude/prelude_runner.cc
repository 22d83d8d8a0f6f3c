#include "tests/unit/prelude/prelude_runner.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace fuseline::codegen {

std::vector<PreludeSignature> ScalarSignatures(absl::Span<const PreludeFunction> table) {
  static const std::set<std::string>* const scalars = new std::set<std::string>{
      "float",    "double",         "long long",          "int",    "short",   "signed char", "unsigned char", "bool",
      "unsigned", "unsigned short", "unsigned long long", "fl_f16", "fl_bf16", "fl_f8e4m3",   "fl_f8e5m2"};
  std::vector<PreludeSignature> out;
  std::set<std::string> seen;
  for (const PreludeFunction& function : table) {
    absl::string_view text = function.text;
    if (!absl::ConsumePrefix(&text, "FL_FN ")) continue;
    if (!seen.insert(function.name).second) continue;  // the first definition counts
    const size_t name_at = text.find(absl::StrCat(" ", function.name, "("));
    if (name_at == absl::string_view::npos) continue;
    PreludeSignature signature;
    signature.name = function.name;
    signature.result = std::string(text.substr(0, name_at));
    absl::string_view operands = text.substr(name_at + signature.name.size() + 2);
    operands = operands.substr(0, operands.find(')'));
    bool scalar = !operands.empty() && scalars->count(signature.result) != 0;
    for (absl::string_view operand : absl::StrSplit(operands, ", ")) {
      std::string type(operand.substr(0, operand.rfind(' ')));
      scalar = scalar && scalars->count(type) != 0;
      signature.operands.push_back(std::move(type));
    }
    if (scalar) out.push_back(std::move(signature));
  }
  return out;
}

std::string RenderLoops(const PreludeLibrary& library, const std::vector<PreludeSignature>& signatures,
                        const char* qualifier, const char* head) {
  std::set<std::string> names;
  for (const PreludeSignature& signature : signatures) names.insert(signature.name);
  std::string source = library.Render(names);
  for (const PreludeSignature& signature : signatures) {
    std::string parameters, arguments;
    for (size_t i = 0; i < signature.operands.size(); ++i) {
      const std::string& type = signature.operands[i];
      const bool is_bool = type == "bool";
      absl::StrAppend(&parameters, "const ", is_bool ? "unsigned char" : type, "* __restrict a", i, ", ");
      absl::StrAppend(&arguments, i == 0 ? "" : ", ", "a", i, is_bool ? "[i] != 0" : "[i]");
    }
    absl::StrAppend(&source, "extern \"C\" ", qualifier, " void fl_loop_", signature.name, "(", parameters,
                    signature.result == "bool" ? "unsigned char" : signature.result,
                    "* __restrict r, long long n) {\n  ", head, "\n    r[i] = ", signature.name, "(", arguments,
                    ");\n}\n");
  }
  return source;
}

}  // namespace fuseline::codegen
