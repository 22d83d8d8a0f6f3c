// One element of a constant, between its text and its bytes (little-endian, in the storage dtype). Exact both ways:
// text is rounded once, to nearest even; bytes are printed as the shortest text that reads back equal. Thread-safety:
// pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/ir/types.h"

namespace fuseline {

// Appends the element that `text` (a number, "true" or "false") spells. A finite number beyond an f8's largest value
// saturates; beyond a wider float's it is infinite. Errors: INVALID_ARGUMENT where the dtype cannot hold it.
absl::Status AppendElement(std::string_view text, DType dtype, std::string* bytes);

// Appends the text of the element whose DTypeSizeBytes(dtype) bytes start at `data`.
void AppendElementText(DType dtype, const char* data, std::string* text);

}  // namespace fuseline
