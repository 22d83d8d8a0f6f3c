// Contractions by their definitions: every product of every element, in long double. Tested by
// tests/unit/reference/reference_contractions_test.cc
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

// Factors are rounded to their dtype before they are multiplied; integers wrap in the result's dtype.
class Products {
 public:
  Products(const OpContext& context, const std::vector<Array>& operands, size_t factors)
      : context_(context), result_(Array::Make(context.result_types[0].dtype, context.result_types[0].shape())) {
    for (size_t k = 0; k < operands.size(); ++k) {
      arrays_.push_back(k < factors ? Dense(Stored(operands[k])) : Dense(operands[k]));
      strides_.push_back(DenseStrides(arrays_.back().shape));
    }
  }

  const Shape& shape(size_t k) const { return arrays_[k].shape; }
  const Shape& result_shape() const { return result_.shape; }
  int64_t stride(size_t k, size_t dim) const { return strides_[k][dim]; }
  bool is_float() const { return result_.is_float(); }

  double Float(size_t k, int64_t at) const { return (*arrays_[k].f)[static_cast<size_t>(at)]; }
  uint64_t Int(size_t k, int64_t at) const { return static_cast<uint64_t>((*arrays_[k].i)[static_cast<size_t>(at)]); }

  // Of a sum one of the two counts, as the result's dtype says.
  struct Sum {
    long double f = 0;
    uint64_t i = 0;
  };
  static Sum One() { return {1, 1}; }
  static constexpr int64_t kPadding = -1;   // in place of an element: a zero
  static constexpr int64_t kNoFactor = -2;  // nothing

  void Begin() { sum_ = {}; }
  // Adds the product of `times` and element at[k] of each factor k.
  void Add(const std::vector<int64_t>& at, const Sum& times = One()) {
    Sum product = times;
    for (size_t k = 0; k < at.size(); ++k) {
      if (at[k] == kNoFactor) continue;
      if (is_float()) {
        product.f *= at[k] == kPadding ? 0.0 : Float(k, at[k]);
      } else {
        product.i *= at[k] == kPadding ? 0 : Int(k, at[k]);
      }
    }
    sum_.f += product.f;
    sum_.i += product.i;
  }
  const Sum& sum() const { return sum_; }
  // The sum, with element `bias` of operand 2 where it is not -1, as element `to` of the result.
  void End(int64_t to, int64_t bias = -1) {
    if (bias >= 0 && is_float()) sum_.f += static_cast<long double>(Float(2, bias));
    if (bias >= 0 && !is_float()) sum_.i += Int(2, bias);
    Store(to, sum_);
  }
  void Store(int64_t to, const Sum& sum) {
    if (is_float()) {
      (*result_.f)[static_cast<size_t>(to)] = context_.Round(static_cast<double>(sum.f));
    } else {
      (*result_.i)[static_cast<size_t>(to)] = WrapInteger(result_.dtype, static_cast<int64_t>(sum.i));
    }
  }
  bool has_bias() const { return arrays_.size() > 2; }
  Array Take() { return std::move(result_); }

 private:
  const OpContext& context_;
  std::vector<Array> arrays_;
  std::vector<Shape> strides_;
  Array result_;
  Sum sum_;
};

// Calls body(position) for every position of `shape`, in row-major order.
void ForEachPosition(const Shape& shape, const std::function<void(const Shape&)>& body) {
  if (ElementCount(shape) == 0) return;
  Shape position(shape.size(), 0);
  for (;;) {
    body(position);
    size_t d = shape.size();
    for (;;) {
      if (d == 0) return;
      --d;
      if (++position[d] < shape[d]) break;
      position[d] = 0;
    }
  }
}

// The offset of the batch dims of factor k (all but the last `inner`) for a position of the result's batch dims.
int64_t BatchOffset(const Products& products, size_t k, size_t inner, const Shape& batch) {
  const Shape& shape = products.shape(k);
  const size_t dims = shape.size() < inner ? 0 : shape.size() - inner;
  int64_t offset = 0;
  for (size_t d = 0; d < dims; ++d) {
    if (shape[d] != 1) offset += batch[batch.size() - dims + d] * products.stride(k, d);
  }
  return offset;
}

Array Matmul(Products& products) {
  const size_t rank_a = products.shape(0).size(), rank_b = products.shape(1).size();
  const int64_t inner = products.shape(0).back();
  int64_t to = 0;
  ForEachPosition(products.result_shape(), [&](const Shape& position) {
    Shape batch = position;
    int64_t row = 0, column = 0;
    if (rank_b > 1) {
      column = batch.back();
      batch.pop_back();
    }
    if (rank_a > 1) {
      row = batch.back();
      batch.pop_back();
    }
    int64_t a = BatchOffset(products, 0, 2, batch);
    int64_t b = BatchOffset(products, 1, 2, batch);
    if (rank_a > 1) a += row * products.stride(0, rank_a - 2);
    if (rank_b > 1) b += column;
    const int64_t step = rank_b > 1 ? products.stride(1, rank_b - 2) : 1;
    products.Begin();
    for (int64_t k = 0; k < inner; ++k) products.Add({a + k, b + k * step});
    products.End(to++);
  });
  return products.Take();
}

Array Linear(Products& products) {
  const int64_t out = products.shape(1)[0], in = products.shape(1)[1];
  for (int64_t to = 0, count = ElementCount(products.result_shape()); to < count; ++to) {
    const int64_t column = to % out;
    products.Begin();
    for (int64_t k = 0; k < in; ++k) products.Add({to / out * in + k, column * in + k});
    products.End(to, products.has_bias() ? column : -1);
  }
  return products.Take();
}

// By name: a letter is itself, the dims of "..." are numbered from the right.
Array Einsum(const OpContext& context, Products& products, size_t operands) {
  std::string equation;
  for (char c : context.String("equation")) {
    if (c != ' ') equation += c;
  }
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (char c : left) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  size_t most = 0;  // dims of an ellipsis
  const auto names_of = [](const std::string& term, size_t dims) {
    std::vector<std::string> names;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i] != '.') {
        names.push_back(std::string(1, term[i]));
        continue;
      }
      for (size_t e = dims; e-- > 0;) names.push_back(absl::StrCat(".", e));
      i += 2;
    }
    return names;
  };
  std::vector<std::vector<std::string>> names;
  std::map<std::string, int64_t> sizes;
  std::map<char, int> uses;
  for (size_t k = 0; k < operands; ++k) {
    const bool dots = terms[k].find('.') != std::string::npos;
    const size_t dims = dots ? products.shape(k).size() + 3 - terms[k].size() : 0;
    most = std::max(most, dims);
    names.push_back(names_of(terms[k], dims));
    for (size_t d = 0; d < names[k].size(); ++d) {
      int64_t& size = sizes.emplace(names[k][d], 1).first->second;
      if (products.shape(k)[d] != 1) size = products.shape(k)[d];
    }
    for (char c : terms[k]) ++uses[c];
  }
  std::string right;
  if (arrow != std::string::npos) {
    right = equation.substr(arrow + 2);
  } else {
    right = most > 0 ? "..." : "";
    for (const auto& [c, count] : uses) {
      if (c != '.' && count == 1) right += c;
    }
  }
  const std::vector<std::string> result_names = names_of(right, most);
  // From left to right: a partial result has what a later operand or the result needs, and is not rounded.
  std::vector<std::string> partial_names;
  std::vector<Products::Sum> partial = {Products::One()};
  for (size_t k = std::min<size_t>(1, operands - 1); k < operands; ++k) {
    const size_t first = k == 1 ? 0 : k;
    std::set<std::string> known(partial_names.begin(), partial_names.end());
    for (size_t o = first; o <= k; ++o) known.insert(names[o].begin(), names[o].end());
    std::set<std::string> needed(result_names.begin(), result_names.end());
    for (size_t o = k + 1; o < operands; ++o) needed.insert(names[o].begin(), names[o].end());
    std::vector<std::string> kept, reduced;
    for (const std::string& name : known) (needed.count(name) > 0 ? kept : reduced).push_back(name);
    if (k + 1 == operands) kept = result_names;
    const auto shape_of = [&](const std::vector<std::string>& dims) {
      Shape shape;
      for (const std::string& name : dims) shape.push_back(sizes[name]);
      return shape;
    };
    const Shape partial_strides = DenseStrides(shape_of(partial_names));
    std::vector<Products::Sum> sums;
    std::map<std::string, int64_t> at;
    ForEachPosition(shape_of(kept), [&](const Shape& position) {
      for (size_t d = 0; d < kept.size(); ++d) at[kept[d]] = position[d];
      products.Begin();
      ForEachPosition(shape_of(reduced), [&](const Shape& inner) {
        for (size_t d = 0; d < reduced.size(); ++d) at[reduced[d]] = inner[d];
        std::vector<int64_t> offsets(operands, Products::kNoFactor);
        for (size_t o = first; o <= k; ++o) {
          offsets[o] = 0;
          for (size_t d = 0; d < names[o].size(); ++d) {
            if (products.shape(o)[d] != 1) offsets[o] += at[names[o][d]] * products.stride(o, d);
          }
        }
        size_t from = 0;
        for (size_t d = 0; d < partial_names.size(); ++d)
          from += static_cast<size_t>(at[partial_names[d]] * partial_strides[d]);
        products.Add(offsets, partial[from]);
      });
      sums.push_back(products.sum());
    });
    partial_names = std::move(kept);
    partial = std::move(sums);
  }
  for (size_t to = 0; to < partial.size(); ++to) products.Store(static_cast<int64_t>(to), partial[to]);
  return products.Take();
}

// An attribute that may be absent or one number for all.
std::vector<int64_t> PerDim(const OpContext& context, const char* name, size_t dims, int64_t absent) {
  std::vector<int64_t> list = context.Ints(name);
  if (list.empty()) list.push_back(absent);
  if (list.size() < dims) list.resize(dims, list[0]);
  return list;
}

// conv: result o takes input o stride - low + k dilation. conv_transpose: input i gives to i stride - low + k dilation.
Array Conv(const OpContext& context, Products& products, bool transposed) {
  const Shape& x = products.shape(0);
  const Shape& w = products.shape(1);
  const size_t dims = x.size() - 2;
  const std::vector<int64_t> strides = PerDim(context, "strides", dims, 1);
  const std::vector<int64_t> dilation = PerDim(context, "dilation", dims, 1);
  const std::vector<int64_t> low = PerDim(context, "padding", dims, 0);
  const int64_t groups = context.Int("groups");
  const int64_t in_of_group = x[1] / groups;
  const int64_t out_of_group = products.result_shape()[1] / groups;
  const Shape taps(w.begin() + 2, w.end());
  int64_t to = 0;
  ForEachPosition(products.result_shape(), [&](const Shape& position) {
    const int64_t group = position[1] / out_of_group, out = position[1] % out_of_group;
    products.Begin();
    for (int64_t c = 0; c < in_of_group; ++c) {
      const int64_t channel = group * in_of_group + c;
      ForEachPosition(taps, [&](const Shape& tap) {
        int64_t at_x = position[0] * products.stride(0, 0) + channel * products.stride(0, 1);
        int64_t at_w = transposed ? channel * products.stride(1, 0) + out * products.stride(1, 1)
                                  : position[1] * products.stride(1, 0) + c * products.stride(1, 1);
        bool inside = true;
        for (size_t d = 0; d < dims; ++d) {
          int64_t place = transposed ? position[2 + d] + low[d] - tap[d] * dilation[d]
                                     : position[2 + d] * strides[d] - low[d] + tap[d] * dilation[d];
          if (transposed) {
            inside = inside && place >= 0 && place % strides[d] == 0;
            place /= strides[d];
          }
          inside = inside && place >= 0 && place < x[2 + d];
          at_x += place * products.stride(0, 2 + d);
          at_w += tap[d] * products.stride(1, 2 + d);
        }
        products.Add({inside ? at_x : Products::kPadding, at_w});
      });
    }
    products.End(to++, products.has_bias() ? position[1] : -1);
  });
  return products.Take();
}

}  // namespace

absl::StatusOr<Array> EvaluateContraction(const OpContext& context, const std::vector<Array>& operands) {
  const std::string& op = context.node.op;
  Products products(context, operands, op == "einsum" ? operands.size() : 2);
  if (op == "matmul") return Matmul(products);
  if (op == "linear") return Linear(products);
  if (op == "einsum") return Einsum(context, products, operands.size());
  if (op == "conv") return Conv(context, products, false);
  if (op == "conv_transpose") return Conv(context, products, true);
  return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
}

}  // namespace fuseline::reference
