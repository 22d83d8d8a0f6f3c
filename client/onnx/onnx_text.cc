// TfIdfVectorizer, on integers: counts of n-grams of a pool, written as comparisons with slices of the sequence.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxComparisons = 4096;

struct Ngram {
  Ints items;
  int64_t column = 0;
  double weight = 1;
};

// pool_int64s holds all 1-grams, then all 2-grams, …; ngram_counts says where each kind starts.
std::vector<Ngram> ReadNgrams(OpCall& c) {
  const Ints pool = c.IntList("pool_int64s", {}), starts = c.IntList("ngram_counts", {}),
             columns = c.IntList("ngram_indexes", {});
  const std::vector<double> weights = c.FloatList("weights", {});
  std::vector<Ngram> ngrams;
  if (c.HasAttr("pool_strings")) c.Refuse("attribute 'pool_strings': strings are not supported");
  for (size_t k = 0; k < starts.size() && c.ok(); ++k) {
    const auto n = static_cast<int64_t>(k) + 1;
    const int64_t end = k + 1 < starts.size() ? starts[k + 1] : static_cast<int64_t>(pool.size());
    if (starts[k] < 0 || end < starts[k] || end > static_cast<int64_t>(pool.size()) || (end - starts[k]) % n != 0) {
      c.Fail("'ngram_counts' does not fit the pool");
      break;
    }
    for (int64_t at = starts[k]; at < end; at += n) {
      const size_t id = ngrams.size();
      if (id >= columns.size() || columns[id] < 0 || columns[id] >= kMaxComparisons ||
          (!weights.empty() && id >= weights.size())) {
        c.Fail("'ngram_indexes' or 'weights' does not fit the pool");
        break;
      }
      ngrams.push_back(
          {Ints(pool.begin() + at, pool.begin() + at + n), columns[id], weights.empty() ? 1 : weights[id]});
    }
  }
  return ngrams;
}

void ImportTfIdfVectorizer(OpCall& c) {
  Val x = c.In(0);
  const int64_t least = c.Int("min_gram_length", 1), most = c.Int("max_gram_length", 1),
                skips = c.Int("max_skip_count", 0);
  const std::string mode = c.String("mode", "TF");
  const std::vector<Ngram> ngrams = ReadNgrams(c);
  if (!c.ok()) return;
  if (x.rank() != 1 && x.rank() != 2) return c.Fail("the operand has neither one nor two dims");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return c.Fail("attribute 'mode' is not known");
  const bool flat = x.rank() == 1;
  if (flat) x = c.e.Unsqueeze(x, 0);
  const int64_t length = x.dim(1), rows = x.dim(0);
  int64_t width = 0, comparisons = 0;
  for (const Ngram& ngram : ngrams) width = std::max(width, ngram.column + 1);
  std::vector<Val> columns(static_cast<size_t>(width));
  for (const Ngram& ngram : ngrams) {
    const auto n = static_cast<int64_t>(ngram.items.size());
    if (n < least || n > most) continue;
    for (int64_t skip = 0; skip <= (n == 1 ? 0 : std::min(skips, length)); ++skip) {
      const int64_t step = skip + 1, windows = length - (n - 1) * step;
      if (windows <= 0) break;
      comparisons += n;
      if (comparisons > kMaxComparisons) return c.Refuse("the pool is too large");
      Val hit;
      for (int64_t j = 0; j < n; ++j) {
        const Val same = Apply("eq", c.e.Slice(x, 1, j * step, j * step + windows),
                               static_cast<double>(ngram.items[static_cast<size_t>(j)]));
        hit = j == 0 ? same : Apply("logical_and", hit, same);
      }
      const Val count = c.e.Emit("sum", {c.e.Cast(hit, DType::kF32)}, {{"dims", Ints{1}}});
      Val& column = columns[static_cast<size_t>(ngram.column)];
      column = column.ok() ? column + count : count;
    }
  }
  std::vector<double> weights(static_cast<size_t>(width), 1);
  for (const Ngram& ngram : ngrams) weights[static_cast<size_t>(ngram.column)] = ngram.weight;
  std::vector<Val> parts;
  for (size_t k = 0; k < columns.size(); ++k) {
    Val column = columns[k].ok() ? columns[k] : c.e.Full(DType::kF32, {rows}, 0);
    if (mode == "IDF") column = c.e.Cast(Apply("gt", column, 0.0), DType::kF32);
    if (mode != "TF") column = column * weights[k];
    parts.push_back(c.e.Unsqueeze(column, 1));
  }
  if (parts.empty()) return c.Fail("the pool is empty");
  const Val y = c.e.Concat(parts, 1);
  c.Out(0, flat ? c.e.Squeeze(y, {0}) : y);
}

}  // namespace

void AddTextImporters(ImporterTable& table) { table["TfIdfVectorizer"] = ImportTfIdfVectorizer; }

}  // namespace fuseline::onnx_import
