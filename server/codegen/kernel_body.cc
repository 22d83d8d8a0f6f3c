#include "server/codegen/kernel_body.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::codegen {
namespace {

using fuser::FusionGroup;
using lowering::Flatten;
using lowering::IndexBound;
using lowering::LoopInput;
using lowering::LoopNode;
using lowering::LoopNodeId;
using lowering::LoopProgram;
using lowering::LoopTensor;
using lowering::SubstituteAll;
using lowering::Unflatten;

// Where a tensor is asked for.
struct Demand {
  TensorId tensor = -1;
  std::vector<IndexExpr> index;
  std::vector<IndexBound> bounds;  // where one does not hold, any value will do, and nothing is read
  friend bool operator==(const Demand& a, const Demand& b) {
    return a.tensor == b.tensor && a.index == b.index && a.bounds == b.bounds;
  }
};
struct DemandHash {
  size_t operator()(const Demand& d) const {
    size_t h = std::hash<int32_t>()(d.tensor);
    for (const IndexExpr& e : d.index) h = h * 1000003 + e.Hash();
    for (const IndexBound& b : d.bounds) h = h * 1000003 + b.value.Hash();
    return h;
  }
};

// The finest split of the domain's dims at which the shapes of all full members cut the row-major order, where those
// cuts nest; so that reshapes inside the group become plain strides.
void RefineLoops(const LoopProgram& program, const FusionGroup& group, std::vector<int64_t>& extents,
                 std::vector<bool>& reduced) {
  const int64_t count = ElementCount(group.domain);
  std::set<int64_t> cuts;
  const auto add = [&](const Shape& shape) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      cuts.insert(stride);
      stride *= shape[i];
    }
    cuts.insert(stride);
  };
  add(group.domain);
  if (count != 0) {
    for (LoopNodeId id : group.nodes) {
      const LoopNode& n = program.node(id);
      if (ElementCount(n.domain) == count) add(n.domain);
    }
  }
  const std::vector<int64_t> sorted(cuts.begin(), cuts.end());
  bool nested = count != 0;
  for (size_t i = 1; i < sorted.size(); ++i) nested = nested && sorted[i] % sorted[i - 1] == 0;
  if (!nested) {
    extents = group.domain;
    reduced = group.reduced;
    return;
  }
  // Each piece [sorted[i-1], sorted[i]) lies within one dim of the domain, whose kind it takes.
  std::vector<int64_t> e;
  std::vector<bool> r;
  size_t dim = group.domain.size();
  int64_t dim_end = 1;
  for (size_t i = 1; i < sorted.size(); ++i) {
    while (dim > 0 && dim_end < sorted[i]) dim_end *= group.domain[--dim];
    e.push_back(sorted[i] / sorted[i - 1]);
    r.push_back(group.reduced[dim]);
  }
  extents.assign(e.rbegin(), e.rend());
  reduced.assign(r.rbegin(), r.rend());
}

class BodyBuilder {
 public:
  BodyBuilder(const LoopProgram& program, const FusionGroup& group) : program_(program), group_(group) {
    for (LoopNodeId n : group.nodes) computed_.insert({program.node(n).tensor, n});
    for (TensorId t : group.stored) stored_.insert(t);
  }

  absl::StatusOr<KernelBody> Build() {
    RefineLoops(program_, group_, body_.extents, body_.reduced);
    for (size_t i = 0; i < group_.domain.size(); ++i) {
      if (group_.domain[i] != 1) body_.inner = group_.reduced[i];
    }
    std::vector<IndexExpr> vars = lowering::IdentityIndex(body_.extents);
    full_position_ = Flatten(vars, body_.extents);
    std::vector<IndexExpr> row_vars;
    Shape rows;
    for (size_t i = 0; i < vars.size(); ++i) {
      if (body_.reduced[i]) continue;
      row_vars.push_back(vars[i]);
      rows.push_back(body_.extents[i]);
    }
    row_position_ = Flatten(row_vars, rows);
    if (group_.ordered >= 0) {
      FUSELINE_RETURN_IF_ERROR(StoreOrdered(program_.node(group_.ordered)));
    } else {
      for (TensorId t : group_.stored) FUSELINE_RETURN_IF_ERROR(Store(t));
    }
    AssignPasses(body_);
    return std::move(body_);
  }

 private:
  absl::Status Store(TensorId t) {
    const LoopTensor& tensor = program_.tensor(t);
    const bool full = tensor.element_count() == ElementCount(group_.domain) && !IsReductionResult(t);
    const IndexExpr position = full ? full_position_ : row_position_;
    FUSELINE_ASSIGN_OR_RETURN(const int32_t value, Evaluate(t, Unflatten(position, tensor.shape, body_.extents), {}));
    BodyStore store;
    store.param = Param(t, true);
    store.offset = position;  // what is stored is dense
    // Storing rounds: the rounded value is computed only if something in the kernel reads it.
    const BodyInstr& stored = body_.instrs[static_cast<size_t>(value)];
    const bool rounding = stored.kind == BodyInstr::Kind::kOp && stored.scalar.op == ScalarOp::kRound16 &&
                          stored.scalar.storage == tensor.dtype && ReadsF32(stored);
    store.value = rounding ? stored.scalar.args[0] : value;
    body_.stores.push_back(std::move(store));
    return absl::OkStatus();
  }

  absl::Status StoreOrdered(const LoopNode& n) {
    const LoopTensor& tensor = program_.tensor(n.tensor);
    const std::vector<IndexExpr> at = Unflatten(full_position_, n.domain, body_.extents);
    std::vector<int32_t> ids;
    BodyStore store;
    FUSELINE_ASSIGN_OR_RETURN(store.value, EvaluateBody(n, at, {}, &ids));
    store.param = Param(n.tensor, true);
    store.offset = full_position_;
    if (!n.position.empty()) {
      std::vector<IndexExpr> position = SubstituteAll(n.position, at, body_.extents);
      for (IndexExpr& e : position) {
        e = e.RenameValues([&](int32_t v) { return ids[static_cast<size_t>(n.values[static_cast<size_t>(v)])]; });
      }
      store.offset = Flatten(position, tensor.shape);
    }
    body_.stores.push_back(std::move(store));
    BodyOrdered ordered;
    ordered.kind = n.kind;
    ordered.reduction = n.reduction;
    ordered.descending = n.descending;
    if (n.reduction == ReductionKind::kArgmax) {
      BodyInstr arg;
      arg.kind = BodyInstr::Kind::kIndex;
      arg.scalar.type = DType::kI64;
      arg.offset = lowering::Substitute(n.arg_index, at, body_.extents);
      ordered.arg = Add(std::move(arg));
    }
    body_.ordered = ordered;
    return absl::OkStatus();
  }

  // The operand is what storing takes: f32 (a rounding from f64 is one that storing would not do).
  bool ReadsF32(const BodyInstr& round) const {
    return body_.instrs[static_cast<size_t>(round.scalar.args[0])].scalar.type == DType::kF32;
  }

  bool IsReductionResult(TensorId t) const {
    const auto it = computed_.find(t);
    return it != computed_.end() && program_.node(it->second).is_reduction();
  }

  // Recursion: at most as deep as the group has nodes, which the fuser bounds.
  absl::StatusOr<int32_t> Evaluate(TensorId t, std::vector<IndexExpr> index, std::vector<IndexBound> bounds) {
    Demand demand{t, std::move(index), std::move(bounds)};
    if (const auto it = memo_.find(demand); it != memo_.end()) return it->second;
    int32_t value = -1;
    const auto it = computed_.find(t);
    if (it == computed_.end()) {
      value = Load(t, demand.index, demand.bounds);
    } else if (program_.node(it->second).is_reduction()) {
      FUSELINE_ASSIGN_OR_RETURN(value, EvaluateReduction(program_.node(it->second), demand.index));
    } else {
      const LoopNode& n = program_.node(it->second);
      FUSELINE_ASSIGN_OR_RETURN(value, EvaluateBody(n, demand.index, demand.bounds));
    }
    value = RoundWhereStored(t, value, it != computed_.end());
    memo_.emplace(std::move(demand), value);
    return value;
  }

  // Every reader of a stored 16-bit value sees it as stored.
  int32_t RoundWhereStored(TensorId t, int32_t value, bool computed) {
    const LoopTensor& tensor = program_.tensor(t);
    if (!computed || !IsHalf(tensor.dtype) || !stored_.contains(t)) return value;
    return Round(value, tensor.dtype);
  }

  int32_t Round(int32_t value, DType storage) {
    BodyInstr instr;
    instr.scalar.op = ScalarOp::kRound16;
    instr.scalar.type = DType::kF32;
    instr.scalar.storage = storage;
    instr.scalar.args[0] = value;
    return Add(std::move(instr));
  }

  // Whether all of them hold, as a bool.
  int32_t Guard(const std::vector<IndexBound>& bounds) {
    BodyInstr instr;
    instr.scalar.type = DType::kBool;
    if (bounds.empty()) {
      instr.scalar.constant.kind = Literal::Kind::kBool;
      instr.scalar.constant.i = 1;
    } else {
      instr.kind = BodyInstr::Kind::kGuard;
      instr.bounds = bounds;
    }
    return Add(std::move(instr));
  }

  // For values that nobody looks at.
  int32_t Zero(DType type) {
    BodyInstr instr;
    instr.scalar.type = type;
    instr.scalar.constant.kind = IsBool(type) ? Literal::Kind::kBool : Literal::Kind::kInt;
    return Add(std::move(instr));
  }

  int32_t Load(TensorId t, const std::vector<IndexExpr>& index, const std::vector<IndexBound>& bounds) {
    const LoopTensor& tensor = program_.tensor(t);
    // Loops over nothing do not run, but what is the same for a whole row is computed in any case.
    if (tensor.element_count() == 0) return Zero(ComputeDType(tensor.dtype));
    BodyInstr instr;
    instr.kind = BodyInstr::Kind::kLoad;
    instr.scalar.type = ComputeDType(tensor.dtype);
    instr.param = Param(t, false);
    for (size_t i = 0; i < index.size(); ++i) instr.offset = instr.offset + index[i] * tensor.strides[i];
    if (!bounds.empty()) instr.scalar.args[0] = Guard(bounds);
    instr.hint = body_.params[static_cast<size_t>(instr.param)].name;
    return Add(std::move(instr));
  }

  // What the body's input `in` is, for the loops at `at` and where `context` holds; `ids`: the body's instructions so
  // far.
  absl::StatusOr<int32_t> EvaluateInput(const LoopNode& n, const LoopInput& in, DType type,
                                        const std::vector<IndexExpr>& at, const std::vector<IndexBound>& context,
                                        const std::vector<int32_t>& ids) {
    const auto in_body = [&](const IndexExpr& e) {
      return e.RenameValues([&](int32_t k) { return ids[static_cast<size_t>(n.values[static_cast<size_t>(k)])]; });
    };
    if (in.tensor == lowering::kIndexValue) {
      BodyInstr instr;
      instr.kind = BodyInstr::Kind::kIndex;
      instr.scalar.type = DType::kI64;
      instr.offset = lowering::Substitute(in_body(in.value), at, body_.extents);
      return Add(std::move(instr));
    }
    std::vector<IndexBound> guards = in.guards;
    for (IndexBound& b : guards) b.value = in_body(b.value);
    bool never = false;
    std::vector<IndexBound> bounds = lowering::SubstituteBounds(guards, at, body_.extents, never);
    if (in.tensor == lowering::kGuardValue) return never ? Zero(DType::kBool) : Guard(bounds);
    if (never) return Zero(type);
    for (const IndexBound& b : context) {
      if (std::find(bounds.begin(), bounds.end(), b) == bounds.end()) bounds.push_back(b);
    }
    std::vector<IndexExpr> index;
    for (const IndexExpr& e : in.index) index.push_back(lowering::Substitute(in_body(e), at, body_.extents));
    return Evaluate(in.tensor, std::move(index), std::move(bounds));
  }

  bool IsConstantBool(int32_t id, bool* value) const {
    const BodyInstr& instr = body_.instrs[static_cast<size_t>(id)];
    if (instr.kind != BodyInstr::Kind::kOp || instr.scalar.op != ScalarOp::kConst) return false;
    *value = instr.scalar.constant.AsDouble() != 0;
    return true;
  }

  // `all`, where given: the ids of all of the body's instructions.
  absl::StatusOr<int32_t> EvaluateBody(const LoopNode& n, const std::vector<IndexExpr>& at,
                                       const std::vector<IndexBound>& context, std::vector<int32_t>* all = nullptr) {
    std::vector<int32_t> ids(n.body.size(), -1);
    for (size_t i = 0; i < n.body.size(); ++i) {
      const ScalarInstr& s = n.body[i];
      if (s.op == ScalarOp::kInput) {
        FUSELINE_ASSIGN_OR_RETURN(ids[i],
                                  EvaluateInput(n, n.inputs[static_cast<size_t>(s.index)], s.type, at, context, ids));
        continue;
      }
      if (s.op == ScalarOp::kRound16 && IsLoadOf(ids[static_cast<size_t>(s.args[0])], s.storage)) {
        ids[i] = ids[static_cast<size_t>(s.args[0])];  // what lies in memory is rounded already
        continue;
      }
      if (bool condition = false;
          s.op == ScalarOp::kSelect && IsConstantBool(ids[static_cast<size_t>(s.args[0])], &condition)) {
        ids[i] = ids[static_cast<size_t>(s.args[condition ? 1 : 2])];
        continue;
      }
      BodyInstr instr;
      instr.scalar = s;
      for (int32_t& a : instr.scalar.args) {
        if (a >= 0) a = ids[static_cast<size_t>(a)];
      }
      if (s.op == ScalarOp::kCheckIndex) {
        instr.param = ChecksParam();
        if (!context.empty()) instr.scalar.args[1] = Guard(context);
      }
      if (static_cast<int32_t>(i) == n.result && s.op != ScalarOp::kConst) instr.hint = n.label;
      ids[i] = Add(std::move(instr));
    }
    if (all != nullptr) *all = ids;
    return ids[static_cast<size_t>(n.result)];
  }

  bool IsLoadOf(int32_t id, DType storage) const {
    const BodyInstr& instr = body_.instrs[static_cast<size_t>(id)];
    if (instr.kind == BodyInstr::Kind::kLoad) return body_.params[static_cast<size_t>(instr.param)].dtype == storage;
    return instr.scalar.op == ScalarOp::kRound16 && instr.kind == BodyInstr::Kind::kOp &&
           instr.scalar.storage == storage;
  }

  // The fuser has shown the two equal in terms of its own loops; in terms of this body's they may be spelled
  // differently, so that equality of the text is tried first and then of the values at sample points (corners and a
  // stride through the loops).
  bool SamePosition(const IndexExpr& a, const IndexExpr& b) const {
    if (a == b) return true;
    for (int64_t sample = 0; sample < 64; ++sample) {
      std::vector<IndexExpr> point;
      for (size_t i = 0; i < body_.extents.size(); ++i) {
        const int64_t last = std::max<int64_t>(body_.extents[i], 1) - 1;
        const int64_t corner = (sample >> (i % 4)) & 1 ? last : 0;
        point.push_back(
            IndexExpr::Const(sample < 16 ? corner : (sample * 7919 + static_cast<int64_t>(i) * 104729) % (last + 1)));
      }
      if (!(lowering::Substitute(a, point, {}) == lowering::Substitute(b, point, {}))) return false;
    }
    return true;
  }

  absl::StatusOr<int32_t> EvaluateReduction(const LoopNode& n, const std::vector<IndexExpr>& index) {
    if (!SamePosition(Flatten(index, n.kept_shape()), row_position_)) {
      return Internal(
          absl::StrCat("kernel body: reduction '", program_.tensor(n.tensor).name, "' is read at another row"));
    }
    const std::vector<IndexExpr> at = Unflatten(full_position_, n.domain, body_.extents);
    FUSELINE_ASSIGN_OR_RETURN(const int32_t value, EvaluateBody(n, at, {}));
    BodyReduction reduction;
    reduction.kind = n.reduction;
    reduction.value = value;
    reduction.type = body_.instrs[static_cast<size_t>(value)].scalar.type;
    reduction.accumulation = n.accumulation;
    if (reduction.returns_index()) {
      BodyInstr arg;
      arg.kind = BodyInstr::Kind::kIndex;
      arg.scalar.type = DType::kI64;
      arg.offset = lowering::Substitute(n.arg_index, at, body_.extents);
      reduction.arg = Add(std::move(arg));
    }
    body_.reductions.push_back(reduction);
    BodyInstr result;
    result.kind = BodyInstr::Kind::kReduction;
    result.scalar.type = lowering::ReductionResultType(n);
    result.reduction = static_cast<int32_t>(body_.reductions.size() - 1);
    result.hint = n.label;
    int32_t id = Add(std::move(result));
    if (n.accumulation == lowering::Accumulation::kChained) id = WithoutNegativeZero(id, reduction.type);
    if (n.round_result != DType::kInvalid) id = Round(id, n.round_result);
    return id;
  }

  // Tiles of some sizes add zeros past the end of a sum, which turns a -0.0 that products below the least number left
  // into +0.0; now all do.
  int32_t WithoutNegativeZero(int32_t value, DType type) {
    BodyInstr zero;
    zero.scalar.type = type;
    zero.scalar.constant.kind = Literal::Kind::kFloat;
    BodyInstr sum;
    sum.scalar.op = ScalarOp::kAdd;
    sum.scalar.type = type;
    sum.scalar.args[0] = value;
    sum.scalar.args[1] = Add(std::move(zero));
    return Add(std::move(sum));
  }

  int32_t Param(TensorId t, bool written) {
    if (const auto it = params_.find(t); it != params_.end()) return it->second;
    const LoopTensor& tensor = program_.tensor(t);
    BodyParam p;
    // Numbered within the kernel, not the graph, so that equal kernels have equal texts.
    p.name = written ? absl::StrCat("out", written_params_++) : absl::StrCat("in", read_params_++);
    p.tensor = t;
    p.dtype = tensor.dtype;
    p.element_count = tensor.element_count();
    p.written = written;
    body_.params.push_back(std::move(p));
    const int32_t id = static_cast<int32_t>(body_.params.size() - 1);
    params_.emplace(t, id);
    return id;
  }

  int32_t ChecksParam() {
    for (size_t p = 0; p < body_.params.size(); ++p) {
      if (body_.params[p].tensor == kChecksParam) return static_cast<int32_t>(p);
    }
    BodyParam p;
    p.name = "checks";
    p.tensor = kChecksParam;
    p.dtype = DType::kI64;
    p.element_count = 2 * static_cast<int64_t>(program_.checks.size());
    p.written = true;
    body_.params.push_back(std::move(p));
    return static_cast<int32_t>(body_.params.size() - 1);
  }

  // Equal instructions are one.
  int32_t Add(BodyInstr instr) {
    if (instr.kind != BodyInstr::Kind::kReduction) {
      const size_t hash = HashOf(instr);
      for (auto [it, end] = same_hash_.equal_range(hash); it != end; ++it) {
        if (Equal(body_.instrs[static_cast<size_t>(it->second)], instr)) return it->second;
      }
      same_hash_.emplace(hash, static_cast<int32_t>(body_.instrs.size()));
    }
    body_.instrs.push_back(std::move(instr));
    return static_cast<int32_t>(body_.instrs.size() - 1);
  }

  static size_t HashOf(const BodyInstr& i) {
    return absl::HashOf(static_cast<int>(i.kind), static_cast<int>(i.scalar.op), static_cast<int>(i.scalar.type),
                        i.scalar.args[0], i.scalar.args[1], i.scalar.args[2], i.param, i.offset.Hash(),
                        i.scalar.constant.i, i.scalar.index, i.bounds.size());
  }
  static bool Equal(const BodyInstr& a, const BodyInstr& b) {
    return a.kind == b.kind && a.scalar.op == b.scalar.op && a.scalar.type == b.scalar.type && a.param == b.param &&
           std::equal(a.scalar.args, a.scalar.args + 3, b.scalar.args) && a.scalar.storage == b.scalar.storage &&
           a.scalar.storage_to == b.scalar.storage_to && a.scalar.constant.kind == b.scalar.constant.kind &&
           a.scalar.constant.i == b.scalar.constant.i && SameBits(a.scalar.constant.f, b.scalar.constant.f) &&
           a.offset == b.offset && a.scalar.index == b.scalar.index && a.bounds == b.bounds;
  }
  static bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

  const LoopProgram& program_;
  const FusionGroup& group_;
  KernelBody body_;
  IndexExpr full_position_;
  IndexExpr row_position_;
  absl::flat_hash_map<TensorId, LoopNodeId> computed_;
  std::set<TensorId> stored_;
  absl::flat_hash_map<TensorId, int32_t> params_;
  absl::flat_hash_map<Demand, int32_t, DemandHash> memo_;
  std::multimap<size_t, int32_t> same_hash_;
  int32_t read_params_ = 0;
  int32_t written_params_ = 0;
};

// Every index expression of the body, for rewriting.
template <typename F>
void ForEachIndex(KernelBody& body, F&& f) {
  for (BodyInstr& i : body.instrs) {
    if (i.kind == BodyInstr::Kind::kLoad || i.kind == BodyInstr::Kind::kIndex) f(i.offset);
    for (IndexBound& b : i.bounds) f(b.value);
  }
  for (BodyStore& s : body.stores) f(s.offset);
  if (body.bound) f(body.bound->start);
}

}  // namespace

int64_t KernelBody::row_count() const {
  int64_t n = 1;
  for (size_t i = 0; i < extents.size(); ++i) n *= reduced[i] ? 1 : extents[i];
  return n;
}
int64_t KernelBody::reduced_count() const {
  int64_t n = 1;
  for (size_t i = 0; i < extents.size(); ++i) n *= reduced[i] ? extents[i] : 1;
  return n;
}
bool KernelBody::has_reduced() const { return !reductions.empty(); }
lowering::Accumulation KernelBody::accumulation() const {
  for (const BodyReduction& r : reductions) {
    if (r.accumulation != lowering::Accumulation::kFree) return r.accumulation;
  }
  return lowering::Accumulation::kFree;
}
std::vector<int32_t> KernelBody::row_vars() const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (!reduced[i]) out.push_back(static_cast<int32_t>(i));
  }
  return out;
}
std::vector<int32_t> KernelBody::reduced_vars() const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (reduced[i]) out.push_back(static_cast<int32_t>(i));
  }
  return out;
}

void ForEachUse(const BodyInstr& instr, absl::FunctionRef<void(int32_t)> visit) {
  if (instr.kind == BodyInstr::Kind::kOp || instr.kind == BodyInstr::Kind::kLoad) {
    for (int32_t a : instr.scalar.args) {
      if (a >= 0) visit(a);
    }
  }
  const auto values = [&](int32_t id) { visit(id); };
  if (instr.offset.HasValues()) instr.offset.VisitValues(values);
  for (const IndexBound& b : instr.bounds) b.value.VisitValues(values);
}

void ForEachUse(const BodyStore& store, absl::FunctionRef<void(int32_t)> visit) {
  visit(store.value);
  if (store.offset.HasValues()) store.offset.VisitValues([&](int32_t id) { visit(id); });
}

void RenameUses(BodyInstr& instr, absl::FunctionRef<int32_t(int32_t)> rename) {
  if (instr.kind == BodyInstr::Kind::kOp || instr.kind == BodyInstr::Kind::kLoad) {
    for (int32_t& a : instr.scalar.args) {
      if (a >= 0) a = rename(a);
    }
  }
  const auto values = [&](int32_t id) { return rename(id); };
  instr.offset = instr.offset.RenameValues(values);
  for (IndexBound& b : instr.bounds) b.value = b.value.RenameValues(values);
}

void RenameUses(BodyStore& store, absl::FunctionRef<int32_t(int32_t)> rename) {
  store.value = rename(store.value);
  store.offset = store.offset.RenameValues([&](int32_t id) { return rename(id); });
}

bool IndexUses(const BodyInstr& instr, int32_t var) {
  return instr.offset.Uses(var) ||
         std::any_of(instr.bounds.begin(), instr.bounds.end(), [&](const IndexBound& b) { return b.value.Uses(var); });
}

// Recursion: as deep as divisions are nested, which kMaxIndexNodes bounds.
bool SameForLanes(const IndexExpr& e, int32_t var, int64_t lanes) {
  for (const IndexExpr::Term& t : e.terms()) {
    if (t.kind == IndexExpr::Term::Kind::kVar && t.var == var) return false;
    if (t.operand == nullptr || !t.operand->Uses(var)) continue;
    if (SameForLanes(*t.operand, var, lanes)) continue;
    if (t.kind != IndexExpr::Term::Kind::kFloorDiv) return false;
    // Every term of the dividend is a multiple of `step` at the first lane, so that the quotient stays until the lanes
    // and the constant have made up a step.
    int64_t step = t.divisor;
    int64_t stride = 0;
    for (const IndexExpr::Term& u : t.operand->terms()) {
      const bool own = u.kind == IndexExpr::Term::Kind::kVar && u.var == var;
      if (!own && u.operand != nullptr && !SameForLanes(*u.operand, var, lanes)) return false;
      if (own) stride = u.coefficient;
      step = std::gcd(step, own ? u.coefficient * lanes : u.coefficient);
    }
    const int64_t start = ((t.operand->constant() % step) + step) % step;
    if (stride < 0 || start + stride * (lanes - 1) >= step) return false;
  }
  return true;
}

bool SameForLanes(const IndexBound& bound, int32_t var, int64_t lanes, absl::Span<const int64_t> extents) {
  if (SameForLanes(bound.value, var, lanes)) return true;
  // The value is a multiple of `step`, plus the constant, plus `stride` for each lane.
  int64_t step = 0;
  int64_t stride = 0;
  for (const IndexExpr::Term& t : bound.value.terms()) {
    const bool own = t.kind == IndexExpr::Term::Kind::kVar && t.var == var;
    if (!own && t.operand != nullptr && !SameForLanes(*t.operand, var, lanes)) return false;
    if (own) stride = t.coefficient;
    step = std::gcd(step, own ? t.coefficient * lanes : t.coefficient);
  }
  const int64_t reach = stride * (lanes - 1);
  if (stride <= 0 || reach >= step) return false;
  // A limit separates lanes only where it falls between the first and the last of them.
  const auto separates = [&](int64_t limit) {
    const int64_t at = ((limit - bound.value.constant()) % step + step) % step;
    return at > 0 && at <= reach;
  };
  const lowering::IndexRange range = lowering::RangeOf(bound.value, extents);
  return (range.low >= bound.low || !separates(bound.low)) && (range.high < bound.high || !separates(bound.high));
}

bool SameForLanes(const BodyInstr& instr, int32_t var, int64_t lanes, absl::Span<const int64_t> extents) {
  return SameForLanes(instr.offset, var, lanes) &&
         std::all_of(instr.bounds.begin(), instr.bounds.end(),
                     [&](const IndexBound& b) { return SameForLanes(b, var, lanes, extents); });
}

namespace {

// By instruction: whether it, or what it is computed from, differs along the loop; `own` says so of its indices.
std::vector<bool> Differs(const KernelBody& body, int32_t var, absl::FunctionRef<bool(const BodyInstr&)> own) {
  std::vector<bool> out(body.instrs.size(), false);
  if (var < 0) return out;
  for (size_t i = 0; i < body.instrs.size(); ++i) {
    // Each row has a result of its own.
    const bool result = body.instrs[i].kind == BodyInstr::Kind::kReduction && !body.reduced[static_cast<size_t>(var)];
    bool d = result || own(body.instrs[i]);
    ForEachUse(body.instrs[i], [&](int32_t use) { d = d || out[static_cast<size_t>(use)]; });
    out[i] = d;
  }
  return out;
}

}  // namespace

std::vector<bool> DependsOnLoop(const KernelBody& body, int32_t var) {
  return Differs(body, var, [&](const BodyInstr& instr) { return IndexUses(instr, var); });
}

std::vector<bool> DiffersBetweenLanes(const KernelBody& body, int32_t var, int64_t lanes) {
  return Differs(body, var, [&](const BodyInstr& instr) { return !SameForLanes(instr, var, lanes, body.extents); });
}

void AssignPasses(KernelBody& body) {
  const std::vector<int32_t> reduced = body.reduced_vars();
  const auto depends = [&](const IndexExpr& e) {
    return std::any_of(reduced.begin(), reduced.end(), [&](int32_t v) { return e.Uses(v); });
  };
  body.passes = 0;
  for (BodyInstr& i : body.instrs) {
    i.full = depends(i.offset) ||
             std::any_of(i.bounds.begin(), i.bounds.end(), [&](const IndexBound& b) { return depends(b.value); });
    i.pass = 0;
    if (i.kind == BodyInstr::Kind::kReduction) {
      BodyReduction& r = body.reductions[static_cast<size_t>(i.reduction)];
      r.pass = body.instrs[static_cast<size_t>(r.value)].pass;
      if (r.arg >= 0) r.pass = std::max(r.pass, body.instrs[static_cast<size_t>(r.arg)].pass);
      i.pass = r.pass + 1;
      body.passes = std::max(body.passes, i.pass);
      continue;
    }
    ForEachUse(i, [&](int32_t use) {
      i.full = i.full || body.instrs[static_cast<size_t>(use)].full;
      i.pass = std::max(i.pass, body.instrs[static_cast<size_t>(use)].pass);
    });
  }
  const bool loops = !reduced.empty();
  for (BodyStore& s : body.stores) {
    s.full = loops && depends(s.offset);
    s.pass = 0;
    ForEachUse(s, [&](int32_t use) {
      s.full = s.full || (loops && body.instrs[static_cast<size_t>(use)].full);
      s.pass = std::max(s.pass, body.instrs[static_cast<size_t>(use)].pass);
    });
    if (s.full) body.passes = std::max(body.passes, s.pass + 1);
  }
}

void SubstituteLoops(KernelBody& body, const std::vector<IndexExpr>& values, std::vector<int64_t> extents,
                     std::vector<bool> reduced) {
  ForEachIndex(body, [&](IndexExpr& e) { e = lowering::Substitute(e, values, extents); });
  body.extents = std::move(extents);
  body.reduced = std::move(reduced);
}

void ReorderLoops(KernelBody& body, const std::vector<int32_t>& order) {
  std::vector<IndexExpr> values(body.extents.size());
  std::vector<int64_t> extents;
  std::vector<bool> reduced;
  for (size_t i = 0; i < order.size(); ++i) {
    values[static_cast<size_t>(order[i])] = IndexExpr::Var(static_cast<int32_t>(i));
    extents.push_back(body.extents[static_cast<size_t>(order[i])]);
    reduced.push_back(body.reduced[static_cast<size_t>(order[i])]);
  }
  if (body.bound) {
    body.bound->var = static_cast<int32_t>(std::find(order.begin(), order.end(), body.bound->var) - order.begin());
  }
  SubstituteLoops(body, values, std::move(extents), std::move(reduced));
}

void CollapseLoops(KernelBody& body) {
  // Rows first, reduced loops after; loops of extent 1 go (a bound's variable stays).
  std::vector<int32_t> order;
  for (bool want : {false, true}) {
    for (size_t i = 0; i < body.extents.size(); ++i) {
      const bool bound = body.bound && body.bound->var == static_cast<int32_t>(i);
      if (body.reduced[i] == want && (body.extents[i] != 1 || bound)) order.push_back(static_cast<int32_t>(i));
    }
  }
  ReorderLoops(body, order);
  for (size_t inner = body.extents.size(); inner-- > 1;) {
    const size_t outer = inner - 1;
    const int32_t o = static_cast<int32_t>(outer);
    const int32_t i = static_cast<int32_t>(inner);
    bool mergeable =
        body.reduced[outer] == body.reduced[inner] && !(body.bound && (body.bound->var == o || body.bound->var == i));
    ForEachIndex(body, [&](IndexExpr& e) {
      mergeable = mergeable && !e.UsesNonlinearly(o) && !e.UsesNonlinearly(i) &&
                  e.Coefficient(o) == e.Coefficient(i) * body.extents[inner];
    });
    if (!mergeable) continue;
    // The merged loop takes the inner one's coefficient.
    std::vector<IndexExpr> values(body.extents.size());
    std::vector<int64_t> extents;
    std::vector<bool> reduced;
    for (size_t k = 0; k < body.extents.size(); ++k) {
      if (k == outer) continue;
      values[k] = IndexExpr::Var(static_cast<int32_t>(extents.size()));
      extents.push_back(k == inner ? body.extents[inner] * body.extents[outer] : body.extents[k]);
      reduced.push_back(body.reduced[k]);
    }
    if (body.bound && body.bound->var > o) --body.bound->var;
    SubstituteLoops(body, values, std::move(extents), std::move(reduced));
  }
}

void FlattenReducedLoops(KernelBody& body) {
  if (body.reduced_vars().size() < 2) return;
  const int64_t count = body.reduced_count();
  std::vector<IndexExpr> values(body.extents.size());
  std::vector<int64_t> extents;
  Shape reduced_shape;
  for (size_t i = 0; i < body.extents.size(); ++i) {
    if (body.reduced[i]) {
      reduced_shape.push_back(body.extents[i]);
    } else {
      values[i] = IndexExpr::Var(static_cast<int32_t>(extents.size()));
      extents.push_back(body.extents[i]);
    }
  }
  std::vector<bool> reduced(extents.size(), false);
  const IndexExpr position = IndexExpr::Var(static_cast<int32_t>(extents.size()));
  extents.push_back(count);
  reduced.push_back(true);
  const std::vector<IndexExpr> at = Unflatten(position, reduced_shape, extents);
  size_t next = 0;
  for (size_t i = 0; i < body.extents.size(); ++i) {
    if (body.reduced[i]) values[i] = at[next++];
  }
  SubstituteLoops(body, values, std::move(extents), std::move(reduced));
}

void RemoveDeadCode(KernelBody& body) {
  std::vector<bool> live(body.instrs.size(), false);
  const auto mark = [&](int32_t id) { live[static_cast<size_t>(id)] = true; };
  for (const BodyStore& s : body.stores) ForEachUse(s, mark);
  if (body.ordered && body.ordered->arg >= 0) mark(body.ordered->arg);
  for (size_t i = body.instrs.size(); i-- > 0;) {
    if (!live[i]) continue;
    const BodyInstr& instr = body.instrs[i];
    ForEachUse(instr, mark);
    if (instr.kind == BodyInstr::Kind::kReduction) {
      const BodyReduction& r = body.reductions[static_cast<size_t>(instr.reduction)];
      live[static_cast<size_t>(r.value)] = true;
      if (r.arg >= 0) live[static_cast<size_t>(r.arg)] = true;
    }
  }
  std::vector<int32_t> renamed(body.instrs.size(), -1);
  std::vector<int32_t> param_renamed(body.params.size(), -1);
  std::vector<BodyInstr> instrs;
  std::vector<BodyReduction> reductions;
  std::vector<bool> param_used(body.params.size(), false);
  for (size_t i = 0; i < body.instrs.size(); ++i) {
    if (!live[i]) continue;
    BodyInstr instr = std::move(body.instrs[i]);
    if (instr.param >= 0) param_used[static_cast<size_t>(instr.param)] = true;
    RenameUses(instr, [&](int32_t id) { return renamed[static_cast<size_t>(id)]; });
    if (instr.kind == BodyInstr::Kind::kReduction) {
      BodyReduction r = body.reductions[static_cast<size_t>(instr.reduction)];
      r.value = renamed[static_cast<size_t>(r.value)];
      if (r.arg >= 0) r.arg = renamed[static_cast<size_t>(r.arg)];
      reductions.push_back(r);
      instr.reduction = static_cast<int32_t>(reductions.size() - 1);
    }
    renamed[i] = static_cast<int32_t>(instrs.size());
    instrs.push_back(std::move(instr));
  }
  for (BodyStore& s : body.stores) {
    RenameUses(s, [&](int32_t id) { return renamed[static_cast<size_t>(id)]; });
    param_used[static_cast<size_t>(s.param)] = true;
  }
  if (body.ordered && body.ordered->arg >= 0) body.ordered->arg = renamed[static_cast<size_t>(body.ordered->arg)];
  std::vector<BodyParam> params;
  for (size_t p = 0; p < body.params.size(); ++p) {
    if (!param_used[p]) continue;
    param_renamed[p] = static_cast<int32_t>(params.size());
    params.push_back(std::move(body.params[p]));
  }
  for (BodyInstr& i : instrs) {
    if (i.param >= 0) i.param = param_renamed[static_cast<size_t>(i.param)];
  }
  for (BodyStore& s : body.stores) s.param = param_renamed[static_cast<size_t>(s.param)];
  body.instrs = std::move(instrs);
  body.reductions = std::move(reductions);
  body.params = std::move(params);
  AssignPasses(body);
}

absl::StatusOr<KernelBody> BuildKernelBody(const LoopProgram& program, const FusionGroup& group) {
  FUSELINE_ASSIGN_OR_RETURN(KernelBody body, BodyBuilder(program, group).Build());
  RemoveDeadCode(body);
  return body;
}

std::string PrintKernelBody(const KernelBody& body) {
  std::string out = "loops [";
  for (size_t i = 0; i < body.extents.size(); ++i) {
    absl::StrAppend(&out, i ? ", " : "", body.reduced[i] ? "r" : "d", i, "<", body.extents[i]);
  }
  absl::StrAppend(&out, "], passes ", body.passes, "\n");
  for (size_t i = 0; i < body.instrs.size(); ++i) {
    const BodyInstr& instr = body.instrs[i];
    absl::StrAppend(&out, "  s", i, ": ", std::string(DTypeName(instr.scalar.type)), instr.full ? " full" : " row",
                    " @", instr.pass, " = ");
    switch (instr.kind) {
      case BodyInstr::Kind::kLoad:
        absl::StrAppend(&out, "load ", body.params[static_cast<size_t>(instr.param)].name, "[", instr.offset.ToString(),
                        "]");
        if (instr.scalar.args[0] >= 0) absl::StrAppend(&out, " where s", instr.scalar.args[0]);
        break;
      case BodyInstr::Kind::kGuard: {
        const char* separator = "";
        for (const IndexBound& b : instr.bounds) {
          absl::StrAppend(&out, separator, b.low, " <= ", b.value.ToString(), " < ", b.high);
          separator = " and ";
        }
        break;
      }
      case BodyInstr::Kind::kIndex:
        absl::StrAppend(&out, "index ", instr.offset.ToString());
        break;
      case BodyInstr::Kind::kReduction:
        absl::StrAppend(&out, "reduce s", body.reductions[static_cast<size_t>(instr.reduction)].value,
                        lowering::AccumulationName(body.reductions[static_cast<size_t>(instr.reduction)].accumulation));
        break;
      case BodyInstr::Kind::kOp:
        absl::StrAppend(&out, ScalarOpName(instr.scalar.op));
        if (instr.scalar.op == ScalarOp::kConst) {
          absl::StrAppend(&out, " ", instr.scalar.constant.AsDouble());
        }
        for (int32_t a : instr.scalar.args) {
          if (a >= 0) absl::StrAppend(&out, " s", a);
        }
    }
    absl::StrAppend(&out, "\n");
  }
  for (const BodyStore& s : body.stores) {
    absl::StrAppend(&out, "  store ", body.params[static_cast<size_t>(s.param)].name, "[", s.offset.ToString(), "] = s",
                    s.value, s.full ? " full" : " row", " @", s.pass, "\n");
  }
  return out;
}

}  // namespace fuseline::codegen
