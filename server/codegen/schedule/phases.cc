#include "server/codegen/schedule/phases.h"

#include <algorithm>

namespace fuseline::codegen {
namespace {

// Marks the full instructions that pass `p` must compute, given what is kept already.
std::vector<bool> NeededInPass(const KernelBody& body, int32_t pass, const std::vector<bool>& kept_before) {
  std::vector<bool> needed(body.instrs.size(), false);
  const auto want = [&](int32_t id) {
    if (id >= 0 && body.instrs[static_cast<size_t>(id)].full) needed[static_cast<size_t>(id)] = true;
  };
  for (const BodyReduction& r : body.reductions) {
    if (r.pass != pass) continue;
    want(r.value);
    want(r.arg);
  }
  for (const BodyStore& s : body.stores) {
    if (s.full && s.pass == pass) ForEachUse(s, want);
  }
  for (size_t i = body.instrs.size(); i-- > 0;) {
    if (!needed[i]) continue;
    if (kept_before[i]) continue;  // taken, not computed: its operands are not needed
    ForEachUse(body.instrs[i], want);
  }
  return needed;
}

}  // namespace

std::vector<int32_t> CountPasses(const KernelBody& body) {
  std::vector<int32_t> count(body.instrs.size(), 0);
  const std::vector<bool> none(body.instrs.size(), false);
  for (int32_t p = 0; p < body.passes; ++p) {
    const std::vector<bool> needed = NeededInPass(body, p, none);
    for (size_t i = 0; i < needed.size(); ++i) count[i] += needed[i];
  }
  return count;
}

PhasePlan BuildPhases(const KernelBody& body, const std::vector<bool>& may_keep) {
  PhasePlan plan;
  std::vector<bool> available(body.instrs.size(), false);  // computed by an earlier pass and allowed to be kept
  std::vector<bool> used_later(body.instrs.size(), false);
  for (int32_t p = 0; p <= body.passes; ++p) {
    Phase row;
    row.row = true;
    row.pass = p;
    for (size_t i = 0; i < body.instrs.size(); ++i) {
      if (!body.instrs[i].full && body.instrs[i].pass == p) row.instrs.push_back(static_cast<int32_t>(i));
    }
    for (size_t s = 0; s < body.stores.size(); ++s) {
      if (!body.stores[s].full && body.stores[s].pass == p) row.stores.push_back(static_cast<int32_t>(s));
    }
    plan.phases.push_back(std::move(row));
    if (p == body.passes) break;
    Phase pass;
    pass.pass = p;
    const std::vector<bool> needed = NeededInPass(body, p, available);
    for (size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i]) continue;
      if (available[i]) {
        used_later[i] = true;
      } else {
        pass.instrs.push_back(static_cast<int32_t>(i));
      }
    }
    for (int32_t i : pass.instrs) available[static_cast<size_t>(i)] = may_keep[static_cast<size_t>(i)];
    for (size_t r = 0; r < body.reductions.size(); ++r) {
      if (body.reductions[r].pass == p) pass.reductions.push_back(static_cast<int32_t>(r));
    }
    for (size_t s = 0; s < body.stores.size(); ++s) {
      if (body.stores[s].full && body.stores[s].pass == p) pass.stores.push_back(static_cast<int32_t>(s));
    }
    plan.phases.push_back(std::move(pass));
  }
  for (size_t i = 0; i < used_later.size(); ++i) {
    if (used_later[i]) plan.kept.push_back(static_cast<int32_t>(i));
  }
  return plan;
}

}  // namespace fuseline::codegen
