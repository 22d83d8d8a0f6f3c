// Splits the text form of a graph into tokens.
// Ownership: tokens point into the text, which must outlive them. Thread-safety: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fuseline {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,       // add, x, f32
  kValueName,  // %t0; the text is without the '%'
  kNumber,     // -1, 2.5e-3, inf, -inf, nan, nan(0x…)
  kBool,       // true, false
  kString,     // the text is between the quotes, escapes as written
  kPunct,      // one of ( ) { } [ ] , = :
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t offset = 0;  // of the first character, for messages and for Seek
  bool Is(char punct) const { return kind == TokenKind::kPunct && text[0] == punct; }
};

// INVALID_ARGUMENT (kGraphSyntax), "line L, column C: message". Linear in `offset`.
absl::Status SyntaxError(std::string_view text, size_t offset, std::string_view message);

class TextLexer {
 public:
  explicit TextLexer(std::string_view text) : text_(text) {}

  // The next token; comments and white space are skipped. Errors: SyntaxError.
  absl::StatusOr<Token> Next();
  // Goes on from the token that started at `offset`.
  void Seek(size_t offset) { position_ = offset; }

 private:
  absl::StatusOr<Token> NextNumber();
  absl::StatusOr<Token> NextString();
  absl::StatusOr<Token> Finish(TokenKind kind, size_t begin, size_t end);
  // The end of the run of name characters which starts at `begin`.
  size_t NameEnd(size_t begin) const;
  // The character at `position`; '\0' past the end.
  char At(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace fuseline
