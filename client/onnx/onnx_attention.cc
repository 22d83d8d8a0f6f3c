// Attention, RotaryEmbedding, TensorScatter: what models of text are built of since opset 23.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [batch, length, heads * size] -> [batch, heads, length, size]
Val SplitHeads(OpCall& c, Val x, int64_t heads) {
  if (x.rank() != 3) return x;
  if (heads <= 0 || x.dim(2) % heads != 0) {
    c.Fail("attributes 'q_num_heads' and 'kv_num_heads' do not divide the last dims");
    return x;
  }
  return c.e.Permute(c.e.Reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

struct AttentionCall {
  Val q, k, v;              // [batch, heads, length, size]
  int64_t past = 0;         // positions of the keys before the first query's
  std::optional<Val> mask;  // bool, or added to the scores
};

// Which keys each query may see: causal, and no more than a window away. Positions of queries begin at `past`, or
// where the valid keys of each sample end.
std::optional<Val> Allowed(OpCall& c, const AttentionCall& a) {
  const bool causal = c.Int("is_causal", 0) != 0;
  const int64_t left = c.Int("left_window_size", -1), right = c.Int("right_window_size", -1);
  const bool has_lengths = c.Has(6);
  if (!causal && left < 0 && right < 0 && !has_lengths) return std::nullopt;
  const int64_t queries = a.q.dim(2), keys = a.k.dim(2);
  const Val key = c.e.Iota(DType::kI64, {1, 1, 1, keys}, 3);
  Val query = c.e.Iota(DType::kI64, {1, 1, queries, 1}, 2) + static_cast<double>(a.past);
  std::optional<Val> allowed;
  const auto also = [&](Val condition) {
    allowed = allowed.has_value() ? Apply("logical_and", *allowed, condition) : condition;
  };
  if (has_lengths) {
    const Val lengths = c.e.Reshape(c.e.Cast(c.In(6), DType::kI64), {a.q.dim(0), 1, 1, 1});
    query = query + (lengths - static_cast<double>(queries));
    also(Apply("lt", key, lengths));
  }
  if (causal) also(Apply("le", key, query));
  if (left >= 0) also(Apply("le", query - key, static_cast<double>(left)));
  if (right >= 0) also(Apply("le", key - query, static_cast<double>(right)));
  return allowed;
}

// The operand, for all keys: those that it does not name are masked.
Val GivenMask(OpCall& c, const AttentionCall& a) {
  const Val mask = c.In(3);
  const bool is_bool = IsBool(mask.dtype());
  const int64_t missing = mask.rank() > 0 ? a.k.dim(2) - mask.dim(-1) : 0;
  if (missing <= 0 || mask.dim(-1) == 1) return is_bool ? mask : c.e.Cast(mask, a.q.dtype());
  Ints low(static_cast<size_t>(mask.rank()), 0), high = low;
  high.back() = missing;
  if (!is_bool) return c.e.Cast(c.e.Pad(mask, low, high, -kInfinity), a.q.dtype());
  return c.e.Emit("pad", {mask}, {{"low", low}, {"high", high}});
}

void AddMasks(OpCall& c, AttentionCall& a) {
  const std::optional<Val> allowed = Allowed(c, a);
  if (c.Has(3)) a.mask = GivenMask(c, a);
  if (!allowed.has_value()) return;
  if (!a.mask.has_value()) {
    a.mask = allowed;
  } else if (IsBool(a.mask->dtype())) {
    a.mask = Apply("logical_and", *a.mask, *allowed);
  } else {
    a.mask = c.e.Where(*allowed, *a.mask, -kInfinity);
  }
}

// Step by step, where something between the steps is asked for. Modes of the scores that are returned: 0 as they are, 1
// after softcap, 2 after the mask, 3 after the softmax.
void AttentionInSteps(OpCall& c, const AttentionCall& a, double scale, double softcap, Val& y, Val& returned) {
  const int64_t repeats = a.q.dim(1) / std::max<int64_t>(a.k.dim(1), 1), mode = c.Int("qk_matmul_output_mode", 0);
  const auto for_each_query_head = [&](Val x) {
    return repeats == 1 ? x : c.e.Emit("repeat_interleave", {x}, {{"repeats", repeats}, {"dim", 1}});
  };
  const double root = std::sqrt(scale);
  Val scores = c.e.Emit("matmul", {a.q * root, c.e.Permute(for_each_query_head(a.k), {0, 1, 3, 2}) * root});
  returned = scores;
  if (softcap != 0) scores = Apply("tanh", scores / softcap) * softcap;
  if (mode == 1) returned = scores;
  std::optional<Val> hidden;  // rows that see nothing
  if (a.mask.has_value() && IsBool(a.mask->dtype())) {
    scores = c.e.Where(*a.mask, scores, -kInfinity);
    hidden = Apply("logical_not", c.e.Emit("any", {*a.mask}, {{"dims", Ints{-1}}, {"keepdim", true}}));
  } else if (a.mask.has_value()) {
    scores = scores + *a.mask;
    hidden = Apply("eq", c.e.Emit("amax", {*a.mask}, {{"dims", Ints{-1}}, {"keepdim", true}}), -kInfinity);
  }
  if (mode == 2) returned = scores;
  Val weights = c.e.Emit("softmax", {scores}, {{"dim", int64_t{3}}});
  if (hidden.has_value()) weights = c.e.Where(*hidden, 0.0, weights);
  if (mode == 3) returned = weights;
  y = c.e.Emit("matmul", {weights, for_each_query_head(a.v)});
}

void ImportAttention(OpCall& c) {
  const int64_t query_heads = c.Int("q_num_heads", 0), key_heads = c.Int("kv_num_heads", 0);
  const bool flat = c.InShape(0).size() == 3;
  AttentionCall a;
  a.q = SplitHeads(c, c.In(0), query_heads);
  a.k = SplitHeads(c, c.In(1), key_heads);
  a.v = SplitHeads(c, c.In(2), key_heads);
  if (!c.ok()) return;
  if (a.q.rank() != 4 || a.k.rank() != 4 || a.v.rank() != 4)
    return c.Fail("the operands have other ranks than 3 and 4");
  if (c.Has(4) != c.Has(5)) return c.Fail("'past_key' and 'past_value' come together");
  if (c.Has(4)) {
    a.past = c.In(4).dim(2);
    a.k = c.e.Concat({c.In(4), a.k}, 2);
    a.v = c.e.Concat({c.In(5), a.v}, 2);
  }
  const Val present_key = a.k, present_value = a.v;
  a.v = c.e.Cast(a.v, a.q.dtype());
  AddMasks(c, a);
  const double scale = c.Float("scale", 1 / std::sqrt(static_cast<double>(std::max<int64_t>(a.q.dim(3), 1))));
  const double softcap = c.Float("softcap", 0);
  c.Ignore("softmax_precision");  // 16-bit floats are computed in f32 in any case
  c.Ignore("qk_matmul_output_mode");
  if (!c.ok()) return;
  if (scale < 0) return c.Refuse("attribute 'scale' is negative");
  if (a.q.dim(1) % std::max<int64_t>(a.k.dim(1), 1) != 0) return c.Fail("the heads of Q are no multiple of those of K");
  Val y, returned;
  if (softcap == 0 && !c.WantsOut(3)) {
    std::vector<Arg> operands = {a.q, a.k, a.v};
    if (a.mask.has_value()) operands.emplace_back(*a.mask);
    y = c.e.Emit("attention", operands, {{"scale", scale}});
  } else {
    AttentionInSteps(c, a, scale, softcap, y, returned);
  }
  if (flat) y = c.e.Reshape(c.e.Permute(y, {0, 2, 1, 3}), {y.dim(0), y.dim(2), y.dim(1) * y.dim(3)});
  c.Out(0, y);
  if (c.WantsOut(1)) c.Out(1, present_key);
  if (c.WantsOut(2)) c.Out(2, present_value);
  if (c.WantsOut(3)) c.Out(3, returned);
}

// Pairs of elements, turned by the angle of their position.
void ImportRotaryEmbedding(OpCall& c) {
  Val x = c.In(0);
  const bool flat = x.rank() == 3, interleaved = c.Int("interleaved", 0) != 0;
  const int64_t heads = c.Int("num_heads", 0);
  if (flat) x = SplitHeads(c, x, heads);
  if (!c.ok()) return;
  if (x.rank() != 4) return c.Fail("the operand has another rank than 3 or 4");
  const int64_t size = x.dim(3), length = x.dim(2);
  int64_t turned = c.Int("rotary_embedding_dim", 0);
  if (turned == 0) turned = size;
  if (turned < 2 || turned > size || turned % 2 != 0) return c.Fail("attribute 'rotary_embedding_dim' is out of range");
  // [batch, 1, length, turned / 2]
  const auto of_positions = [&](Val cache) {
    if (c.Has(3)) {
      const Val index = c.In(3);
      const Val rows = c.e.Emit("index_select", {cache, c.e.Reshape(index, {index.count()})}, {{"dim", int64_t{0}}});
      cache = c.e.Reshape(rows, {index.dim(0), index.dim(1), cache.dim(1)});
    }
    return c.e.Unsqueeze(cache, 1);
  };
  const Val cosine = of_positions(c.In(1)), sine = of_positions(c.In(2));
  if (!c.ok()) return;
  if (cosine.dim(-1) != turned / 2 || sine.dim(-1) != turned / 2 || cosine.dim(-2) != length)
    return c.Fail("the caches do not fit the operand");
  const int64_t step = interleaved ? 2 : 1, second = interleaved ? 1 : turned / 2;
  const Val first_half = c.e.Slice(x, 3, 0, interleaved ? turned : second, step);
  const Val second_half = c.e.Slice(x, 3, second, turned, step);
  const Val real = cosine * first_half - sine * second_half, imaginary = sine * first_half + cosine * second_half;
  Val y;
  if (interleaved) {
    Shape shape = x.shape();
    shape[3] = turned;
    y = c.e.Reshape(c.e.Concat({c.e.Unsqueeze(real, 4), c.e.Unsqueeze(imaginary, 4)}, 4), shape);
  } else {
    y = c.e.Concat({real, imaginary}, 3);
  }
  if (turned < size) y = c.e.Concat({y, c.e.Slice(x, 3, turned, size)}, 3);
  if (flat) y = c.e.Reshape(c.e.Permute(y, {0, 2, 1, 3}), {y.dim(0), y.dim(2), y.dim(1) * y.dim(3)});
  c.Out(0, y);
}

// Rows of a cache, overwritten from a position of each sample's own.
void ImportTensorScatter(OpCall& c) {
  const Val cache = c.In(0), update = c.In(1);
  const int64_t axis = c.Axis(c.Int("axis", -2), cache.rank());
  const std::string mode = c.String("mode", "linear");
  if (!c.ok()) return;
  if (axis == 0 || update.rank() != cache.rank()) return c.Fail("attribute 'axis' or an operand's rank is wrong");
  if (mode != "linear" && mode != "circular") return c.Fail("attribute 'mode' is neither linear nor circular");
  Val index = c.e.Iota(DType::kI64, update.shape(), axis);
  if (c.Has(2)) {
    Shape of_samples(static_cast<size_t>(cache.rank()), 1);
    of_samples[0] = cache.dim(0);
    index = index + c.e.Reshape(c.e.Cast(c.In(2), DType::kI64), of_samples);
  }
  if (mode == "circular") index = Apply("remainder", index, static_cast<double>(cache.dim(axis)));
  c.Out(0, c.e.Emit("scatter", {cache, index, update}, {{"dim", axis}}));
}

}  // namespace

void AddAttentionImporters(ImporterTable& table) {
  table["Attention"] = ImportAttention;
  table["RotaryEmbedding"] = ImportRotaryEmbedding;
  table["TensorScatter"] = ImportTensorScatter;
}

}  // namespace fuseline::onnx_import
