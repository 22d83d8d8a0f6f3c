#include "server/fuser/contraction_sides.h"

#include <algorithm>
#include <vector>

namespace fuseline::fuser {
namespace {

using lowering::IndexBound;
using lowering::IndexExpr;
using lowering::LoopInput;
using lowering::LoopNode;

constexpr size_t kMaxLoops = 64;   // bits of a mask
constexpr int64_t kTileEdge = 64;  // of most tiles, on every target
constexpr int64_t kLeastSide = 4;  // smaller products have no tiles

uint64_t LoopsOf(const LoopNode& node, const IndexExpr& e) {
  uint64_t loops = 0;
  for (size_t v = 0; v < node.domain.size(); ++v) {
    if (e.Uses(static_cast<int32_t>(v))) loops |= uint64_t{1} << v;
  }
  return loops;
}

uint64_t LoopsOf(const LoopNode& node, const LoopInput& in) {
  uint64_t loops = LoopsOf(node, in.value);
  for (const IndexExpr& e : in.index) loops |= LoopsOf(node, e);
  for (const IndexBound& b : in.guards) loops |= LoopsOf(node, b.value);
  return loops;
}

}  // namespace

double ContractionSides::computed_share() const {
  if (std::min(m, n) < kLeastSide) return 1;
  const auto share = [](int64_t side) {
    return static_cast<double>((side + kTileEdge - 1) / kTileEdge) / static_cast<double>(side);
  };
  return std::max(share(m), share(n));
}

ContractionSides SidesOf(const LoopNode& node) {
  ContractionSides sides;
  if (!node.is_reduction() || node.reduction != ReductionKind::kSum || node.domain.size() > kMaxLoops) return sides;
  const ScalarInstr& product = node.body[static_cast<size_t>(node.result)];
  if (product.op != ScalarOp::kMul) return sides;
  std::vector<uint64_t> loops(node.body.size(), 0);
  for (size_t i = 0; i < loops.size(); ++i) {
    const ScalarInstr& instr = node.body[i];
    if (instr.op == ScalarOp::kInput) loops[i] = LoopsOf(node, node.inputs[static_cast<size_t>(instr.index)]);
    for (int32_t a : instr.args) {
      if (a >= 0) loops[i] |= loops[static_cast<size_t>(a)];
    }
  }
  const uint64_t a = loops[static_cast<size_t>(product.args[0])];
  const uint64_t b = loops[static_cast<size_t>(product.args[1])];
  for (size_t v = 0; v < node.domain.size(); ++v) {
    const uint64_t bit = uint64_t{1} << v;
    if (node.reduced[v] || (a & bit) == (b & bit)) continue;
    ((a & bit) != 0 ? sides.m : sides.n) *= std::max<int64_t>(node.domain[v], 1);
  }
  return sides;
}

}  // namespace fuseline::fuser
