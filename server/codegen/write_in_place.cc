#include "server/codegen/write_in_place.h"

#include <algorithm>
#include <vector>

namespace fuseline::codegen {
namespace {

// The parameters that are read other than plainly at `offset`.
std::vector<bool> ReadElsewhere(const KernelBody& body, const IndexExpr& offset) {
  std::vector<bool> elsewhere(body.params.size(), false);
  for (const BodyInstr& instr : body.instrs) {
    if (instr.param < 0) continue;
    const bool is_plain = instr.kind == BodyInstr::Kind::kLoad && instr.scalar.args[0] < 0 && instr.offset == offset;
    if (!is_plain) elsewhere[static_cast<size_t>(instr.param)] = true;
  }
  return elsewhere;
}

// Reads parameter `from` through `to`, and drops it.
void Merge(KernelBody& body, int32_t from, int32_t to) {
  const auto renumbered = [&](int32_t param) {
    if (param == from) param = to;
    return param > from ? param - 1 : param;
  };
  for (BodyInstr& instr : body.instrs) instr.param = renumbered(instr.param);
  for (BodyStore& store : body.stores) store.param = renumbered(store.param);
  body.params.erase(body.params.begin() + from);
}

}  // namespace

std::optional<TakenOver> WriteInPlace(ScheduledKernel& kernel, absl::FunctionRef<bool(TensorId)> dies_here,
                                      absl::FunctionRef<bool(TensorId)> may_move) {
  KernelBody& body = kernel.body;
  if (kernel.kind != ScheduledKernel::Kind::kPointwise || body.has_reduced() || !body.reductions.empty() ||
      body.bound.has_value() || body.stores.size() != 1) {
    return std::nullopt;
  }
  const BodyStore& store = body.stores[0];
  const BodyParam result = body.params[static_cast<size_t>(store.param)];
  // Every element is written, once.
  if (result.tensor < 0 || !may_move(result.tensor) || result.element_count != body.row_count()) return std::nullopt;
  const std::vector<bool> elsewhere = ReadElsewhere(body, store.offset);
  if (elsewhere[static_cast<size_t>(store.param)]) return std::nullopt;
  for (size_t p = 0; p < body.params.size(); ++p) {
    const BodyParam& operand = body.params[p];
    if (operand.written || operand.tensor < 0 || elsewhere[p] || operand.dtype != result.dtype ||
        operand.element_count != result.element_count || !dies_here(operand.tensor)) {
      continue;
    }
    const TakenOver taken = {operand.tensor, result.tensor};
    Merge(body, static_cast<int32_t>(p), store.param);
    return taken;
  }
  return std::nullopt;
}

}  // namespace fuseline::codegen
