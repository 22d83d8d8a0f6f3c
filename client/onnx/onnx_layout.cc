// Ops that move elements: reshapes, slices, pads, splits and what is made of them.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

void ImportReshape(OpCall& c) {
  c.Ignore("consumed_inputs");
  const Val x = c.In(0);
  const bool allow_zero = c.Int("allowzero", 0) != 0;
  Shape shape = c.IntsFrom(1, "shape").value_or(Shape());
  if (!c.ok()) return;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 0 || allow_zero) continue;
    if (static_cast<int64_t>(d) >= x.rank()) return c.Fail("a 0 in the shape has no dim to copy");
    shape[d] = x.dim(static_cast<int64_t>(d));
  }
  // Beside a 0 no size can be inferred; nothing but 0 elements may be meant.
  if (x.count() == 0) std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{0});
  c.Out(0, c.e.Reshape(x, shape));
}

void ImportTranspose(OpCall& c) {
  const Val x = c.In(0);
  Ints perm(static_cast<size_t>(x.rank()));
  for (size_t d = 0; d < perm.size(); ++d) perm[d] = x.rank() - 1 - static_cast<int64_t>(d);
  perm = c.IntList("perm", perm);
  c.Out(0, c.e.Emit("permute", {x}, {{"dims", perm}}));
}

void ImportSqueeze(OpCall& c) {
  const Val x = c.In(0);
  std::optional<Ints> axes = c.IntsFrom(1, "axes");
  if (!axes.has_value()) {
    axes = Ints();
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (x.dim(d) == 1) axes->push_back(d);
    }
  }
  c.Out(0, c.e.Squeeze(x, *axes));
}

void ImportUnsqueeze(OpCall& c) {
  const Val x = c.In(0);
  Ints axes = c.IntsFrom(1, "axes").value_or(Ints());
  if (axes.size() > static_cast<size_t>(GraphLimits().max_rank)) return c.Fail("too many axes");
  const int64_t rank = x.rank() + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) axis = c.Axis(axis, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return c.Fail("an axis is named twice");
  if (!c.ok()) return;
  Shape shape = x.shape();
  for (const int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  c.Out(0, c.e.Reshape(x, shape));
}

void ImportFlatten(OpCall& c) {
  const Val x = c.In(0);
  int64_t axis = c.Int("axis", 1);
  if (axis < 0) axis += x.rank();
  if (axis < 0 || axis > x.rank()) return c.Fail("attribute 'axis' is out of range");
  int64_t rows = 1;
  int64_t columns = 1;
  for (int64_t d = 0; d < x.rank(); ++d) (d < axis ? rows : columns) *= x.dim(d);
  c.Out(0, c.e.Reshape(x, {rows, columns}));
}

void ImportExpand(OpCall& c) {
  const Val x = c.In(0);
  const Shape wanted = c.KnownInts(1, "shape");
  if (!c.ok()) return;
  absl::StatusOr<Shape> shape = BroadcastShapes({x.shape(), wanted});
  if (!shape.ok()) return c.e.Fail(shape.status());
  c.Out(0, c.e.BroadcastTo(x, *shape));
}

void ImportConcat(OpCall& c) {
  const std::vector<Val> parts = c.AllIn();
  if (parts.empty()) return c.Fail("no operands");
  const int64_t axis = c.Axis(c.Int("axis", 1), parts[0].rank());
  c.Out(0, c.e.Concat(parts, axis));
}

void ImportSplit(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  const auto parts = static_cast<int64_t>(c.output_count());
  const int64_t size = x.dim(axis);
  std::optional<Ints> sizes = c.IntsFrom(1, "split");
  const int64_t wanted = c.Int("num_outputs", parts);
  if (!c.ok()) return;
  if (!sizes.has_value()) {
    if (wanted != parts || parts == 0) return c.Fail("attribute 'num_outputs' is not the number of results");
    const int64_t each = (size + parts - 1) / parts;
    sizes = Ints();
    for (int64_t i = 0; i < parts; ++i) sizes->push_back(std::clamp(size - i * each, int64_t{0}, each));
  }
  if (static_cast<int64_t>(sizes->size()) != parts) return c.Fail("'split' has another length than there are results");
  int64_t start = 0;
  for (size_t i = 0; i < sizes->size(); ++i) {
    const int64_t n = (*sizes)[i];
    if (n < 0 || n > size - start) return c.Fail("'split' does not add up to the dim's size");
    c.Out(i, c.e.Slice(x, axis, start, start + n));
    start += n;
  }
  if (start != size) c.Fail("'split' does not add up to the dim's size");
}

void ImportSlice(OpCall& c) {
  const Val x = c.In(0);
  const Ints starts = c.IntsFrom(1, "starts").value_or(Ints());
  const Ints ends = c.IntsFrom(2, "ends").value_or(Ints());
  Ints axes(starts.size());
  for (size_t k = 0; k < axes.size(); ++k) axes[k] = static_cast<int64_t>(k);
  axes = c.IntsFrom(3, "axes").value_or(axes);
  const Ints steps = c.Has(4) ? c.KnownInts(4, "steps") : Ints(starts.size(), 1);
  if (!c.ok()) return;
  c.Out(0, c.e.Emit("slice", {x}, {{"starts", starts}, {"ends", ends}, {"steps", steps}, {"dims", axes}}));
}

// The element of [0, size) that position `i` of a padded dim shows; i may lie outside.
int64_t Reflected(int64_t i, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  i = ((i % period) + period) % period;
  return i < size ? i : period - i;
}

void ImportPad(OpCall& c) {
  Val x = c.In(0);
  const std::string mode = c.String("mode", "constant");
  const char* attribute = c.HasAttr("paddings") ? "paddings" : "pads";
  const Ints pads = c.IntsFrom(1, attribute).value_or(Ints());
  double value = c.Float("value", 0);
  if (c.Has(2)) value = c.KnownNumber(2, "constant_value");
  Ints axes(static_cast<size_t>(x.rank()));
  for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
  if (c.Has(3)) axes = c.KnownInts(3, "axes");
  if (!c.ok()) return;
  if (pads.size() != 2 * axes.size()) return c.Fail("'pads' has not two numbers for each axis");
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  constexpr int64_t kMaxPad = int64_t{1} << 31;
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto d = static_cast<size_t>(c.Axis(axes[k], x.rank()));
    if (!c.ok()) return;
    low[d] = pads[k];
    high[d] = pads[k + axes.size()];
    if (std::max(std::abs(low[d]), std::abs(high[d])) > kMaxPad) return c.Fail("'pads' has a number that is too large");
  }
  if (mode == "constant") return c.Out(0, c.e.Pad(x, low, high, value));
  if (mode != "reflect" && mode != "edge" && mode != "wrap") {
    return c.Refuse(absl::StrCat("attribute 'mode' = '", mode, "' is not supported"));
  }
  constexpr int64_t kMaxPositions = 1 << 22;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dim(d), from = -low[static_cast<size_t>(d)], to = size + high[static_cast<size_t>(d)];
    if (from == 0 && to == size) continue;
    if (size == 0 || to < from || to - from > kMaxPositions)
      return c.Fail(absl::StrCat("dim ", d, " can't be padded so"));
    Ints positions;
    for (int64_t i = from; i < to; ++i) {
      positions.push_back(mode == "reflect" ? Reflected(i, size)
                          : mode == "edge"  ? std::clamp(i, int64_t{0}, size - 1)
                                            : ((i % size) + size) % size);
    }
    x = c.e.Select(x, positions, d);
  }
  c.Out(0, x);
}

void ImportTile(OpCall& c) {
  const Val x = c.In(0);
  const Ints repeats = c.KnownInts(1, "repeats");
  if (c.Has(2)) return c.Refuse("the form with 'tiles' and 'axis' is not supported");
  if (!c.ok()) return;
  if (static_cast<int64_t>(repeats.size()) != x.rank()) return c.Fail("'repeats' has not one number for each dim");
  c.Out(0, c.e.Emit("tile", {x}, {{"repeats", repeats}}));
}

void ImportDepthToSpace(OpCall& c) {
  const Val x = c.In(0);
  const int64_t b = c.Int("blocksize", 0);
  const std::string mode = c.String("mode", "DCR");
  if (x.rank() != 4 || b <= 0 || b > 65536 || x.dim(1) % (b * b) != 0)
    return c.Fail("the channels do not divide into blocks");
  const int64_t n = x.dim(0), channels = x.dim(1) / (b * b), h = x.dim(2), w = x.dim(3);
  const bool column_first = mode == "CRD";
  if (!column_first && mode != "DCR") return c.Fail("attribute 'mode' is neither DCR nor CRD");
  const Val split = c.e.Reshape(x, column_first ? Shape{n, channels, b, b, h, w} : Shape{n, b, b, channels, h, w});
  const Val moved = c.e.Permute(split, column_first ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2});
  c.Out(0, c.e.Reshape(moved, {n, channels, h * b, w * b}));
}

void ImportSpaceToDepth(OpCall& c) {
  const Val x = c.In(0);
  const int64_t b = c.Int("blocksize", 0);
  if (x.rank() != 4 || b <= 0 || b > 65536 || x.dim(2) % b != 0 || x.dim(3) % b != 0) {
    return c.Fail("height and width do not divide into blocks");
  }
  const int64_t n = x.dim(0), channels = x.dim(1), h = x.dim(2) / b, w = x.dim(3) / b;
  const Val split = c.e.Reshape(x, {n, channels, h, b, w, b});
  const std::string mode = c.String("mode", "DCR");
  if (mode != "CRD" && mode != "DCR") return c.Fail("attribute 'mode' is neither DCR nor CRD");
  const Ints order = mode == "CRD" ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4};
  c.Out(0, c.e.Reshape(c.e.Permute(split, order), {n, channels * b * b, h, w}));
}

void ImportTrilu(OpCall& c) {
  const Val x = c.In(0);
  const bool upper = c.Int("upper", 1) != 0;
  const int64_t k = c.Has(1) ? static_cast<int64_t>(c.KnownNumber(1, "k")) : 0;
  if (!c.ok()) return;
  if (x.rank() < 2) return c.Fail("the operand has fewer than two dims");
  // Beyond the matrix every diagonal is the same.
  const int64_t bound = std::max(x.dim(-1), x.dim(-2)) + 1;
  c.Out(0, c.e.Emit(upper ? "triu" : "tril", {x}, {{"diagonal", std::clamp(k, -bound, bound)}}));
}

// Folded where its operand is known; else nobody can say how many there are.
void ImportNonZero(OpCall& c) {
  c.MustKnow(0, "X");
  if (c.ok()) c.Refuse("an operand of this size is not looked through at import");
}

// Elements at known positions of one axis.
void ImportCompress(OpCall& c) {
  Val x = c.In(0);
  const Ints condition = c.KnownInts(1, "condition");
  if (!c.ok()) return;
  const bool flat = !c.HasAttr("axis");
  if (flat) x = c.e.Reshape(x, {x.count()});
  const int64_t axis = flat ? 0 : c.Axis(c.Int("axis", 0), x.rank());
  if (static_cast<int64_t>(condition.size()) > x.dim(axis)) return c.Fail("'condition' is longer than the dim");
  Ints positions;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) positions.push_back(static_cast<int64_t>(i));
  }
  c.Out(0, c.e.Select(x, positions, axis));
}

// Reverses the first seq_len[b] steps of each sequence: element t of sequence b comes from step seq_len[b] - 1 - t.
void ImportReverseSequence(OpCall& c) {
  Val x = c.In(0);
  const int64_t batch = c.Int("batch_axis", 1), time = c.Int("time_axis", 0);
  if (x.rank() < 2 || !((batch == 0 && time == 1) || (batch == 1 && time == 0))) {
    return c.Fail("attributes 'batch_axis' and 'time_axis' are not 0 and 1");
  }
  const Val lengths = c.e.Cast(c.In(1), DType::kI64);
  const int64_t steps = x.dim(time), batches = x.dim(batch);
  const Shape grid = time == 0 ? Shape{steps, batches} : Shape{batches, steps};
  const Val t = c.e.Iota(DType::kI64, grid, time);
  const Val length = c.e.Reshape(lengths, time == 0 ? Shape{1, batches} : Shape{batches, 1});
  const Val mirrored = (length - 1.0) - t;
  Val positions = c.e.Where(Apply("lt", t, length), mirrored, t);
  Shape shape(static_cast<size_t>(x.rank()), 1);
  shape[0] = grid[0];
  shape[1] = grid[1];
  positions = c.e.BroadcastTo(c.e.Reshape(positions, shape), x.shape());
  c.Out(0, c.e.Emit("gather", {x, positions}, {{"dim", time}}));
}

// Crops or pads the named dims around their middle.
void ImportCenterCropPad(OpCall& c) {
  Val x = c.In(0);
  const Ints sizes = c.KnownInts(1, "shape");
  Ints axes(static_cast<size_t>(x.rank()));
  for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
  axes = c.IntList("axes", axes);
  if (!c.ok()) return;
  if (axes.size() != sizes.size()) return c.Fail("'shape' has not one size for each axis");
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t d = c.Axis(axes[k], x.rank());
    if (!c.ok()) return;
    const int64_t size = x.dim(d), wanted = sizes[k];
    if (wanted < 0 || wanted > GraphLimits().max_elements) return c.Fail("'shape' has a size out of range");
    if (wanted < size) {
      const int64_t start = (size - wanted) / 2;
      x = c.e.Slice(x, d, start, start + wanted);
    } else {
      low[static_cast<size_t>(d)] = (wanted - size) / 2;
      high[static_cast<size_t>(d)] = wanted - size - (wanted - size) / 2;
    }
  }
  c.Out(0, c.e.Pad(x, low, high, 0));
}

}  // namespace

void AddLayoutImporters(ImporterTable& table) {
  table["Reshape"] = ImportReshape;
  table["Transpose"] = ImportTranspose;
  table["Squeeze"] = ImportSqueeze;
  table["Unsqueeze"] = ImportUnsqueeze;
  table["Flatten"] = ImportFlatten;
  table["Expand"] = ImportExpand;
  table["Concat"] = ImportConcat;
  table["Split"] = ImportSplit;
  table["Slice"] = ImportSlice;
  table["Pad"] = ImportPad;
  table["Tile"] = ImportTile;
  table["DepthToSpace"] = ImportDepthToSpace;
  table["SpaceToDepth"] = ImportSpaceToDepth;
  table["Trilu"] = ImportTrilu;
  table["NonZero"] = ImportNonZero;
  table["Compress"] = ImportCompress;
  table["ReverseSequence"] = ImportReverseSequence;
  table["CenterCropPad"] = ImportCenterCropPad;
}

}  // namespace fuseline::onnx_import
