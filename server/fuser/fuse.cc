#include "server/fuser/fuse.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/fuser/contraction_sides.h"

namespace fuseline::fuser {
namespace {

using lowering::Flatten;
using lowering::IdentityIndex;
using lowering::IndexExpr;
using lowering::LoopInput;
using lowering::LoopNode;
using lowering::LoopTensor;
using lowering::Unflatten;

// Longer kernels gain nothing (nothing more is shared) and their compile time grows faster than their length.
constexpr size_t kMaxNodesInGroup = 256;
// Reductions of one kernel that wait for each other: each is one more pass over the rows and one more copy of the loops
// in the source, so that the compiler's time grows much faster than what a kernel more costs.
constexpr int32_t kMaxDependentReductions = 8;
// Pointer arguments of one kernel; also bounds the registers that addresses take.
constexpr size_t kMaxTensorsOfGroup = 48;
// How many of the newest groups that read the same tensor are tried as siblings.
constexpr size_t kMaxSiblingTries = 4;
// Nodes that may be recomputed in a consumer's kernel to save storing a value.
constexpr size_t kMaxRecomputedNodes = 32;
constexpr size_t kMaxRefusals = 1000;
// Operations (counted with repetition) that may be computed a second time at other elements within a kernel.
constexpr int64_t kMaxRecomputedCost = 64;
// Accesses through divisions that may be composed, one behind the other.
constexpr int32_t kMaxComposedDivisions = 2;
// The same for values that are recomputed in a consumer's kernel, which has compositions of its own; and how often such
// values may be read at two places (each time doubles what is computed).
constexpr int32_t kMaxRecomputedDivisions = 1;
constexpr int32_t kMaxRecomputedDoublings = 2;

// A domain up to what matters for sharing loops: dims of size 1 dropped, neighbours of the same kind merged.
struct RowShape {
  std::vector<std::pair<int64_t, bool>> runs;  // extent, reduced
  friend bool operator==(const RowShape&, const RowShape&) = default;
};
RowShape CollapseRows(const Shape& domain, const std::vector<bool>& reduced) {
  RowShape s;
  for (size_t i = 0; i < domain.size(); ++i) {
    if (domain[i] == 1) continue;
    const bool r = i < reduced.size() && reduced[i];
    if (!s.runs.empty() && s.runs.back().second == r) {
      s.runs.back().first *= domain[i];
    } else {
      s.runs.emplace_back(domain[i], r);
    }
  }
  return s;
}

// Whether `n` reads the tensor of `in` at other elements too (each such pair counts twice).
bool ReadElsewhereToo(const LoopNode& n, const LoopInput& in) {
  return std::any_of(n.inputs.begin(), n.inputs.end(),
                     [&](const LoopInput& other) { return other.tensor == in.tensor && !(other.index == in.index); });
}

// Some dim's index divides or takes a remainder.
bool HasDivision(const LoopInput& in) {
  return std::any_of(in.index.begin(), in.index.end(), [](const IndexExpr& e) {
    return std::any_of(e.terms().begin(), e.terms().end(),
                       [](const IndexExpr::Term& t) { return t.kind != IndexExpr::Term::Kind::kVar; });
  });
}

struct OpenGroup {
  int64_t order = 0;  // groups run in ascending order
  Shape domain;
  std::vector<bool> reduced;
  bool is_reduction = false;
  bool is_contraction = false;  // its one reduction goes by tiles
  bool split = false;
  LoopNodeId ordered = -1;  // closed: has a kernel of its own
  int64_t rows = 1;
  int64_t count = 1;
  std::vector<LoopNodeId> nodes;
  absl::flat_hash_set<TensorId> external;  // tensors read from outside
  int64_t open_tensors = 0;                // members that something outside still needs, as far as is known
};

class Fuser {
 public:
  Fuser(const LoopProgram& program, const FuseOptions& options)
      : program_(program),
        options_(options),
        group_of_(program.nodes.size(), -1),
        reductions_before_(program.nodes.size(), 0),
        outside_uses_(program.tensors.size(), 0),
        private_cost_(program.nodes.size(), 0),
        divisions_(program.nodes.size(), 0) {
    for (const LoopNode& n : program.nodes) {
      for (const LoopInput& in : n.inputs) {
        if (in.reads_tensor()) ++outside_uses_[static_cast<size_t>(in.tensor)];
      }
      if (n.into >= 0) ++outside_uses_[static_cast<size_t>(n.into)];
    }
    for (TensorId t : program.outputs) ++outside_uses_[static_cast<size_t>(t)];
  }

  absl::StatusOr<FusionPlan> Run() {
    for (size_t v = 0; v < program_.nodes.size(); ++v) Place(static_cast<LoopNodeId>(v));
    FusionPlan plan;
    plan.refusals = std::move(refusals_);
    std::sort(groups_.begin(), groups_.end(), [](const OpenGroup& a, const OpenGroup& b) { return a.order < b.order; });
    for (OpenGroup& g : groups_) {
      if (g.nodes.empty()) continue;  // absorbed by another
      FusionGroup out;
      out.domain = std::move(g.domain);
      out.reduced = std::move(g.reduced);
      out.nodes = std::move(g.nodes);
      out.split = g.split;
      out.ordered = g.ordered;
      plan.groups.push_back(std::move(out));
    }
    return plan;
  }

 private:
  const LoopNode& node(LoopNodeId id) const { return program_.node(id); }
  const LoopTensor& tensor(TensorId id) const { return program_.tensor(id); }

  int32_t GroupOfTensor(TensorId t) const {
    if (t < 0 || tensor(t).kind != LoopTensor::Kind::kComputed) return -1;
    return group_of_[static_cast<size_t>(tensor(t).producer)];
  }

  void Place(LoopNodeId v) {
    int32_t newest = -1;
    TensorId newest_tensor = -1;
    for (const LoopInput& in : node(v).inputs) {
      const int32_t g = GroupOfTensor(in.tensor);
      if (g >= 0 && Order(g) > Order(newest)) {
        newest = g;
        newest_tensor = in.tensor;
      }
    }
    if (node(v).is_ordered()) {
      const int32_t into = GroupOfTensor(node(v).into);
      StartGroup(v, Order(into) > Order(newest) ? into : newest);
      groups_.back().ordered = v;
      return;
    }
    if (options_.fuse) {
      std::string reason;
      if (newest >= 0) {
        if (JoinReductionBefore(v, newest)) return;
        if (Join(v, newest, reason)) return AbsorbOperands(v, newest);
        if (refusals_.size() < kMaxRefusals) refusals_.push_back({newest_tensor, node(v).tensor, reason});
      }
      for (int32_t g : Siblings(v, newest)) {
        if (Join(v, g, reason)) return AbsorbOperands(v, g);
      }
    }
    StartGroup(v, newest);
  }

  // Groups run in this order; -1, no group, before all.
  int64_t Order(int32_t g) const { return g < 0 ? INT64_MIN : groups_[static_cast<size_t>(g)].order; }

  // Where v reads a reduction's kernel and a newer pointwise one of inputs alone, the latter can run first, and v joins
  // the reduction; what it reads of the other is loaded, or computed again where that is cheaper.
  bool JoinReductionBefore(LoopNodeId v, int32_t newest) {
    OpenGroup& first = groups_[static_cast<size_t>(newest)];
    if (first.is_reduction || first.ordered >= 0) return false;
    int32_t before = -1;
    for (const LoopInput& in : node(v).inputs) {
      const int32_t g = GroupOfTensor(in.tensor);
      if (g >= 0 && g != newest && Order(g) > Order(before)) before = g;
    }
    if (before < 0 || !groups_[static_cast<size_t>(before)].is_reduction) return false;
    for (const TensorId t : first.external) {
      if (GroupOfTensor(t) >= 0) return false;
    }
    std::string reason;
    if (!Join(v, before, reason)) return false;
    first.order = --first_order_;
    AbsorbOperands(v, before);
    return true;
  }

  // Earlier pointwise groups that v, a new member of g, alone reads, each element at its own: their nodes move to g, so
  // that what v reads of them is never stored.
  void AbsorbOperands(LoopNodeId v, int32_t g) {
    const LoopNode& n = node(v);
    for (const LoopInput& in : n.inputs) {
      const int32_t from = GroupOfTensor(in.tensor);
      if (from >= 0 && from != g && CanAbsorb(n, g, from)) Absorb(v, g, from);
    }
  }

  bool CanAbsorb(const LoopNode& n, int32_t g, int32_t from) const {
    const OpenGroup& group = groups_[static_cast<size_t>(g)];
    const OpenGroup& other = groups_[static_cast<size_t>(from)];
    if (other.is_reduction || other.ordered >= 0 || group.is_contraction || Order(from) > Order(g)) return false;
    if (other.count != group.count || ElementCount(n.domain) != group.count) return false;
    if (group.nodes.size() + other.nodes.size() > kMaxNodesInGroup) return false;
    if (group.external.size() + other.external.size() + static_cast<size_t>(std::max<int64_t>(group.open_tensors, 0)) >
        kMaxTensorsOfGroup) {
      return false;
    }
    absl::flat_hash_map<TensorId, int64_t> uses;
    for (const LoopInput& in : n.inputs) {
      if (GroupOfTensor(in.tensor) != from) continue;
      const LoopTensor& t = tensor(in.tensor);
      if (t.element_count() != group.count || NodeTooComplex(in)) return false;
      if (Flatten(in.index, t.shape) != Flatten(IdentityIndex(n.domain), n.domain)) return false;
      ++uses[in.tensor];
    }
    int64_t closed = 0;
    for (const auto& [t, count] : uses) closed += outside_uses_[static_cast<size_t>(t)] == count;
    return closed == other.open_tensors && closed == static_cast<int64_t>(uses.size());
  }

  void Absorb(LoopNodeId v, int32_t g, int32_t from) {
    OpenGroup& group = groups_[static_cast<size_t>(g)];
    OpenGroup& other = groups_[static_cast<size_t>(from)];
    int64_t& cost = private_cost_[static_cast<size_t>(v)];
    int32_t& divisions = divisions_[static_cast<size_t>(v)];
    for (const LoopInput& in : node(v).inputs) {
      if (GroupOfTensor(in.tensor) != from) continue;
      const auto u = static_cast<size_t>(tensor(in.tensor).producer);
      outside_uses_[static_cast<size_t>(in.tensor)] = 0;
      group.external.erase(in.tensor);
      cost = std::min<int64_t>(cost + private_cost_[u], 1 << 20);
      divisions = std::max(divisions, divisions_[u] + (HasDivision(in) ? 1 : 0));
    }
    for (const LoopNodeId u : other.nodes) group_of_[static_cast<size_t>(u)] = g;
    group.nodes.insert(group.nodes.end(), other.nodes.begin(), other.nodes.end());
    for (const TensorId t : other.external) {
      group.external.insert(t);
      std::vector<int32_t>& readers = readers_[t];
      if (readers.empty() || readers.back() != g) readers.push_back(g);
    }
    other.nodes.clear();
    other.external.clear();
    other.open_tensors = 0;
  }

  // Later groups than `newest` that read a tensor which v reads too, newest first.
  std::vector<int32_t> Siblings(LoopNodeId v, int32_t newest) const {
    std::vector<int32_t> out;
    for (const LoopInput& in : node(v).inputs) {
      const auto it = readers_.find(in.tensor);
      if (!in.reads_tensor() || it == readers_.end()) continue;
      const std::vector<int32_t>& readers = it->second;
      const size_t oldest = readers.size() - std::min(readers.size(), 2 * kMaxSiblingTries);
      for (size_t k = readers.size(); k-- > oldest && out.size() < kMaxSiblingTries;) {
        const int32_t g = readers[k];
        if (groups_[static_cast<size_t>(g)].nodes.empty()) continue;
        if (Order(g) > Order(newest) && std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
      }
    }
    return out;
  }

  // Whether the reduction is computed in tiles, and so keeps its loops for itself. Under numerics = eager its order
  // says.
  static bool GoesByTiles(const LoopNode& n) {
    if (n.accumulation != lowering::Accumulation::kFree) return n.accumulation == lowering::Accumulation::kChained;
    return SidesOf(n).is_contraction();
  }

  // A new group runs after those that it reads from. What is made of inputs alone comes before everything, and so does
  // not keep its readers from joining the groups of their other operands.
  void StartGroup(LoopNodeId v, int32_t after) {
    OpenGroup g;
    SetDomain(g, node(v));
    g.order = after < 0 ? --first_order_ : ++last_order_;
    groups_.push_back(std::move(g));
    AddMember(v, static_cast<int32_t>(groups_.size() - 1));
  }

  void SetDomain(OpenGroup& g, const LoopNode& n) const {
    g.domain = n.domain;
    g.reduced = n.is_reduction() || n.is_ordered() ? n.reduced : std::vector<bool>(n.domain.size(), false);
    g.is_reduction = n.is_reduction();
    g.rows = n.is_reduction() ? ElementCount(n.kept_shape()) : ElementCount(n.domain);
    g.count = ElementCount(n.domain);
    // What is chained has no pieces.
    g.split = g.is_reduction && n.accumulation != lowering::Accumulation::kChained && NeedsSplit(g);
  }

  // Whether whole rows leave most of the machine idle. Columns (reduced dim not innermost) are served in tiles of
  // neighbouring rows.
  bool NeedsSplit(const OpenGroup& g) const {
    const int64_t reduced = g.rows == 0 ? 0 : g.count / g.rows;
    int64_t tasks = g.rows;
    int64_t threshold = options_.cost.split_reduced_extent;
    for (size_t i = g.domain.size(); i-- > 0;) {
      if (g.domain[i] == 1) continue;
      if (!g.reduced[i]) {
        tasks = (g.rows + 127) / 128;
        threshold /= 8;
      }
      break;
    }
    return tasks < options_.cost.rows_wanted / 2 && reduced >= threshold;
  }

  void AddMember(LoopNodeId v, int32_t g) {
    OpenGroup& group = groups_[static_cast<size_t>(g)];
    group.is_contraction = group.is_contraction || GoesByTiles(node(v));
    reductions_before_[static_cast<size_t>(v)] = ReductionsBefore(v, g);
    group_of_[static_cast<size_t>(v)] = g;
    group.nodes.push_back(v);
    int64_t cost = BodyCost(node(v)) + 1;
    int32_t divisions = 0;
    for (const LoopInput& in : node(v).inputs) {
      if (!in.reads_tensor()) continue;
      if (GroupOfTensor(in.tensor) == g) {
        const LoopNodeId u = tensor(in.tensor).producer;
        if (--outside_uses_[static_cast<size_t>(in.tensor)] == 0) --group.open_tensors;
        cost = std::min<int64_t>(cost + private_cost_[static_cast<size_t>(u)], 1 << 20);
        divisions = std::max(divisions, divisions_[static_cast<size_t>(u)] + (HasDivision(in) ? 1 : 0));
      } else {
        group.external.insert(in.tensor);
        std::vector<int32_t>& readers = readers_[in.tensor];
        if (readers.empty() || readers.back() != g) readers.push_back(g);
      }
    }
    private_cost_[static_cast<size_t>(v)] = cost;
    divisions_[static_cast<size_t>(v)] = divisions;
    if (outside_uses_[static_cast<size_t>(node(v).tensor)] > 0) ++group.open_tensors;
  }

  // The longest chain of g's reductions that v depends on, each by way of the one before.
  int32_t ReductionsBefore(LoopNodeId v, int32_t g) const {
    int32_t before = 0;
    for (const LoopInput& in : node(v).inputs) {
      if (GroupOfTensor(in.tensor) != g) continue;
      const LoopNodeId u = tensor(in.tensor).producer;
      before = std::max(before, reductions_before_[static_cast<size_t>(u)] + (node(u).is_reduction() ? 1 : 0));
    }
    return before;
  }

  // How v would stand to a group's loops.
  enum class Level { kFull, kRow, kNone };

  bool Join(LoopNodeId v, int32_t g, std::string& reason) {
    OpenGroup& group = groups_[static_cast<size_t>(g)];
    if (group.ordered >= 0) return Refuse(reason, "it runs in order, in a kernel of its own");
    if (group.nodes.size() >= kMaxNodesInGroup) return Refuse(reason, "the kernel has reached its largest size");
    if (TooManyTensors(v, group)) return Refuse(reason, "the kernel would have too many tensors");
    const LoopNode& n = node(v);
    if (n.is_reduction()) return JoinReduction(v, g, reason);
    const int64_t count = ElementCount(n.domain);
    if (count == group.count && count != 0 && AccessesFit(v, g, Level::kFull, reason)) {
      AddMember(v, g);
      return true;
    }
    if (group.is_reduction && count == group.rows && AccessesFit(v, g, Level::kRow, reason)) {
      AddMember(v, g);
      return true;
    }
    if (Redomain(v, g, reason)) return true;
    if (reason.empty()) reason = "the loops differ";
    return false;
  }

  static bool Refuse(std::string& reason, const char* text) {
    reason = text;
    return false;
  }

  bool TooManyTensors(LoopNodeId v, const OpenGroup& group) const {
    size_t tensors = group.external.size() + static_cast<size_t>(std::max<int64_t>(group.open_tensors, 0)) + 1;
    for (const LoopInput& in : node(v).inputs) tensors += in.reads_tensor() && !group.external.contains(in.tensor);
    return tensors > kMaxTensorsOfGroup;
  }

  bool JoinReduction(LoopNodeId v, int32_t g, std::string& reason) {
    OpenGroup& group = groups_[static_cast<size_t>(g)];
    const LoopNode& n = node(v);
    if (group.is_contraction || (group.is_reduction && GoesByTiles(n)))
      return Refuse(reason, "a contraction shares its loops with no other reduction");
    if (ReductionsBefore(v, g) >= kMaxDependentReductions)
      return Refuse(reason, "the kernel has as many reductions, one after the other, as it may have");
    if (ElementCount(n.domain) == group.count && group.count != 0) {
      const bool same =
          group.is_reduction && CollapseRows(n.domain, n.reduced) == CollapseRows(group.domain, group.reduced);
      if (group.is_reduction && !same) return Refuse(reason, "reductions over different dims");
      if (!group.is_reduction) {
        // Full members of a pointwise group may feed a reduction; its loops become the reduction's.
        OpenGroup as_reduction = group;
        SetDomain(as_reduction, n);
        std::swap(group.domain, as_reduction.domain);
        std::swap(group.reduced, as_reduction.reduced);
        std::swap(group.is_reduction, as_reduction.is_reduction);
        std::swap(group.split, as_reduction.split);
        std::swap(group.rows, as_reduction.rows);
        if (AccessesFit(v, g, Level::kFull, reason)) {
          AddMember(v, g);
          return true;
        }
        std::swap(group.domain, as_reduction.domain);
        std::swap(group.reduced, as_reduction.reduced);
        std::swap(group.is_reduction, as_reduction.is_reduction);
        std::swap(group.split, as_reduction.split);
        std::swap(group.rows, as_reduction.rows);
      } else if (AccessesFit(v, g, Level::kFull, reason)) {
        AddMember(v, g);
        return true;
      }
    }
    if (Redomain(v, g, reason)) return true;
    if (reason.empty()) reason = "the loops differ";
    return false;
  }

  // Whether each member that v reads is where v's loops are: at the same element, at the same row, or recomputable
  // elsewhere.
  bool AccessesFit(LoopNodeId v, int32_t g, Level level, std::string& reason) const {
    const OpenGroup& group = groups_[static_cast<size_t>(g)];
    const LoopNode& n = node(v);
    for (const LoopInput& in : n.inputs) {
      if (GroupOfTensor(in.tensor) != g) continue;
      const LoopNodeId u = tensor(in.tensor).producer;
      const LoopTensor& t = tensor(in.tensor);
      const bool row_member = group.is_reduction && t.element_count() == group.rows;
      const bool full_member = t.element_count() == group.count && !node(u).is_reduction();
      const bool dependent = node(u).is_reduction() || reductions_before_[static_cast<size_t>(u)] > 0;
      if (group.split && dependent && level == Level::kFull) {
        return Refuse(reason,
                      "the reduction is split over several blocks: its result is known only in the next kernel");
      }
      const IndexExpr at = Flatten(in.index, t.shape);
      if (level == Level::kFull && full_member && at == Flatten(IdentityIndex(n.domain), n.domain)) continue;
      if (level == Level::kRow && row_member && at == Flatten(IdentityIndex(n.domain), n.domain)) continue;
      if (level == Level::kFull && row_member && at == RowIndex(group, n.domain)) continue;
      if (dependent) return Refuse(reason, "it reads other rows or elements than the kernel has at hand");
      const bool only_reader = outside_uses_[static_cast<size_t>(in.tensor)] == 1;
      if (!only_reader && private_cost_[static_cast<size_t>(u)] > kMaxRecomputedCost) {
        return Refuse(reason, "recomputing the value at other elements costs more than storing it");
      }
      if (NodeTooComplex(in)) return Refuse(reason, "the index expression is too complex");
      // A value that is still needed elsewhere, and is of another size than the loops, could not be stored by this
      // kernel.
      if (!full_member && !row_member) return Refuse(reason, "the loops differ");
    }
    return true;
  }

  // The index itself, or those that it is composed with when the group's body is built: each composition through
  // divisions and remainders that do not cancel multiplies the size.
  bool NodeTooComplex(const LoopInput& in) const {
    if (HasDivision(in) && divisions_[static_cast<size_t>(tensor(in.tensor).producer)] >= kMaxComposedDivisions)
      return true;
    return lowering::NodeCount(in.index) > lowering::kMaxIndexNodes / 2;
  }

  // The row-major number of the row that an element of `domain` belongs to.
  static IndexExpr RowIndex(const OpenGroup& group, const Shape& domain) {
    const std::vector<IndexExpr> at = Unflatten(Flatten(IdentityIndex(domain), domain), group.domain, domain);
    std::vector<IndexExpr> kept;
    Shape kept_shape;
    for (size_t i = 0; i < at.size(); ++i) {
      if (group.reduced[i]) continue;
      kept.push_back(at[i]);
      kept_shape.push_back(group.domain[i]);
    }
    return Flatten(kept, kept_shape);
  }

  // A pointwise group that nothing but v needs takes over v's loops: its members are computed wherever v asks for them.
  bool Redomain(LoopNodeId v, int32_t g, std::string& reason) {
    OpenGroup& group = groups_[static_cast<size_t>(g)];
    if (group.is_reduction) return false;
    const LoopNode& n = node(v);
    absl::flat_hash_map<TensorId, int64_t> uses;
    int64_t cost = 0;
    int64_t accesses = 0;
    for (const LoopInput& in : n.inputs) {
      if (GroupOfTensor(in.tensor) != g) continue;
      ++uses[in.tensor];
      ++accesses;
      cost += private_cost_[static_cast<size_t>(tensor(in.tensor).producer)];
      if (NodeTooComplex(in)) return Refuse(reason, "the index expression is too complex");
    }
    int64_t closed = 0;
    int64_t bytes = 0;
    double computed_anyway = 0;
    for (const auto& [t, count] : uses) {
      computed_anyway += static_cast<double>(private_cost_[static_cast<size_t>(tensor(t).producer)]) *
                         static_cast<double>(group.count);
      closed += outside_uses_[static_cast<size_t>(t)] == count;
      bytes += tensor(t).size_bytes();
      if (tensor(t).output >= 0) return Refuse(reason, "the value is returned and is of another shape than the loops");
    }
    if (uses.empty() || group.open_tensors != closed)
      return Refuse(reason, "the loops differ and the value is needed elsewhere");
    const CostModel& m = options_.cost;
    const double computed = static_cast<double>(ElementCount(n.domain)) * SidesOf(n).computed_share();
    const double recompute = (static_cast<double>(cost) * computed - computed_anyway) / m.ops_per_micro;
    const double store = 2.0 * static_cast<double>(bytes) / m.bytes_per_micro + m.launch_micros;
    // Two accesses may ask for the same values at different elements; such steps one behind the other double the work
    // each time.
    if (accesses > 1 && cost > kMaxRecomputedCost) {
      return Refuse(reason, "recomputing the values costs more than storing them");
    }
    if (ElementCount(n.domain) > group.count && recompute > store) {
      return Refuse(reason, "recomputing the value for every element that reads it costs more than storing it");
    }
    SetDomain(group, n);
    AddMember(v, g);
    return true;
  }

  const LoopProgram& program_;
  const FuseOptions& options_;
  std::vector<OpenGroup> groups_;
  int64_t first_order_ = 0;
  int64_t last_order_ = 0;
  std::vector<int32_t> group_of_;
  std::vector<int32_t> reductions_before_;  // of its own group, one after the other, that a node depends on
  std::vector<int64_t> outside_uses_;       // readers of a tensor outside its producer's group, and 1 if it is returned
  std::vector<int64_t> private_cost_;       // operations to compute a node from what its group reads (an upper bound)
  std::vector<int32_t> divisions_;          // accesses through divisions, one behind the other, within the group
  absl::flat_hash_map<TensorId, std::vector<int32_t>> readers_;
  std::vector<FusionRefusalNote> refusals_;
};

// After the partition: which tensors cross kernels, which of them are cheaper to recompute, and what each kernel loads
// and stores.
class BoundaryPass {
 public:
  // `stored_only`: tensors that must not be recomputed.
  BoundaryPass(const LoopProgram& program, const FuseOptions& options, const absl::flat_hash_set<TensorId>& stored_only,
               FusionPlan& plan)
      : program_(program),
        stored_only_(stored_only),
        options_(options),
        plan_(plan),
        home_(program.nodes.size(), -1),
        needed_(program.tensors.size(), false) {
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      for (LoopNodeId n : plan.groups[g].nodes) home_[static_cast<size_t>(n)] = static_cast<int32_t>(g);
    }
    for (TensorId t : program.outputs) needed_[static_cast<size_t>(t)] = true;
  }

  // From the last group to the first, so that a group's needs are known before those of the groups it reads from.
  void Run() {
    for (size_t g = plan_.groups.size(); g-- > 0;) FinishGroup(plan_.groups[g], static_cast<int32_t>(g));
    plan_.groups.erase(
        std::remove_if(plan_.groups.begin(), plan_.groups.end(), [](const FusionGroup& g) { return g.stored.empty(); }),
        plan_.groups.end());
  }

 private:
  bool Computed(TensorId t) const { return t >= 0 && program_.tensor(t).kind == LoopTensor::Kind::kComputed; }

  void FinishGroup(FusionGroup& group, int32_t g) {
    for (LoopNodeId n : group.nodes) {
      if (needed_[static_cast<size_t>(program_.node(n).tensor)]) group.stored.push_back(program_.node(n).tensor);
    }
    if (group.stored.empty()) {
      group.nodes.clear();
      return;
    }
    absl::flat_hash_set<LoopNodeId> here = Reachable(group, g);
    if (options_.fuse) RecomputeCheapInputs(group, here);
    group.nodes.assign(here.begin(), here.end());
    std::sort(group.nodes.begin(), group.nodes.end());
    absl::flat_hash_set<TensorId> seen;
    for (LoopNodeId n : group.nodes) {
      if (const TensorId into = program_.node(n).into; into >= 0) {
        group.loads.push_back(into);
        needed_[static_cast<size_t>(into)] = true;
      }
      for (const LoopInput& in : program_.node(n).inputs) {
        if (!in.reads_tensor()) continue;
        if (Computed(in.tensor) && here.contains(program_.tensor(in.tensor).producer)) continue;
        if (!seen.insert(in.tensor).second) continue;
        group.loads.push_back(in.tensor);
        needed_[static_cast<size_t>(in.tensor)] = true;
      }
    }
  }

  // The members that the stored tensors depend on.
  absl::flat_hash_set<LoopNodeId> Reachable(const FusionGroup& group, int32_t g) const {
    absl::flat_hash_set<LoopNodeId> here;
    std::vector<LoopNodeId> work;
    for (TensorId t : group.stored) work.push_back(program_.tensor(t).producer);
    while (!work.empty()) {
      const LoopNodeId n = work.back();
      work.pop_back();
      if (!here.insert(n).second) continue;
      for (const LoopInput& in : program_.node(n).inputs) {
        if (!Computed(in.tensor)) continue;
        const LoopNodeId u = program_.tensor(in.tensor).producer;
        if (home_[static_cast<size_t>(u)] == g) work.push_back(u);
      }
    }
    return here;
  }

  void RecomputeCheapInputs(const FusionGroup& group, absl::flat_hash_set<LoopNodeId>& here) const {
    absl::flat_hash_map<TensorId, int64_t> readers;  // external computed tensors, with their number of loads
    absl::flat_hash_set<TensorId> loads;
    for (LoopNodeId n : here) {
      for (const LoopInput& in : program_.node(n).inputs) {
        if (!in.reads_tensor()) continue;
        if (!Computed(in.tensor)) {
          loads.insert(in.tensor);
        } else if (!here.contains(program_.tensor(in.tensor).producer)) {
          loads.insert(in.tensor);
          ++readers[in.tensor];
        }
      }
    }
    std::vector<std::pair<TensorId, int64_t>> order(readers.begin(), readers.end());
    std::sort(order.begin(), order.end());  // deterministic
    for (const auto& [t, count] : order) {
      absl::flat_hash_set<TensorId> leaves;
      std::optional<std::vector<LoopNodeId>> closure = CheapClosure(group, t, count, loads, leaves);
      if (!closure) continue;
      here.insert(closure->begin(), closure->end());
      loads.erase(t);
      loads.insert(leaves.begin(), leaves.end());
    }
  }

  // The nodes that compute `t` from values that are in memory anyway, if computing them again is cheaper than storing
  // and loading `t`. `leaves`: what they load.
  std::optional<std::vector<LoopNodeId>> CheapClosure(const FusionGroup& group, TensorId t, int64_t count,
                                                      const absl::flat_hash_set<TensorId>& loads,
                                                      absl::flat_hash_set<TensorId>& leaves) const {
    if (needed_[static_cast<size_t>(t)] || stored_only_.contains(t)) return std::nullopt;  // stored in any case
    std::vector<LoopNodeId> closure;
    absl::flat_hash_set<LoopNodeId> seen;
    std::vector<TensorId> work = {t};
    int64_t ops = 0;
    int64_t extra_bytes = 0;
    int32_t doublings = 0;
    int32_t divisions = 0;
    while (!work.empty()) {
      const TensorId at = work.back();
      work.pop_back();
      const LoopTensor& tensor = program_.tensor(at);
      // What must not be recomputed is loaded inside the closure too, else Fuse would ask for it again and again.
      const bool leaf = !Computed(at) || needed_[static_cast<size_t>(at)] || stored_only_.contains(at) ||
                        program_.node(tensor.producer).kind != LoopNode::Kind::kPointwise;
      if (leaf) {
        if (at == t) return std::nullopt;
        if (!loads.contains(at) && leaves.insert(at).second) {
          extra_bytes += tensor.size_bytes();
          if (loads.size() + leaves.size() + group.stored.size() > kMaxTensorsOfGroup) return std::nullopt;
        }
        continue;
      }
      if (!seen.insert(tensor.producer).second) continue;
      closure.push_back(tensor.producer);
      if (closure.size() > kMaxRecomputedNodes) return std::nullopt;
      const LoopNode& n = program_.node(tensor.producer);
      ops += BodyCost(n);
      for (const LoopInput& in : n.inputs) {
        if (!in.reads_tensor()) continue;
        if (lowering::NodeCount(in.index) > lowering::kMaxIndexNodes / 4) return std::nullopt;
        divisions += HasDivision(in);
        doublings += Computed(in.tensor) && ReadElsewhereToo(n, in);
        work.push_back(in.tensor);
      }
    }
    // Indices are composed all along the closure, and what is read at two places may be computed for each of them.
    if (divisions > kMaxRecomputedDivisions || doublings > kMaxRecomputedDoublings) {
      return std::nullopt;
    }
    const CostModel& m = options_.cost;
    const double saved = 2.0 * static_cast<double>(program_.tensor(t).size_bytes()) / m.bytes_per_micro;
    // A value for each row is computed once a row.
    const bool per_row = group.is_reduction() && program_.tensor(t).element_count() == group.row_count();
    const int64_t elements = per_row ? group.row_count() : ElementCount(group.domain);
    const double compute = static_cast<double>(ops * count) * static_cast<double>(elements) / m.ops_per_micro;
    const double extra = static_cast<double>(extra_bytes) / m.bytes_per_micro;
    const double slack = m.launch_micros / 4;
    // Reading more than `t` itself pays only where a kernel goes for it. Else a chain of residuals would be summed anew
    // from all its terms in every layer, and keep all of them in memory.
    const double read_slack = HomeMayVanish(t, seen) ? slack : 0;
    if (compute > 0.5 * saved + slack || extra > saved + read_slack) return std::nullopt;
    return closure;
  }

  // Whether nothing but `closure` is computed where `t` is.
  bool HomeMayVanish(TensorId t, const absl::flat_hash_set<LoopNodeId>& closure) const {
    const int32_t home = home_[static_cast<size_t>(program_.tensor(t).producer)];
    if (home < 0) return true;
    const std::vector<LoopNodeId>& nodes = plan_.groups[static_cast<size_t>(home)].nodes;
    return std::all_of(nodes.begin(), nodes.end(), [&](LoopNodeId n) { return closure.contains(n); });
  }

  const LoopProgram& program_;
  const absl::flat_hash_set<TensorId>& stored_only_;
  const FuseOptions& options_;
  FusionPlan& plan_;
  std::vector<int32_t> home_;
  std::vector<bool> needed_;  // returned, or read from memory by a later group
};

// 16-bit tensors that one group stores and another computes again: the one rounds them and the other does not, though
// every reader of a stored value must see it as stored.
std::vector<TensorId> StoredAndRecomputed(const LoopProgram& program, const FusionPlan& plan) {
  absl::flat_hash_set<TensorId> stored;
  for (const FusionGroup& g : plan.groups) stored.insert(g.stored.begin(), g.stored.end());
  std::vector<TensorId> out;
  for (const FusionGroup& g : plan.groups) {
    const absl::flat_hash_set<TensorId> here(g.stored.begin(), g.stored.end());
    for (LoopNodeId n : g.nodes) {
      const TensorId t = program.node(n).tensor;
      if (IsHalf(program.tensor(t).dtype) && stored.contains(t) && !here.contains(t)) out.push_back(t);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<FusionPlan> Fuse(const LoopProgram& program, const FuseOptions& options) {
  FUSELINE_ASSIGN_OR_RETURN(const FusionPlan partition, Fuser(program, options).Run());
  FusionPlan plan;
  absl::flat_hash_set<TensorId> stored_only;
  while (true) {
    plan = partition;
    BoundaryPass(program, options, stored_only, plan).Run();
    const std::vector<TensorId> conflicts = StoredAndRecomputed(program, plan);
    if (conflicts.empty()) break;
    // Each round adds tensors, so it ends; two rounds are common, more than a few would need a chain of conflicts.
    const size_t before = stored_only.size();
    stored_only.insert(conflicts.begin(), conflicts.end());
    if (stored_only.size() == before) return Internal("fusion: a tensor that must be stored was recomputed");
  }
  FUSELINE_RETURN_IF_ERROR(VerifyFusionPlan(program, plan));
  return plan;
}

}  // namespace fuseline::fuser
