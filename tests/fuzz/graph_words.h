// The words that graphs are written with, from the op table: what fuzzers put where a name stands.
// Thread-safety: a pure function.
#pragma once

#include <string>
#include <vector>

namespace fuseline::fuzz {

// Ops, attributes, dtypes and the strings that attributes take.
std::vector<std::string> GraphWords();

}  // namespace fuseline::fuzz
