// Products: MatMul, Gemm, Einsum, convolutions, determinants.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"
#include "client/onnx/window_geometry.h"

namespace fuseline::onnx_import {
namespace {

void ImportMatMul(OpCall& c) { c.Out(0, c.e.Emit("matmul", {c.In(0), c.In(1)})); }

void ImportGemm(OpCall& c) {
  const double alpha = c.Float("alpha", 1.0), beta = c.Float("beta", 1.0);
  c.Ignore("broadcast");
  Val a = c.In(0), b = c.In(1);
  if (c.ok() && (a.rank() != 2 || b.rank() != 2)) return c.Fail("the first two operands are not matrices");
  if (c.Int("transA", 0) != 0) a = c.e.Permute(a, {1, 0});
  if (c.Int("transB", 0) != 0) b = c.e.Permute(b, {1, 0});
  Val y = c.e.Emit("matmul", {a, b});
  if (alpha != 1.0) y = c.e.Cast(IsInteger(y.dtype()) ? c.e.Cast(y, DType::kF64) * alpha : y * alpha, a.dtype());
  if (c.Has(2) && beta != 0.0) {
    Val bias = c.In(2);
    if (beta != 1.0)
      bias = c.e.Cast(IsInteger(bias.dtype()) ? c.e.Cast(bias, DType::kF64) * beta : bias * beta, a.dtype());
    y = y + bias;
  }
  c.Out(0, y);
}

void ImportConv(OpCall& c) {
  const Val x = c.In(0);
  const Val w = c.In(1);
  if (!c.ok()) return;
  const Shape kernel_shape = w.shape();
  if (kernel_shape.size() < 3) return c.Fail("the weight has fewer than three dims");
  const Ints kernel(kernel_shape.begin() + 2, kernel_shape.end());
  if (c.IntList("kernel_shape", kernel) != kernel) return c.Fail("attribute 'kernel_shape' is not the weight's");
  const WindowGeometry g = ReadWindow(c, x.shape(), kernel);
  std::vector<Arg> args = {x, w};
  if (c.Has(2)) args.push_back(c.In(2));
  c.Out(0, c.e.Emit("conv", args,
                    {{"strides", g.strides},
                     {"padding", g.padding()},
                     {"dilation", g.dilations},
                     {"groups", c.Int("group", 1)}}));
}

void ImportConvTranspose(OpCall& c) {
  const Val x = c.In(0), w = c.In(1);
  if (!c.ok()) return;
  if (w.rank() < 3 || x.rank() != w.rank()) return c.Fail("the weight does not fit the operand");
  const Shape w_shape = w.shape();
  const Ints kernel(w_shape.begin() + 2, w_shape.end());
  const size_t n = kernel.size();
  if (c.IntList("kernel_shape", kernel) != kernel) return c.Fail("attribute 'kernel_shape' is not the weight's");
  const Ints strides = c.IntList("strides", Ints(n, 1)), dilations = c.IntList("dilations", Ints(n, 1));
  const Ints pads = c.IntList("pads", Ints(2 * n, 0)), wanted = c.IntList("output_shape", {});
  Ints extra = c.IntList("output_padding", Ints(n, 0));
  const std::string auto_pad = c.String("auto_pad", "NOTSET");
  constexpr int64_t kMaxSize = 1 << 20;
  for (const Ints* list : std::initializer_list<const Ints*>{&strides, &dilations, &extra, &pads, &wanted, &kernel}) {
    for (const int64_t v : *list) {
      if (v < 0 || v > kMaxSize) return c.Fail("strides, dilations, pads or sizes are out of range");
    }
  }
  if (strides.size() != n || dilations.size() != n || extra.size() != n || pads.size() != 2 * n ||
      (!wanted.empty() && wanted.size() != n)) {
    return c.Fail("'strides', 'dilations', 'output_padding', 'output_shape' or 'pads' has the wrong length");
  }
  Ints padding = pads;
  for (size_t d = 0; d < n; ++d) {
    const int64_t size = x.dim(static_cast<int64_t>(d) + 2);
    const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
    if (wanted.empty() && !same) continue;
    const int64_t full = strides[d] * (size - 1) + extra[d] + dilations[d] * (kernel[d] - 1) + 1;
    const int64_t total = full - (wanted.empty() ? size * strides[d] : wanted[d]);
    // SAME_UPPER puts the odd element at the end, everything else at the start. A result that is to be larger than it
    // can be filled is so at the end.
    padding[d] = total < 0 ? 0 : auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    padding[d + n] = total - padding[d];
  }
  // What would be padded by a negative number is zeros around the result, and so is output padding beyond the stride.
  Ints low(n, 0), high(n, 0);
  for (size_t d = 0; d < n; ++d) {
    low[d] = std::max<int64_t>(0, -padding[d]);
    high[d] = std::max<int64_t>(0, -padding[d + n]);
    padding[d] += low[d];
    padding[d + n] += high[d];
    if (extra[d] >= std::max(strides[d], dilations[d])) {
      high[d] += std::exchange(extra[d], 0);
    }
  }
  Val y = c.e.Emit("conv_transpose", {x, w},
                   {{"strides", strides},
                    {"padding", padding},
                    {"output_padding", extra},
                    {"dilation", dilations},
                    {"groups", c.Int("group", 1)}});
  y = c.e.Pad(y, WithLeadingZeros(low), WithLeadingZeros(high), 0);
  if (c.Has(2)) {
    Shape along(w_shape.size(), 1);
    along[1] = y.dim(1);
    y = y + c.e.Reshape(c.In(2), along);
  }
  c.Out(0, y);
}

// Columns [n, c * block, blocks], each put back at its block's elements and summed: a transposed convolution of each
// channel with a kernel that has a single 1 for each element of a block.
void ImportCol2Im(OpCall& c) {
  const Val x = c.In(0);
  const Ints image = c.KnownInts(1, "image_shape"), block = c.KnownInts(2, "block_shape");
  if (!c.ok()) return;
  const size_t n = image.size();
  const Ints strides = c.IntList("strides", Ints(n, 1)), dilations = c.IntList("dilations", Ints(n, 1));
  const Ints pads = c.IntList("pads", Ints(2 * n, 0));
  if (x.rank() != 3 || n < 1 || n > 3 || block.size() != n || strides.size() != n || dilations.size() != n ||
      pads.size() != 2 * n) {
    return c.Refuse("operands or attributes of this length are not supported");
  }
  constexpr int64_t kMaxSize = 1 << 20, kMaxBlock = 1024;
  int64_t elements = 1, blocks = 1;
  Ints extra, counts;
  for (size_t d = 0; d < n; ++d) {
    const int64_t bound = std::max({image[d], block[d], strides[d], dilations[d], pads[d], pads[d + n]});
    if (bound > kMaxSize || std::min({image[d], block[d], strides[d], dilations[d]}) < 1 || pads[d] < 0 ||
        pads[d + n] < 0)
      return c.Fail("a size is out of range");
    const int64_t room = image[d] + pads[d] + pads[d + n] - dilations[d] * (block[d] - 1) - 1;
    if (room < 0) return c.Fail("the block is larger than the image");
    elements *= block[d];
    counts.push_back(room / strides[d] + 1);
    blocks *= counts.back();
    extra.push_back(room % strides[d]);
    if (elements > kMaxBlock || blocks > GraphLimits().max_elements)
      return c.Refuse("a block this large is not supported");
  }
  if (x.dim(1) % elements != 0 || x.dim(2) != blocks) return c.Fail("the columns do not fit image and block");
  const int64_t channels = x.dim(1) / elements;
  Shape weight_shape = {x.dim(1), 1};
  weight_shape.insert(weight_shape.end(), block.begin(), block.end());
  Shape column_shape = {x.dim(0), x.dim(1)};
  column_shape.insert(column_shape.end(), counts.begin(), counts.end());
  if (channels > GraphLimits().max_elements / (elements * elements))
    return c.Refuse("channels this many are not supported");
  Tensor weight = Tensor::Allocate(x.dtype(), {elements, elements});
  for (int64_t i = 0; i < elements * elements; ++i) weight.SetDouble(i, i % elements == i / elements ? 1 : 0);
  const Val of_channels =
      c.e.BroadcastTo(c.e.Reshape(c.e.Constant(weight), {1, elements, elements}), {channels, elements, elements});
  c.Out(0, c.e.Emit("conv_transpose", {c.e.Reshape(x, column_shape), c.e.Reshape(of_channels, weight_shape)},
                    {{"strides", strides},
                     {"padding", pads},
                     {"output_padding", extra},
                     {"dilation", dilations},
                     {"groups", channels}}));
}

// Einsum with blanks left out, "..." written as letters and the result's indices spelled out.
void ImportEinsum(OpCall& c) {
  std::string equation;
  for (const char ch : c.String("equation", "")) {
    if (ch != ' ') equation += ch;
  }
  const std::vector<Val> values = c.AllIn();
  if (!c.ok()) return;
  if (equation.size() > 4096) return c.Fail("attribute 'equation' is too long");
  const size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (const char ch : left) {
    if (ch == ',') {
      terms.emplace_back();
    } else {
      terms.back() += ch;
    }
  }
  if (terms.size() != values.size()) return c.Fail("attribute 'equation' names another number of operands");
  // The letters of "...", which stand for the last of them in an operand with fewer dims.
  std::string free;
  for (const char* p = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"; *p != 0; ++p) {
    if (equation.find(*p) == std::string::npos) free += *p;
  }
  size_t longest = 0;
  std::vector<size_t> dots(terms.size(), 0);
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].find("...") == std::string::npos) continue;
    const auto rank = static_cast<size_t>(values[i].rank());
    if (rank + 3 < terms[i].size()) return c.Fail("attribute 'equation' names more dims than an operand has");
    dots[i] = rank + 3 - terms[i].size();
    longest = std::max(longest, dots[i]);
  }
  if (longest > free.size()) return c.Fail("attribute 'equation' leaves no letters");
  const std::string all = free.substr(0, longest);
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t at = terms[i].find("...");
    if (at != std::string::npos) terms[i].replace(at, 3, all.substr(longest - dots[i]));
  }
  std::string right;
  if (arrow != std::string::npos) {
    right = equation.substr(arrow + 2);
    const size_t at = right.find("...");
    if (at != std::string::npos) right.replace(at, 3, all);
  } else {
    // Without an arrow: "...", then the letters that occur once, in order.
    std::string once;
    for (const std::string& term : terms) {
      for (const char ch : term) {
        if (all.find(ch) == std::string::npos && std::count(left.begin(), left.end(), ch) == 1) once += ch;
      }
    }
    std::sort(once.begin(), once.end());
    right = all + once;
  }
  std::string spelled;
  for (const std::string& term : terms) absl::StrAppend(&spelled, spelled.empty() ? "" : ",", term);
  c.Out(0, c.e.Emit("einsum", std::vector<Arg>(values.begin(), values.end()),
                    {{"equation", absl::StrCat(spelled, "->", right)}}));
}

// The determinant of small matrices: by the first row's cofactors, as a list of minors of growing size.
void ImportDet(OpCall& c) {
  const Val x = c.In(0);
  const int64_t n = x.dim(-1);
  if (x.rank() < 2 || x.dim(-2) != n) return c.Fail("the operand has no square matrices");
  if (n < 1 || n > 4) return c.Refuse("determinants are imported of matrices up to 4 by 4 only");
  const auto element = [&](int64_t row, int64_t column) {
    const Val r = c.e.Slice(x, x.rank() - 2, row, row + 1);
    return c.e.Squeeze(c.e.Slice(r, x.rank() - 1, column, column + 1), {-2, -1});
  };
  // minors[mask]: the determinant of the last rows and the columns of `mask`.
  std::vector<Val> minors(size_t{1} << n);
  for (int64_t size = 1; size <= n; ++size) {
    const int64_t row = n - size;
    for (size_t mask = 1; mask < minors.size(); ++mask) {
      if (__builtin_popcountll(mask) != size) continue;
      Val sum;
      bool negative = false;
      for (int64_t column = 0; column < n; ++column) {
        const size_t bit = size_t{1} << column;
        if ((mask & bit) == 0) continue;
        Val term = size == 1 ? element(row, column) : element(row, column) * minors[mask & ~bit];
        sum = !sum.ok() ? term : negative ? sum - term : sum + term;
        negative = !negative;
      }
      minors[mask] = sum;
    }
  }
  c.Out(0, minors.back());
}

}  // namespace

void AddContractionImporters(ImporterTable& table) {
  table["MatMul"] = ImportMatMul;
  table["Gemm"] = ImportGemm;
  table["Conv"] = ImportConv;
  table["ConvTranspose"] = ImportConvTranspose;
  table["Col2Im"] = ImportCol2Im;
  table["Einsum"] = ImportEinsum;
  table["Det"] = ImportDet;
}

}  // namespace fuseline::onnx_import
