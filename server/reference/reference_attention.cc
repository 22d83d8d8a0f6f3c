// Attention by its definition, a row of scores at a time. Tested by tests/unit/reference/reference_contractions_test.cc
#include <cmath>
#include <limits>
#include <vector>

#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

// The offset of the matrix of `x` for a position of the result's batch dims; a dim of fewer heads serves several.
int64_t MatrixOffset(const Array& x, const Shape& strides, const Shape& batch, const Shape& batch_shape) {
  const size_t dims = x.shape.size() < 2 ? 0 : x.shape.size() - 2;
  int64_t offset = 0;
  for (size_t d = 0; d < dims; ++d) {
    const size_t b = batch.size() - dims + d;
    const int64_t shared = x.shape[d] == 0 ? 1 : batch_shape[b] / x.shape[d];
    offset += batch[b] / shared * strides[d];
  }
  return offset;
}

}  // namespace

absl::StatusOr<Array> EvaluateAttention(const OpContext& context, const std::vector<Array>& operands) {
  const Array q = Stored(operands[0]), k = Stored(operands[1]), v = Stored(operands[2]);
  const Array* mask = operands.size() > 3 ? &operands[3] : nullptr;
  Array result = Array::Make(context.result_types[0].dtype, context.result_types[0].shape());
  const int64_t depth = q.shape.back(), columns = k.shape[k.shape.size() - 2], width = v.shape.back();
  const int64_t rows = q.shape[q.shape.size() - 2];
  const Shape batch_shape(result.shape.begin(), result.shape.end() - 2);
  const Shape q_strides = DenseStrides(q.shape), k_strides = DenseStrides(k.shape), v_strides = DenseStrides(v.shape);
  const Shape mask_strides = mask != nullptr ? DenseStrides(mask->shape) : Shape();
  const long double scale = context.Has("scale") ? static_cast<long double>(context.Number("scale"))
                                                 : 1 / std::sqrt(static_cast<long double>(depth > 0 ? depth : 1));
  Shape batch(batch_shape.size(), 0);
  for (int64_t b = 0, count = ElementCount(batch_shape); b < count; ++b) {
    const int64_t at_q = MatrixOffset(q, q_strides, batch, batch_shape);
    const int64_t at_k = MatrixOffset(k, k_strides, batch, batch_shape);
    const int64_t at_v = MatrixOffset(v, v_strides, batch, batch_shape);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<long double> scores(static_cast<size_t>(columns));
      long double max = -std::numeric_limits<long double>::infinity();
      for (int64_t c = 0; c < columns; ++c) {
        long double score = 0;
        for (int64_t d = 0; d < depth; ++d) {
          score += static_cast<long double>((*q.f)[static_cast<size_t>(at_q + row * depth + d)]) *
                   (*k.f)[static_cast<size_t>(at_k + c * depth + d)];
        }
        score *= scale;
        if (mask != nullptr) {
          int64_t at = MatrixOffset(*mask, mask_strides, batch, batch_shape);
          const size_t rank = mask->shape.size();
          if (rank > 1 && mask->shape[rank - 2] != 1) at += row * mask_strides[rank - 2];
          if (rank > 0 && mask->shape[rank - 1] != 1) at += c;
          if (mask->is_float()) {
            score += (*mask->f)[static_cast<size_t>(at)];
          } else if ((*mask->i)[static_cast<size_t>(at)] == 0) {
            score = -std::numeric_limits<long double>::infinity();
          }
        }
        if (context.Bool("causal") && c > row) score = -std::numeric_limits<long double>::infinity();
        scores[static_cast<size_t>(c)] = score;
        if (std::isnan(score) || score > max) max = score;
        if (std::isnan(max)) max = std::numeric_limits<long double>::quiet_NaN();
      }
      const bool nothing = max == -std::numeric_limits<long double>::infinity();
      long double sum = 0;
      for (long double& score : scores) {
        score = nothing ? 0 : std::exp(score - max);
        sum += score;
      }
      for (int64_t e = 0; e < width; ++e) {
        long double total = 0;
        for (int64_t c = 0; c < columns; ++c) {
          total += scores[static_cast<size_t>(c)] * (*v.f)[static_cast<size_t>(at_v + c * width + e)];
        }
        const double value = nothing ? static_cast<double>(total) : static_cast<double>(total / sum);
        (*result.f)[static_cast<size_t>((b * rows + row) * width + e)] = context.Round(value);
      }
    }
    for (size_t d = batch.size(); d-- > 0;) {
      if (++batch[d] < batch_shape[d]) break;
      batch[d] = 0;
    }
  }
  return result;
}

}  // namespace fuseline::reference
