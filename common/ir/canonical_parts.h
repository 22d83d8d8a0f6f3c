// The canonical bytes of a graph in two parts, to say of two graphs how they differ: what goes in, and what is done
// with it. Pipeline: CanonicalBytes -> SplitCanonicalBytes -> keys of neighbouring entries, `explain --why-miss`.
// Thread-safety: a pure function; linear in the inputs. Tested by tests/unit/common/canonical_parts_test.cc
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/ir/types.h"

namespace fuseline {

// Views of the bytes that were split.
struct CanonicalParts {
  std::string_view inputs;              // their types
  std::string_view nodes;               // ops, attributes, constants and outputs, and all that follows
  std::vector<TensorType> input_types;  // `inputs`, decoded
};

// Nothing where the bytes are not those of CanonicalBytes in this version.
std::optional<CanonicalParts> SplitCanonicalBytes(std::string_view bytes);

}  // namespace fuseline
