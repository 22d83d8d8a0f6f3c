#include "tests/testing/random_graph.h"

#include <algorithm>
#include <string_view>

#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

// How often an op of each kind is drawn, in percent.
struct Share {
  OpKind kind;
  int percent;
};
constexpr Share kShares[] = {{OpKind::kPointwise, 46}, {OpKind::kView, 13},       {OpKind::kReduction, 9},
                             {OpKind::kLayout, 6},     {OpKind::kIndexing, 6},    {OpKind::kComposite, 5},
                             {OpKind::kWindow, 3},     {OpKind::kContraction, 5}, {OpKind::kOrdered, 3},
                             {OpKind::kCreation, 4}};

// Ops that graphs are full of, drawn more often than an equal share among a hundred pointwise ops gives.
const std::vector<std::string_view> kFrequent = {"add",  "mul",     "sub", "div",  "where",
                                                 "cast", "maximum", "exp", "relu", "neg"};

const OpDef& DrawOp(RandomSource& random, const std::vector<const OpDef*>& ops) {
  int64_t ticket = random.Below(100);
  for (const Share& share : kShares) {
    ticket -= share.percent;
    if (ticket >= 0) continue;
    if (share.kind == OpKind::kPointwise && random.Chance(45)) break;
    std::vector<const OpDef*> of_kind;
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(of_kind),
                 [&](const OpDef* op) { return op->kind == share.kind; });
    if (of_kind.empty()) break;
    return *random.Pick(of_kind);
  }
  return *FindOp(random.Pick(kFrequent));
}

}  // namespace

std::vector<const OpDef*> RandomGraphOps() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : AllOps()) {
    const std::string_view name = op->name;
    if (name != "widen" && name != "narrow" && name != "philox") ops.push_back(op);
  }
  return ops;
}

absl::StatusOr<RandomGraph> MakeRandomGraph(uint64_t seed, const RandomGraphOptions& options) {
  GraphSampler sampler(seed, options.max_elements, options.choices);
  const std::vector<const OpDef*> ops = RandomGraphOps();
  // Mostly small graphs: they compile fast, and a failure is read fast.
  RandomSource& random = sampler.random();
  const bool asks_for_large = options.max_ops > RandomGraphOptions().max_ops;
  const int64_t most = asks_for_large      ? options.max_ops
                       : random.Chance(60) ? 10
                       : random.Chance(70) ? 22
                                           : options.max_ops;
  const int64_t count = random.Between(1, std::min<int64_t>(most, options.max_ops));
  const int64_t turn = random.Below(count);
  for (int64_t k = 0; k < count && sampler.op_count() < options.max_ops; ++k) {
    const OpDef& def = k == turn ? *ops[seed % ops.size()] : DrawOp(random, ops);
    FUSELINE_RETURN_IF_ERROR(Wrap(sampler.AddOp(def), StrCat("seed ", seed, ", op '", def.name, "'")));
  }
  RandomGraph result;
  result.seed = seed;
  FUSELINE_ASSIGN_OR_RETURN(result.graph, sampler.Finish());
  result.inputs = std::move(sampler.inputs());
  FUSELINE_RETURN_IF_ERROR(Wrap(VerifyGraph(result.graph), StrCat("seed ", seed)));
  return result;
}

}  // namespace fuseline::testing
