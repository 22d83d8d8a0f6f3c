// The parser of the text form: one pass over the tokens, names resolved on the way, no recursion.
// Tested by tests/unit/common/text_form_test.cc
#include <charconv>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "common/ir/element_text.h"
#include "common/ir/number_text.h"
#include "common/ir/text_form.h"
#include "common/ir/text_lexer.h"
#include "common/ir/type_limits.h"
#include "common/ir/value_names.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

constexpr size_t kNoOffset = static_cast<size_t>(-1);

class TextParser {
 public:
  TextParser(std::string_view text, const GraphLimits& limits) : text_(text), limits_(limits), lexer_(text) {}

  absl::StatusOr<Graph> Parse();

 private:
  absl::Status Advance();
  absl::Status Expect(char punct, std::string_view where);
  absl::Status ErrorAt(size_t offset, std::string_view message) const { return SyntaxError(text_, offset, message); }
  absl::Status ErrorHere(std::string_view message) const { return ErrorAt(token_.offset, message); }
  // What the current token is, for "expected X, got Y".
  std::string Got() const;
  // A status made without a position, with the position of `offset`.
  absl::Status At(size_t offset, const absl::Status& status) const;

  absl::Status ParseInput();
  absl::Status ParseStatement();
  absl::Status ParseOperands(Node& node);
  absl::Status ParseAttrs(Node& node);
  absl::Status ParseConstantData(size_t begin, Node& node);
  absl::Status SkipScalarList();
  absl::StatusOr<AttrValue> ParseAttrValue();
  absl::StatusOr<AttrValue> ParseList();
  absl::StatusOr<std::string> Unescape() const;
  absl::StatusOr<Literal> ParseLiteral() const;
  absl::StatusOr<TensorType> ParseType();
  absl::StatusOr<int64_t> ParseInteger(std::string_view what);
  absl::Status ParseReturn();
  absl::StatusOr<ValueId> Resolve(const Token& name) const;
  // Adds a value under a name that must be new.
  absl::StatusOr<ValueId> Define(const Token& name, Value value);

  std::string_view text_;
  const GraphLimits& limits_;
  TextLexer lexer_;
  Token token_;
  Graph graph_;
  absl::flat_hash_map<std::string_view, ValueId> names_;
  int64_t constant_bytes_ = 0;
};

absl::Status TextParser::Advance() {
  FUSELINE_ASSIGN_OR_RETURN(token_, lexer_.Next());
  return absl::OkStatus();
}

std::string TextParser::Got() const {
  if (token_.kind == TokenKind::kEnd) return "the end of the text";
  if (token_.kind == TokenKind::kString) return "a string";
  const bool value = token_.kind == TokenKind::kValueName;
  return StrCat("'", value ? "%" : "", std::string(token_.text.substr(0, 40)), "'");
}

absl::Status TextParser::Expect(char punct, std::string_view where) {
  if (!token_.Is(punct)) return ErrorHere(StrCat("expected '", std::string(1, punct), "' ", where, ", got ", Got()));
  return Advance();
}

absl::Status TextParser::At(size_t offset, const absl::Status& status) const {
  return ErrorAt(offset, std::string_view(status.message().data(), status.message().size()));
}

absl::StatusOr<ValueId> TextParser::Define(const Token& name, Value value) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  if (!names_.emplace(name.text, id).second) {
    return ErrorAt(name.offset, StrCat("the name '", name.text, "' is defined twice"));
  }
  value.name = std::string(name.text);
  graph_.values.push_back(std::move(value));
  return id;
}

absl::StatusOr<ValueId> TextParser::Resolve(const Token& name) const {
  const bool is_result = name.kind == TokenKind::kValueName;
  const auto it = names_.find(name.text);
  if (it == names_.end()) {
    return ErrorAt(name.offset, is_result ? StrCat("no statement above defines '%", name.text, "'")
                                          : StrCat("'", name.text, "' is not an input"));
  }
  if (is_result != (graph_.value(it->second).producer != kNoNode)) {
    return ErrorAt(name.offset, is_result ? StrCat("'", name.text, "' is an input: it has no '%'")
                                          : StrCat("'", name.text, "' is a result: write '%", name.text, "'"));
  }
  return it->second;
}

absl::StatusOr<int64_t> TextParser::ParseInteger(std::string_view what) {
  if (token_.kind != TokenKind::kNumber) return ErrorHere(StrCat("expected ", what, ", got ", Got()));
  const absl::StatusOr<Literal> literal = ParseNumber(token_.text);
  if (!literal.ok()) return At(token_.offset, literal.status());
  if (literal->kind != Literal::Kind::kInt) return ErrorHere(StrCat("expected ", what, ", got ", Got()));
  FUSELINE_RETURN_IF_ERROR(Advance());
  return literal->i;
}

// dtype[d0, symbol, …] or dtype[…]{s0, s1, …}
absl::StatusOr<TensorType> TextParser::ParseType() {
  TensorType type;
  if (token_.kind != TokenKind::kWord) return ErrorHere(StrCat("expected a type, got ", Got()));
  const std::optional<DType> dtype = ParseDType(token_.text);
  if (!dtype.has_value()) return ErrorHere(StrCat("unknown dtype ", Got()));
  type.dtype = *dtype;
  FUSELINE_RETURN_IF_ERROR(Advance());
  FUSELINE_RETURN_IF_ERROR(Expect('[', "after the dtype"));
  while (!token_.Is(']')) {
    if (!type.dims.empty()) FUSELINE_RETURN_IF_ERROR(Expect(',', "between dims"));
    if (token_.kind == TokenKind::kWord) {
      type.dims.push_back(Dim::Symbol(std::string(token_.text)));
      FUSELINE_RETURN_IF_ERROR(Advance());
    } else {
      const size_t offset = token_.offset;
      FUSELINE_ASSIGN_OR_RETURN(const int64_t size, ParseInteger("a dim"));
      if (size < 0) return ErrorAt(offset, StrCat("dim ", size, " is negative"));
      type.dims.emplace_back(size);
    }
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  if (!token_.Is('{')) return type;
  FUSELINE_RETURN_IF_ERROR(Advance());
  type.strides.emplace();
  while (!token_.Is('}')) {
    if (!type.strides->empty()) FUSELINE_RETURN_IF_ERROR(Expect(',', "between strides"));
    FUSELINE_ASSIGN_OR_RETURN(const int64_t stride, ParseInteger("a stride"));
    type.strides->push_back(stride);
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  DropDenseStrides(type);
  return type;
}

absl::Status TextParser::ParseInput() {
  const Token name = token_;
  if (name.kind == TokenKind::kNumber || name.kind == TokenKind::kBool) {
    return ErrorHere(StrCat("an input cannot be called ", Got()));
  }
  if (name.kind != TokenKind::kWord) return ErrorHere(StrCat("expected the name of an input, got ", Got()));
  FUSELINE_RETURN_IF_ERROR(Advance());
  FUSELINE_RETURN_IF_ERROR(Expect(':', "after the name of an input"));
  Value value;
  value.result_index = static_cast<int>(graph_.inputs.size());
  FUSELINE_ASSIGN_OR_RETURN(value.type, ParseType());
  FUSELINE_ASSIGN_OR_RETURN(const ValueId id, Define(name, std::move(value)));
  graph_.inputs.push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<Literal> TextParser::ParseLiteral() const {
  if (token_.kind == TokenKind::kBool) {
    Literal literal;
    literal.kind = Literal::Kind::kBool;
    literal.i = token_.text == "true" ? 1 : 0;
    return literal;
  }
  absl::StatusOr<Literal> literal = ParseNumber(token_.text);
  if (!literal.ok()) return At(token_.offset, literal.status());
  return literal;
}

absl::Status TextParser::ParseOperands(Node& node) {
  FUSELINE_RETURN_IF_ERROR(Expect('(', "after the op"));
  while (!token_.Is(')')) {
    if (!node.operands.empty()) FUSELINE_RETURN_IF_ERROR(Expect(',', "between operands"));
    Operand operand;
    if (token_.kind == TokenKind::kNumber || token_.kind == TokenKind::kBool) {
      FUSELINE_ASSIGN_OR_RETURN(operand.literal, ParseLiteral());
    } else if (token_.kind == TokenKind::kValueName || token_.kind == TokenKind::kWord) {
      FUSELINE_ASSIGN_OR_RETURN(operand.value, Resolve(token_));
    } else {
      return ErrorHere(StrCat("expected an operand, got ", Got()));
    }
    node.operands.push_back(operand);
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
  return Advance();
}

absl::StatusOr<std::string> TextParser::Unescape() const {
  std::string result;
  const std::string_view raw = token_.text;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      result += raw[i];
      continue;
    }
    // The lexer has made sure that a character follows.
    switch (raw[++i]) {
      case '"':
      case '\\':
        result += raw[i];
        break;
      case 'n':
        result += '\n';
        break;
      case 't':
        result += '\t';
        break;
      case 'x': {
        unsigned value = 0;
        const std::string_view digits = raw.substr(i + 1, 2);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
        if (error != std::errc() || end != digits.data() + 2) return ErrorHere("'\\x' needs two hexadecimal digits");
        result += static_cast<char>(value);
        i += 2;
        break;
      }
      default:
        return ErrorHere("unknown escape in the string");
    }
  }
  return result;
}

// The elements of a list up to and including the ']'; the '[' has been read.
absl::StatusOr<AttrValue> TextParser::ParseList() {
  const size_t begin = token_.offset;
  std::vector<Literal> items;
  while (!token_.Is(']')) {
    if (!items.empty()) FUSELINE_RETURN_IF_ERROR(Expect(',', "between the elements of a list"));
    if (token_.kind != TokenKind::kNumber && token_.kind != TokenKind::kBool) {
      return ErrorHere(StrCat("expected a number or a boolean in the list, got ", Got()));
    }
    FUSELINE_ASSIGN_OR_RETURN(const Literal literal, ParseLiteral());
    items.push_back(literal);
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  size_t floats = 0;
  size_t bools = 0;
  for (const Literal& item : items) {
    floats += item.kind == Literal::Kind::kFloat ? 1 : 0;
    bools += item.kind == Literal::Kind::kBool ? 1 : 0;
  }
  if (bools != 0) {
    if (bools != items.size()) return ErrorAt(begin, "the list mixes booleans and numbers");
    std::vector<bool> list;
    list.reserve(items.size());
    for (const Literal& item : items) list.push_back(item.i != 0);
    return AttrValue(std::move(list));
  }
  if (floats != 0) {
    std::vector<double> list;
    list.reserve(items.size());
    for (const Literal& item : items) list.push_back(item.AsDouble());
    return AttrValue(std::move(list));
  }
  std::vector<int64_t> list;
  list.reserve(items.size());
  for (const Literal& item : items) list.push_back(item.i);
  return AttrValue(std::move(list));
}

absl::StatusOr<AttrValue> TextParser::ParseAttrValue() {
  AttrValue value;
  switch (token_.kind) {
    case TokenKind::kNumber: {
      FUSELINE_ASSIGN_OR_RETURN(const Literal literal, ParseLiteral());
      if (literal.kind == Literal::Kind::kInt) {
        value = literal.i;
      } else {
        value = literal.f;
      }
      break;
    }
    case TokenKind::kBool:
      value = token_.text == "true";
      break;
    case TokenKind::kString: {
      FUSELINE_ASSIGN_OR_RETURN(value, Unescape());
      break;
    }
    case TokenKind::kWord: {
      const std::optional<DType> dtype = ParseDType(token_.text);
      if (!dtype.has_value()) return ErrorHere(StrCat("expected a value, got ", Got(), ", which is no dtype"));
      value = *dtype;
      break;
    }
    default:
      if (!token_.Is('[')) return ErrorHere(StrCat("expected a value, got ", Got()));
      FUSELINE_RETURN_IF_ERROR(Advance());
      return ParseList();
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  return value;
}

absl::Status TextParser::SkipScalarList() {
  FUSELINE_RETURN_IF_ERROR(Expect('[', "before the data"));
  for (bool first = true; !token_.Is(']'); first = false) {
    if (!first) FUSELINE_RETURN_IF_ERROR(Expect(',', "between elements"));
    if (token_.kind != TokenKind::kNumber && token_.kind != TokenKind::kBool) {
      return ErrorHere(StrCat("expected an element, got ", Got()));
    }
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
  return Advance();
}

// Reads the list of elements that starts at `begin` for the second time, now that the dtype is known. Elements go
// straight into bytes: as a list of literals they would take several times the memory, and would have been rounded once
// already.
absl::Status TextParser::ParseConstantData(size_t begin, Node& node) {
  const auto it = node.attrs.find("dtype");
  const DType* dtype = it == node.attrs.end() ? nullptr : std::get_if<DType>(&it->second);
  if (dtype == nullptr) return ErrorAt(begin, "data needs the attribute 'dtype'");
  std::string bytes;
  TextLexer lexer(text_);
  lexer.Seek(begin);
  FUSELINE_ASSIGN_OR_RETURN(Token token, lexer.Next());  // '['
  while (!token.Is(']')) {
    FUSELINE_ASSIGN_OR_RETURN(token, lexer.Next());
    if (token.kind != TokenKind::kNumber && token.kind != TokenKind::kBool) continue;
    const absl::Status status = AppendElement(token.text, *dtype, &bytes);
    if (!status.ok()) return At(token.offset, status);
  }
  constant_bytes_ += static_cast<int64_t>(bytes.size());
  if (constant_bytes_ > limits_.max_constant_bytes) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           StrCat("constants take more than ", limits_.max_constant_bytes, " bytes"));
  }
  node.constant_bytes = std::make_shared<const std::string>(std::move(bytes));
  return absl::OkStatus();
}

absl::Status TextParser::ParseAttrs(Node& node) {
  FUSELINE_RETURN_IF_ERROR(Expect('{', "before attributes"));
  size_t data_begin = kNoOffset;
  for (bool first = true; !token_.Is('}'); first = false) {
    if (!first) FUSELINE_RETURN_IF_ERROR(Expect(',', "between attributes"));
    const Token name = token_;
    if (name.kind != TokenKind::kWord) return ErrorHere(StrCat("expected the name of an attribute, got ", Got()));
    FUSELINE_RETURN_IF_ERROR(Advance());
    FUSELINE_RETURN_IF_ERROR(Expect('=', "after the name of an attribute"));
    const bool is_data = node.op == "constant" && name.text == "data";
    if ((is_data && data_begin != kNoOffset) || node.attrs.find(name.text) != node.attrs.end()) {
      return ErrorAt(name.offset, StrCat("attribute '", name.text, "' is given twice"));
    }
    if (is_data) {
      data_begin = token_.offset;
      FUSELINE_RETURN_IF_ERROR(SkipScalarList());
    } else {
      FUSELINE_ASSIGN_OR_RETURN(AttrValue value, ParseAttrValue());
      node.attrs.emplace(std::string(name.text), std::move(value));
    }
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  return data_begin == kNoOffset ? absl::OkStatus() : ParseConstantData(data_begin, node);
}

// %a, %b = op(operands) {attrs} : type, type
absl::Status TextParser::ParseStatement() {
  if (static_cast<int64_t>(graph_.nodes.size()) >= limits_.max_nodes) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           StrCat("the graph has more than ", limits_.max_nodes, " nodes"));
  }
  const auto node_id = static_cast<NodeId>(graph_.nodes.size());
  std::vector<Token> results;
  while (true) {
    if (token_.kind != TokenKind::kValueName) return ErrorHere(StrCat("expected a result such as '%t0', got ", Got()));
    results.push_back(token_);
    FUSELINE_RETURN_IF_ERROR(Advance());
    if (!token_.Is(',')) break;
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
  FUSELINE_RETURN_IF_ERROR(Expect('=', "after the results"));
  if (token_.kind != TokenKind::kWord) return ErrorHere(StrCat("expected an op, got ", Got()));
  Node node;
  node.op = std::string(token_.text);
  FUSELINE_RETURN_IF_ERROR(Advance());
  FUSELINE_RETURN_IF_ERROR(ParseOperands(node));
  if (token_.Is('{')) FUSELINE_RETURN_IF_ERROR(ParseAttrs(node));
  std::vector<std::optional<TensorType>> types(results.size());
  if (token_.Is(':')) {
    FUSELINE_RETURN_IF_ERROR(Advance());
    for (size_t i = 0; i < results.size(); ++i) {
      if (i > 0) FUSELINE_RETURN_IF_ERROR(Expect(',', "between the types of the results"));
      if (token_.kind == TokenKind::kWord && token_.text == "_") {
        FUSELINE_RETURN_IF_ERROR(Advance());
        continue;
      }
      const size_t offset = token_.offset;
      FUSELINE_ASSIGN_OR_RETURN(types[i], ParseType());
      if (types[i]->strides.has_value()) return ErrorAt(offset, "only the type of an input has strides");
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    Value value;
    value.producer = node_id;
    value.result_index = static_cast<int>(i);
    value.declared_type = std::move(types[i]);
    FUSELINE_ASSIGN_OR_RETURN(const ValueId id, Define(results[i], std::move(value)));
    node.results.push_back(id);
  }
  graph_.nodes.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status TextParser::ParseReturn() {
  FUSELINE_RETURN_IF_ERROR(Advance());  // "return"
  while (true) {
    GraphOutput output;
    output.name = StrCat("out", graph_.outputs.size());
    Token value = token_;
    if (value.kind == TokenKind::kWord || value.kind == TokenKind::kValueName) {
      FUSELINE_RETURN_IF_ERROR(Advance());
      if (value.kind == TokenKind::kWord && token_.Is('=')) {
        output.name = std::string(value.text);
        FUSELINE_RETURN_IF_ERROR(Advance());
        value = token_;
        if (value.kind == TokenKind::kWord || value.kind == TokenKind::kValueName) FUSELINE_RETURN_IF_ERROR(Advance());
      }
    }
    if (value.kind != TokenKind::kWord && value.kind != TokenKind::kValueName) {
      return ErrorAt(value.offset, StrCat("expected a value to return, got ", Got()));
    }
    FUSELINE_ASSIGN_OR_RETURN(output.value, Resolve(value));
    graph_.outputs.push_back(std::move(output));
    if (!token_.Is(',')) return absl::OkStatus();
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
}

absl::StatusOr<Graph> TextParser::Parse() {
  FUSELINE_RETURN_IF_ERROR(Advance());
  if (token_.kind != TokenKind::kWord || token_.text != "graph")
    return ErrorHere(StrCat("expected 'graph', got ", Got()));
  FUSELINE_RETURN_IF_ERROR(Advance());
  if (token_.kind == TokenKind::kWord) {
    graph_.name = std::string(token_.text);
    FUSELINE_RETURN_IF_ERROR(Advance());
  }
  FUSELINE_RETURN_IF_ERROR(Expect('(', "before the inputs"));
  while (!token_.Is(')')) {
    if (!graph_.inputs.empty()) FUSELINE_RETURN_IF_ERROR(Expect(',', "between inputs"));
    FUSELINE_RETURN_IF_ERROR(ParseInput());
  }
  FUSELINE_RETURN_IF_ERROR(Advance());
  FUSELINE_RETURN_IF_ERROR(Expect('{', "after the inputs"));
  while (token_.kind != TokenKind::kWord || token_.text != "return") FUSELINE_RETURN_IF_ERROR(ParseStatement());
  FUSELINE_RETURN_IF_ERROR(ParseReturn());
  FUSELINE_RETURN_IF_ERROR(Expect('}', "after the return"));
  if (token_.kind != TokenKind::kEnd) return ErrorHere(StrCat("expected the end of the text, got ", Got()));
  return std::move(graph_);
}

}  // namespace

absl::StatusOr<Graph> ParseGraphText(std::string_view text, const GraphLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_text_bytes) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           StrCat("the text has ", text.size(), " bytes, over the limit of ", limits.max_text_bytes));
  }
  return TextParser(text, limits).Parse();
}

absl::StatusOr<Graph> ParseGraph(std::string_view text, const GraphLimits& limits) {
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(text, limits));
  FUSELINE_RETURN_IF_ERROR(VerifyGraph(graph, limits));
  return graph;
}

}  // namespace fuseline
