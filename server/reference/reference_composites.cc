// Composites by their definitions. Tested by tests/unit/reference/reference_interpreter_test.cc
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reduced_loop.h"
#include "server/reference/reference_losses.h"
#include "server/reference/reference_ops.h"
#include "server/reference/variance.h"

namespace fuseline::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// NaN where there is one; -inf for nothing.
double LargestOf(const Array& x, const ReducedLoop& loop, int64_t base) {
  double best = -kInf;
  loop.ForEachReduced(base, [&](int64_t, int64_t at) {
    const double element = (*x.f)[static_cast<size_t>(at)];
    if (std::isnan(element) || element > best) best = element;
    if (std::isnan(best) || std::isnan(element)) best = kNan;
  });
  return best;
}

double LogSumExp(const Array& x, const ReducedLoop& loop, int64_t base) {
  const double max = LargestOf(x, loop, base);
  if (std::isnan(max)) return kNan;
  if (std::isinf(max)) return max;  // nothing, only -inf, or an inf
  long double sum = 0;
  loop.ForEachReduced(base, [&](int64_t, int64_t at) {
    sum += std::exp(static_cast<long double>((*x.f)[static_cast<size_t>(at)]) - max);
  });
  return static_cast<double>(max + std::log(sum));
}

double Norm(const Array& x, const ReducedLoop& loop, int64_t base, double p) {
  if (loop.reduced_count() == 0) return 0;
  long double total = p == -kInf ? static_cast<long double>(kInf) : 0;
  bool has_nan = false;
  loop.ForEachReduced(base, [&](int64_t, int64_t at) {
    const long double magnitude = std::fabs(static_cast<long double>((*x.f)[static_cast<size_t>(at)]));
    if (std::isnan(magnitude)) has_nan = true;
    if (p == kInf) {
      total = std::max(total, magnitude);
    } else if (p == -kInf) {
      total = std::min(total, magnitude);
    } else if (p == 0) {
      total += magnitude != 0 ? 1 : 0;
    } else if (p == 1) {
      total += magnitude;
    } else if (p == 2) {
      total += magnitude * magnitude;
    } else {
      total += std::pow(magnitude, static_cast<long double>(p));
    }
  });
  if (has_nan) return kNan;
  if (std::isinf(p) || p == 0 || p == 1) return static_cast<double>(total);
  return static_cast<double>(p == 2 ? std::sqrt(total) : std::pow(total, 1 / static_cast<long double>(p)));
}

// A result with one element for each kept position.
template <typename Body>
Array PerKept(const OpContext& context, const ReducedLoop& loop, size_t result_index, const Body& body) {
  Array result = Array::Make(context.result_types[result_index].dtype, context.result_types[result_index].shape());
  loop.ForEachKept([&](int64_t kept, int64_t base) {
    (*result.f)[static_cast<size_t>(kept)] = context.Round(static_cast<double>(body(base)), result_index);
  });
  return result;
}

Array Softmax(const OpContext& context, const Array& x, bool log) {
  const ReducedLoop loop(x, ReducedDims(context, x.shape.size()));
  Array result = Array::Make(x.dtype, x.shape);
  loop.ForEachKept([&](int64_t, int64_t base) {
    const double max = LargestOf(x, loop, base);
    long double sum = 0;
    loop.ForEachReduced(base, [&](int64_t, int64_t at) {
      sum += std::exp(static_cast<long double>((*x.f)[static_cast<size_t>(at)] - max));
    });
    const long double log_sum = std::log(sum);
    loop.ForEachReduced(base, [&](int64_t, int64_t at) {
      const long double shifted = static_cast<long double>((*x.f)[static_cast<size_t>(at)]) - max;
      (*result.f)[static_cast<size_t>(at)] =
          context.Round(static_cast<double>(log ? shifted - log_sum : std::exp(shifted) / sum));
    });
  });
  return result;
}

// (x - mean) / sqrt(variance + eps) * weight + bias, with the statistics of each kept position. `parameter(position,
// offset)` gives the element of weight and bias.
template <typename Parameter>
void NormalizeInto(const OpContext& context, const Array& x, const ReducedLoop& loop, int64_t base, Moments moments,
                   const Array* weight, const Array* bias, const Parameter& parameter, Array& y) {
  const long double scale = 1 / std::sqrt(moments.variance + static_cast<long double>(context.Number("eps")));
  loop.ForEachReduced(base, [&](int64_t position, int64_t at) {
    long double value = ((*x.f)[static_cast<size_t>(at)] - moments.mean) * scale;
    const size_t k = static_cast<size_t>(parameter(position, at));
    if (weight != nullptr) value *= (*weight->f)[k];
    if (bias != nullptr) value += (*bias->f)[k];
    (*y.f)[static_cast<size_t>(at)] = context.Round(static_cast<double>(value));
  });
}

const Array* Optional(const std::vector<Array>& operands, size_t index) {
  return index < operands.size() ? &operands[index] : nullptr;
}

// layer_norm and rms_norm: weight and bias have the shape of the normalised dims.
Array NormalizeDims(const OpContext& context, const std::vector<Array>& operands, bool root_mean_square) {
  const Array& x = operands[0];
  const ReducedLoop loop(x, ReducedDims(context, x.shape.size()));
  Array y = Array::Make(x.dtype, x.shape);
  loop.ForEachKept([&](int64_t, int64_t base) {
    Moments moments;
    if (root_mean_square) {
      loop.ForEachReduced(base, [&](int64_t, int64_t at) {
        const long double element = (*x.f)[static_cast<size_t>(at)];
        moments.variance += element * element;
      });
      moments.variance /= static_cast<long double>(loop.reduced_count());
    } else {
      moments = MomentsOf(x, loop, base, 0);
    }
    NormalizeInto(
        context, x, loop, base, moments, Optional(operands, 1), Optional(operands, 2),
        [](int64_t position, int64_t) { return position; }, y);
  });
  return y;
}

// Elements of one channel of x[N, C, ...]: all dims but 1.
std::vector<int64_t> DimsButChannels(size_t rank) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d) {
    if (d != 1) dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

// instance_norm: a group for each channel.
Array GroupNorm(const OpContext& context, const std::vector<Array>& operands) {
  const Array& x = operands[0];
  const int64_t channels = x.shape[1];
  const int64_t groups = context.Has("groups") ? context.Int("groups") : channels;
  const int64_t spatial = x.size() == 0 ? 1 : x.size() / (x.shape[0] * channels);
  // x as [N * groups, the elements of a group], which is how it lies.
  const Shape split = {x.shape[0] * groups, x.size() == 0 ? 0 : x.size() / (x.shape[0] * groups)};
  Array grouped = x;
  grouped.shape = split;
  grouped.strides = DenseStrides(split);
  const ReducedLoop loop(grouped, {1});
  Array y = Array::Make(x.dtype, x.shape);
  loop.ForEachKept([&](int64_t, int64_t base) {
    NormalizeInto(
        context, x, loop, base, MomentsOf(x, loop, base, 0), Optional(operands, 1), Optional(operands, 2),
        [&](int64_t, int64_t at) { return at / spatial % channels; }, y);
  });
  return y;
}

Array Glu(const OpContext& context, const Array& x) {
  Array y = Array::Make(x.dtype, context.result_types[0].shape());
  int64_t dim = context.Int("dim");
  if (dim < 0) dim += static_cast<int64_t>(x.shape.size());
  // Elements of one half of the dim lie together.
  const int64_t half = DenseStrides(y.shape)[static_cast<size_t>(dim)] * y.shape[static_cast<size_t>(dim)];
  for (int64_t k = 0; k < y.size(); ++k) {
    const size_t at = static_cast<size_t>(k / half * 2 * half + k % half);
    const double gate = (*x.f)[at + static_cast<size_t>(half)];
    (*y.f)[static_cast<size_t>(k)] = context.Round((*x.f)[at] / (1 + std::exp(-gate)));
  }
  return y;
}

std::vector<Array> BatchNorm(const OpContext& context, const std::vector<Array>& operands, bool train) {
  const Array& x = operands[0];
  const ReducedLoop loop(x, DimsButChannels(x.shape.size()));
  const size_t first_parameter = train ? 1 : 3;
  std::vector<Array> results = {Array::Make(x.dtype, x.shape)};
  if (train) {
    results.push_back(Array::Make(x.dtype, {x.shape[1]}));
    results.push_back(Array::Make(x.dtype, {x.shape[1]}));
  }
  loop.ForEachKept([&](int64_t channel, int64_t base) {
    const size_t c = static_cast<size_t>(channel);
    Moments moments;
    if (train) {
      moments = MomentsOf(x, loop, base, 0);
      (*results[1].f)[c] = context.Round(static_cast<double>(moments.mean), 1);
      (*results[2].f)[c] = context.Round(static_cast<double>(moments.variance), 2);
    } else {
      moments.mean = (*operands[1].f)[c];
      moments.variance = (*operands[2].f)[c];
    }
    NormalizeInto(
        context, x, loop, base, moments, Optional(operands, first_parameter), Optional(operands, first_parameter + 1),
        [&](int64_t, int64_t) { return channel; }, results[0]);
  });
  return results;
}

// The operand's elements broadcast to `shape`, in double.
double BroadcastElement(const Array& x, const Shape& shape, int64_t flat) {
  int64_t at = 0, stride = 1;
  for (size_t back = 1; back <= shape.size(); ++back) {
    const int64_t size = shape[shape.size() - back];
    if (back <= x.shape.size()) {
      const int64_t own = x.shape[x.shape.size() - back];
      if (own != 1) at += flat % size * stride;
      stride *= own;
    }
    flat /= size;
  }
  return (*x.f)[static_cast<size_t>(at)];
}

Array MseLoss(const OpContext& context, const Array& x, const Array& target) {
  const std::string reduction = context.String("reduction");
  Array result = Array::Make(x.dtype, context.result_types[0].shape());
  const size_t rank = std::max(x.shape.size(), target.shape.size());
  Shape shape(rank, 1);
  for (const Array* a : {&x, &target}) {
    for (size_t d = 0; d < a->shape.size(); ++d) {
      if (a->shape[d] != 1) shape[rank - a->shape.size() + d] = a->shape[d];
    }
  }
  const int64_t count = ElementCount(shape);
  long double sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const long double d = static_cast<long double>(BroadcastElement(x, shape, k)) - BroadcastElement(target, shape, k);
    if (reduction == "none") (*result.f)[static_cast<size_t>(k)] = context.Round(static_cast<double>(d * d));
    sum += d * d;
  }
  if (reduction == "mean") (*result.f)[0] = context.Round(static_cast<double>(sum / static_cast<long double>(count)));
  if (reduction == "sum") (*result.f)[0] = context.Round(static_cast<double>(sum));
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Array>> EvaluateComposite(const OpContext& context, const std::vector<Array>& given) {
  if (context.node.op == "rand" || context.node.op == "randn" || context.node.op == "dropout") {
    absl::StatusOr<Array> random = EvaluateRandom(context, given);
    if (!random.ok()) return random.status();
    return std::vector<Array>{*std::move(random)};
  }
  std::vector<Array> operands;
  for (const Array& operand : given) operands.push_back(Dense(operand));
  const std::string& op = context.node.op;
  if (IsLoss(op)) {
    absl::StatusOr<Array> loss = EvaluateLoss(context, operands);
    if (!loss.ok()) return loss.status();
    return std::vector<Array>{*std::move(loss)};
  }
  const Array& x = operands[0];
  if (op == "attention") {
    auto result = EvaluateAttention(context, operands);
    if (!result.ok()) return result.status();
    return std::vector<Array>{*std::move(result)};
  }
  if (op == "softmax" || op == "log_softmax") return std::vector<Array>{Softmax(context, x, op == "log_softmax")};
  if (op == "layer_norm" || op == "rms_norm")
    return std::vector<Array>{NormalizeDims(context, operands, op == "rms_norm")};
  if (op == "glu") return std::vector<Array>{Glu(context, x)};
  if (op == "group_norm" || op == "instance_norm") return std::vector<Array>{GroupNorm(context, operands)};
  if (op == "batch_norm" || op == "batch_norm_train") return BatchNorm(context, operands, op == "batch_norm_train");
  if (op == "quantize") return std::vector<Array>{EvaluateQuantize(context, operands)};
  if (op == "dequantize") return std::vector<Array>{EvaluateDequantize(context, operands)};
  if (op == "mse_loss") return std::vector<Array>{MseLoss(context, x, operands[1])};
  const ReducedLoop loop(x, ReducedDims(context, x.shape.size()));
  if (op == "mean") {
    return std::vector<Array>{
        PerKept(context, loop, 0, [&](int64_t base) { return MomentsOf(x, loop, base, 0).mean; })};
  }
  if (op == "var" || op == "std") {
    return std::vector<Array>{PerKept(context, loop, 0, [&](int64_t base) {
      const long double variance = MomentsOf(x, loop, base, context.Number("correction")).variance;
      return op == "var" ? variance : std::sqrt(variance);
    })};
  }
  if (op == "logsumexp")
    return std::vector<Array>{PerKept(context, loop, 0, [&](int64_t base) { return LogSumExp(x, loop, base); })};
  if (op == "norm") {
    return std::vector<Array>{
        PerKept(context, loop, 0, [&](int64_t base) { return Norm(x, loop, base, context.Number("p")); })};
  }
  return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
}

}  // namespace fuseline::reference
