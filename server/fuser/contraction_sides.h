// Which loop nests are contractions: sums of products of two values that each have loops of their own, so that every
// value is used many times. They are computed in tiles, and share their loops with no other reduction.
// Pipeline: LoopNode -> SidesOf -> Fuse. Units: elements. Thread-safety: pure functions. Linear in the body, for each
// loop. Tested by tests/unit/fuser/contraction_sides_test.cc
#pragma once

#include <cstdint>

#include "server/lowering/loop_program.h"

namespace fuseline::fuser {

struct ContractionSides {
  int64_t m = 1;  // steps of the kept loops that the first factor alone uses
  int64_t n = 1;  // and the second
  bool is_contraction() const { return m > 1 && n > 1; }
  // How many of the loops' steps compute a factor anew, at most: all of them, or a tile's edge where there are tiles.
  double computed_share() const;
};

ContractionSides SidesOf(const lowering::LoopNode& node);

}  // namespace fuseline::fuser
