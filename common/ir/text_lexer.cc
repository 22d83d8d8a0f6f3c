// Tested by tests/unit/common/text_form_test.cc
#include "common/ir/text_lexer.h"

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"
#include "common/ir/value_names.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

absl::Status SyntaxError(std::string_view text, size_t offset, std::string_view message) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return InvalidArgument(ErrorReason::kGraphSyntax, "", StrCat("line ", line, ", column ", column, ": ", message));
}

size_t TextLexer::NameEnd(size_t begin) const {
  size_t end = begin;
  while (end < text_.size() && IsNameChar(text_[end])) ++end;
  return end;
}

absl::StatusOr<Token> TextLexer::Finish(TokenKind kind, size_t begin, size_t end) {
  position_ = end;
  return Token{kind, text_.substr(begin, end - begin), begin};
}

absl::StatusOr<Token> TextLexer::Next() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++position_;
    } else {
      break;
    }
  }
  const size_t begin = position_;
  if (begin == text_.size()) return Token{TokenKind::kEnd, {}, begin};
  const char c = text_[begin];
  if (std::string_view("(){}[],=:").find(c) != std::string_view::npos)
    return Finish(TokenKind::kPunct, begin, begin + 1);
  if (IsDigit(c) || c == '-') return NextNumber();
  if (c == '"') return NextString();
  if (c == '%') {
    const size_t end = NameEnd(begin + 1);
    if (!IsValidName(text_.substr(begin + 1, end - begin - 1))) return SyntaxError(text_, begin, "'%' without a name");
    Token token{TokenKind::kValueName, text_.substr(begin + 1, end - begin - 1), begin};
    position_ = end;
    return token;
  }
  if (IsNameStart(c)) {
    size_t end = NameEnd(begin);
    const std::string_view word = text_.substr(begin, end - begin);
    if (word == "true" || word == "false") return Finish(TokenKind::kBool, begin, end);
    if (word == "inf") return Finish(TokenKind::kNumber, begin, end);
    if (word == "nan") {
      if (text_.substr(end, 3) == "(0x") {
        end += 3;
        while (IsHexDigit(At(end))) ++end;
        if (At(end) != ')') return SyntaxError(text_, begin, "malformed nan");
        ++end;
      }
      return Finish(TokenKind::kNumber, begin, end);
    }
    return Finish(TokenKind::kWord, begin, end);
  }
  return SyntaxError(text_, begin, StrCat("unexpected character '", absl::CHexEscape(std::string(1, c)), "'"));
}

absl::StatusOr<Token> TextLexer::NextNumber() {
  const size_t begin = position_;
  size_t end = begin + (text_[begin] == '-' ? 1 : 0);
  if (IsNameStart(At(end))) {
    const size_t word_end = NameEnd(end);
    if (text_.substr(end, word_end - end) != "inf") return SyntaxError(text_, begin, "expected a number after '-'");
    return Finish(TokenKind::kNumber, begin, word_end);
  }
  if (!IsDigit(At(end))) return SyntaxError(text_, begin, "expected a number after '-'");
  while (IsDigit(At(end))) ++end;
  if (At(end) == '.') {
    ++end;
    while (IsDigit(At(end))) ++end;
  }
  if (At(end) == 'e' || At(end) == 'E') {
    ++end;
    if (At(end) == '+' || At(end) == '-') ++end;
    if (!IsDigit(At(end))) return SyntaxError(text_, begin, "the number has an empty exponent");
    while (IsDigit(At(end))) ++end;
  }
  if (IsNameChar(At(end))) return SyntaxError(text_, begin, "malformed number");
  return Finish(TokenKind::kNumber, begin, end);
}

absl::StatusOr<Token> TextLexer::NextString() {
  const size_t begin = position_;
  size_t end = begin + 1;
  while (true) {
    const char c = At(end);
    if (end >= text_.size() || c == '\n') return SyntaxError(text_, begin, "the string has no end");
    if (c == '"') break;
    end += c == '\\' ? 2 : 1;
  }
  position_ = end + 1;
  return Token{TokenKind::kString, text_.substr(begin + 1, end - begin - 1), begin};
}

}  // namespace fuseline
