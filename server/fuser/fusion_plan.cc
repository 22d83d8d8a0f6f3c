// Tested by tests/unit/fuser/fusion_plan_test.cc
#include "server/fuser/fusion_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/error.h"

namespace fuseline::fuser {

bool FusionGroup::is_reduction() const {
  return ordered < 0 && std::find(reduced.begin(), reduced.end(), true) != reduced.end();
}

int64_t FusionGroup::row_count() const {
  int64_t n = 1;
  for (size_t i = 0; i < domain.size(); ++i) n *= reduced[i] ? 1 : domain[i];
  return n;
}

int64_t FusionGroup::reduced_count() const {
  int64_t n = 1;
  for (size_t i = 0; i < domain.size(); ++i) n *= reduced[i] ? domain[i] : 1;
  return n;
}

absl::Status VerifyFusionPlan(const LoopProgram& program, const FusionPlan& plan) {
  std::vector<bool> in_memory(program.tensors.size(), false);
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    in_memory[t] = program.tensors[t].kind != lowering::LoopTensor::Kind::kComputed;
  }
  const auto broken = [&](const char* constraint, TensorId t) {
    return Internal(absl::StrCat("fusion plan (", constraint, "): tensor '", program.tensor(t).name, "'"));
  };
  for (const FusionGroup& g : plan.groups) {
    for (TensorId t : g.loads) {
      if (!in_memory[static_cast<size_t>(t)]) return broken("F1", t);
    }
    const int64_t rows = g.row_count();
    const int64_t reduced = g.reduced_count();
    for (LoopNodeId id : g.nodes) {
      const lowering::LoopNode& n = program.node(id);
      if (!n.is_reduction()) continue;
      if (ElementCount(n.kept_shape()) != rows || ElementCount(n.domain) != rows * reduced)
        return broken("F4", n.tensor);
    }
    const std::set<LoopNodeId> here(g.nodes.begin(), g.nodes.end());
    const std::set<TensorId> loads(g.loads.begin(), g.loads.end());
    const auto is_here = [&](TensorId t) {
      return program.tensor(t).kind == lowering::LoopTensor::Kind::kComputed &&
             here.count(program.tensor(t).producer) != 0;
    };
    for (LoopNodeId id : g.nodes) {
      for (const lowering::LoopInput& in : program.node(id).inputs) {
        if (!in.reads_tensor() || is_here(in.tensor) || loads.count(in.tensor) != 0) continue;
        return broken("F2", in.tensor);
      }
    }
    for (TensorId t : g.stored) {
      if (in_memory[static_cast<size_t>(t)] || !is_here(t)) return broken("F2", t);
      const int64_t count = program.tensor(t).element_count();
      const bool scatters = g.ordered >= 0 && program.node(g.ordered).into >= 0;
      if (!scatters && count != rows && count != rows * reduced) return broken("F3", t);
      if (scatters && !in_memory[static_cast<size_t>(program.node(g.ordered).into)]) return broken("F3", t);
    }
    for (TensorId t : g.stored) in_memory[static_cast<size_t>(t)] = true;
  }
  for (TensorId t : program.outputs) {
    if (!in_memory[static_cast<size_t>(t)]) return broken("F2", t);
  }
  return absl::OkStatus();
}

std::string PrintFusionPlan(const LoopProgram& program, const FusionPlan& plan) {
  std::string out;
  const auto names = [&](const std::vector<TensorId>& ids) {
    return absl::StrJoin(ids, ", ", [&](std::string* s, TensorId t) { s->append(program.tensor(t).name); });
  };
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const FusionGroup& g = plan.groups[i];
    std::vector<std::string> dims;
    for (size_t d = 0; d < g.domain.size(); ++d) dims.push_back(absl::StrCat(g.reduced[d] ? "r" : "", g.domain[d]));
    absl::StrAppend(&out, "group ", i, ": ",
                    g.ordered >= 0     ? "ordered"
                    : g.is_reduction() ? (g.split ? "split reduction" : "reduction")
                                       : "pointwise",
                    " over [", absl::StrJoin(dims, ", "), "]\n  reads ", names(g.loads), "\n");
    for (LoopNodeId id : g.nodes) {
      absl::StrAppend(&out, "  ", program.tensor(program.node(id).tensor).name, " = ", program.node(id).label, "\n");
    }
    absl::StrAppend(&out, "  writes ", names(g.stored), "\n");
  }
  for (const FusionRefusalNote& r : plan.refusals) {
    absl::StrAppend(&out, "not fused: ", program.tensor(r.producer).name, " -> ", program.tensor(r.consumer).name, ": ",
                    r.reason, "\n");
  }
  return out;
}

}  // namespace fuseline::fuser
