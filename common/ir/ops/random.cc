// Random numbers: Philox-4x32-10. A block is 4 words of 32 random bits; element e (in row-major order) of a result
// takes the words [e w, e w + w) counted from block `offset` on under the key `seed`, where w is how many it needs (1,
// 2 or 4) and the operand `seed` is i64[2] = seed and offset. The numbers depend on nothing else, so they are the same
// whatever is fused, tiled or recomputed; and neighbours share a block, which a compiler that has them side by side
// computes once.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/ir/ops/decomposition_emitter.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/ir/philox.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;
using Values = absl::StatusOr<std::vector<ValueId>>;

absl::Status CheckSeed(const TensorType& seed, const char* name) {
  if (seed.dtype == DType::kI64 && seed.shape() == Shape{2}) return absl::OkStatus();
  return TypeError(absl::StrCat(name, " is ", seed.ToString(), ", not i64[2], a seed and an offset"));
}

// --- philox, the compiler's own: word {0, …, 3} of block `counter` under the key `seed`, in [0, 2^32). ---

Types PhiloxRule(const InferArgs& args) {
  if (args.operands[0].dtype != DType::kI64) return TypeError("takes i64");
  if (args.Int("word") < 0 || args.Int("word") > 3) return TypeError("attribute 'word' must be 0, 1, 2 or 3");
  return SameTypeRule(args, DTypeSet::kIntegers);
}

Scalar PhiloxScalar(ScalarArgs& a) {
  ScalarInstr instr;
  instr.op = ScalarOp::kPhilox;
  instr.type = DType::kI64;
  instr.args[0] = a[0].id;
  instr.args[1] = a[1].id;
  instr.index = static_cast<int32_t>(a.Number("word"));
  return a.builder->EmitInstr(instr);
}

int64_t PhiloxReference(const ReferenceArgs& r) {
  return PhiloxBlock(static_cast<uint64_t>(r.i[0]),
                     static_cast<uint64_t>(r.i[1]))[static_cast<size_t>(r.Number("word"))];
}

// --- rand, randn, dropout. ---

Types RandomRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckSeed(args.operands[0], "operand 0"));
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.Type("dtype"), DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckShape(args.Ints("shape"), args.limits));
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.Ints("shape"))};
}

Types DropoutRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckSeed(args.operands[1], "operand 1"));
  const double p = args.Number("p");
  if (!(p >= 0 && p <= 1)) return TypeError(absl::StrCat("attribute 'p' must be between 0 and 1, not ", p));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, args.operands[0].shape())};
}

// The random words of a tensor's elements, `words` for each: 1, 2 or 4.
class Blocks {
 public:
  Blocks(Emitter& e, ValueId seed, const Shape& shape, int64_t words) : e_(e), words_(words), key_(Part(seed, 0)) {
    const int64_t count = ElementCount(shape);
    const int64_t shared = 4 / words;  // elements of a block
    // The block's number is a view of the numbers of all blocks: an index expression, which is seen to be the same for
    // neighbours.
    ValueId block = Numbers((count + shared - 1) / shared);
    if (shared > 1) {
      block = e_.Op("repeat_interleave", {Emitter::V(block)}, {{"repeats", shared}, {"dim", int64_t{0}}});
      block = e_.Op("slice", {Emitter::V(block)},
                    {{"starts", std::vector<int64_t>{0}}, {"ends", std::vector<int64_t>{count}}});
      place_ = e_.Op("bitwise_and", {Emitter::V(e_.Reshape(Numbers(count), shape)), GraphBuilder::Integer(shared - 1)});
    }
    counter_ = e_.Add(e_.Reshape(block, shape), Part(seed, 1));
  }
  // Word `k` of those of an element.
  ValueId Word(int64_t k) {
    ValueId chosen = BlockWord(4 - words_ + k);
    for (int64_t place = 4 / words_ - 1; place-- > 0;) {
      const ValueId here = e_.Op("eq", {Emitter::V(place_), GraphBuilder::Integer(place)});
      chosen = e_.Op("where", {Emitter::V(here), Emitter::V(BlockWord(place * words_ + k)), Emitter::V(chosen)});
    }
    return chosen;
  }
  // The upper bits of a word.
  ValueId UpperBits(int64_t word, int64_t bits) { return Shift("shift_right", Word(word), 32 - bits); }
  // 53 bits of two words.
  ValueId Bits53(int64_t word) { return e_.Add(Shift("shift_left", UpperBits(word, 27), 26), UpperBits(word + 1, 26)); }

 private:
  ValueId Numbers(int64_t count) {
    return e_.Op("iota", {}, {{"shape", std::vector<int64_t>{count}}, {"dim", int64_t{0}}, {"dtype", DType::kI64}});
  }
  ValueId BlockWord(int64_t word) {
    return e_.Op("philox", {Emitter::V(key_), Emitter::V(counter_)}, {{"word", word}});
  }
  ValueId Part(ValueId seed, int64_t k) {
    return e_.Reshape(e_.Op("slice", {Emitter::V(seed)},
                            {{"starts", std::vector<int64_t>{k}}, {"ends", std::vector<int64_t>{k + 1}}}),
                      {});
  }
  ValueId Shift(const char* op, ValueId bits, int64_t by) {
    return e_.Op(op, {Emitter::V(bits), GraphBuilder::Integer(by)});
  }
  Emitter& e_;
  int64_t words_;
  ValueId key_;
  ValueId counter_ = kNoValue;
  ValueId place_ = kNoValue;  // the element's among those of its block
};

ValueId Scaled(Emitter& e, ValueId bits, double scale, DType dtype) {
  return e.Op("mul", {Emitter::V(e.Op("cast", {Emitter::V(bits)}, {{"dtype", dtype}})), Emitter::N(scale)});
}

// In [0, 1): as many bits as the dtype holds below 1, so that none rounds up to it.
Values DecomposeRand(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = std::get<DType>(node.attrs.find("dtype")->second);
  Blocks blocks(e, operands[0], std::get<std::vector<int64_t>>(node.attrs.find("shape")->second),
                dtype == DType::kF64 ? 2 : 1);
  if (dtype == DType::kF64) return e.Done({Scaled(e, blocks.Bits53(0), 0x1p-53, dtype)});
  const int bits = dtype == DType::kF32 ? 24 : dtype == DType::kF16 ? 11 : 8;
  const ValueId uniform = Scaled(e, blocks.UpperBits(0, bits), std::ldexp(1.0, -bits), DType::kF32);
  return e.Done({e.Narrow(uniform, dtype)});
}

// Box and Muller: sqrt(-2 log(u)) cos(2 pi v), with u in (0, 1] and v in [0, 1).
Values DecomposeRandn(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  constexpr double kTwoPi = 6.283185307179586477;
  Emitter e(builder, node);
  const DType dtype = std::get<DType>(node.attrs.find("dtype")->second);
  const bool f64 = dtype == DType::kF64;
  Blocks blocks(e, operands[0], std::get<std::vector<int64_t>>(node.attrs.find("shape")->second), f64 ? 4 : 2);
  const double unit = f64 ? 0x1p-53 : 0x1p-32;
  const ValueId bits = f64 ? blocks.Bits53(0) : blocks.Word(0);
  const ValueId u = e.Op("add", {Emitter::V(Scaled(e, bits, unit, ComputeDType(dtype))), Emitter::N(unit / 2)});
  const ValueId angle = f64 ? Scaled(e, blocks.Bits53(2), 0x1p-53 * kTwoPi, dtype)
                            : Scaled(e, blocks.UpperBits(1, 24), 0x1p-24 * kTwoPi, DType::kF32);
  const ValueId radius = e.Unary("sqrt", e.Op("mul", {Emitter::V(e.Unary("log", u)), Emitter::N(-2.0)}));
  return e.Done({e.Narrow(e.Mul(radius, e.Unary("cos", angle)), dtype)});
}

// An element is dropped where its 32 bits are below p 2^32.
Values DecomposeDropout(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const double p = e.Number("p");
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  Blocks blocks(e, operands[1], e.shape(x), 1);
  const ValueId kept = e.Op("ge", {Emitter::V(blocks.Word(0)), GraphBuilder::Integer(std::llround(std::ldexp(p, 32)))});
  const ValueId scaled = e.Op("mul", {Emitter::V(x), Emitter::N(p < 1 ? 1 / (1 - p) : 0.0)});
  return e.Done({e.Narrow(e.Op("where", {Emitter::V(kept), Emitter::V(scaled), Emitter::N(0.0)}), dtype)});
}

OpDef Row(const char* name, int operands, TypeRule infer, Decomposition decompose, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kComposite;
  row.min_operands = row.max_operands = operands;
  row.infer = infer;
  row.decompose = decompose;
  row.attrs = std::move(attrs);
  return row;
}

}  // namespace

void AddRandomRows(std::vector<OpDef>& rows) {
  const std::vector<AttrSpec> made = {{"shape", AttrType::kIntList, true}, {"dtype", AttrType::kDType, true}};
  rows.push_back(PointwiseRow("philox", 2, PhiloxRule, PhiloxScalar, nullptr, PhiloxReference,
                              {{"word", AttrType::kInt, false, AttrValue(int64_t{0})}}));
  rows.push_back(Row("rand", 1, RandomRule, DecomposeRand, made));
  rows.push_back(Row("randn", 1, RandomRule, DecomposeRandn, made));
  rows.push_back(Row("dropout", 2, DropoutRule, DecomposeDropout, {{"p", AttrType::kFloat, false, AttrValue(0.5)}}));
}

}  // namespace fuseline::ops
