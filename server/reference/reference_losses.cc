// Losses by their definitions. Tested by tests/unit/reference/reference_indexing_test.cc
#include "server/reference/reference_losses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"

namespace fuseline::reference {
namespace {

// Where element `flat` of the broadcast `shape` lies in a dense array.
size_t BroadcastPlace(const Shape& own, const Shape& shape, int64_t flat) {
  int64_t at = 0, stride = 1;
  for (size_t back = 1; back <= own.size(); ++back) {
    const int64_t size = shape[shape.size() - back];
    if (own[own.size() - back] != 1) at += flat % size * stride;
    stride *= own[own.size() - back];
    flat /= size;
  }
  return static_cast<size_t>(at);
}

Shape Broadcast(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (const Shape* s : {&a, &b}) {
    for (size_t back = 1; back <= s->size(); ++back) {
      const int64_t size = (*s)[s->size() - back];
      if (size != 1) shape[shape.size() - back] = size;
    }
  }
  return shape;
}

using ElementLoss = std::function<long double(long double x, long double target)>;

Array PerElement(const OpContext& context, const Array& x, const Array& target, const ElementLoss& loss) {
  const std::string reduction = context.String("reduction");
  const Shape shape = Broadcast(x.shape, target.shape);
  Array result = Array::Make(x.dtype, context.result_types[0].shape());
  const int64_t count = ElementCount(shape);
  long double sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const long double value =
        loss((*x.f)[BroadcastPlace(x.shape, shape, k)], (*target.f)[BroadcastPlace(target.shape, shape, k)]);
    if (reduction == "none") (*result.f)[static_cast<size_t>(k)] = context.Round(static_cast<double>(value));
    sum += value;
  }
  if (reduction == "mean") sum /= static_cast<long double>(count);
  if (reduction == "batchmean" && !shape.empty()) sum /= static_cast<long double>(shape[0]);
  if (reduction != "none") (*result.f)[0] = context.Round(static_cast<double>(sum));
  return result;
}

// Cross entropy (`from_logits`) or the negative log-likelihood of each place, whose classes are `stride` apart.
absl::StatusOr<Array> PerClass(const OpContext& context, const std::vector<Array>& operands, bool from_logits) {
  const Array& x = operands[0];
  const Array& target = operands[1];
  const std::string reduction = context.String("reduction");
  const size_t class_dim = x.shape.size() == 1 ? 0 : 1;
  const int64_t classes = x.shape[class_dim];
  int64_t stride = 1;
  for (size_t d = class_dim + 1; d < x.shape.size(); ++d) stride *= x.shape[d];
  const int64_t ignored = context.Int("ignore_index");
  const long double smoothing = from_logits ? static_cast<long double>(context.Number("label_smoothing")) : 0;
  Array result = Array::Make(x.dtype, context.result_types[0].shape());
  long double sum = 0, total_weight = 0;
  for (int64_t place = 0; place < target.size(); ++place) {
    const int64_t base = place / stride * stride * classes + place % stride;
    const auto element = [&](int64_t c) {
      return static_cast<long double>((*x.f)[static_cast<size_t>(base + c * stride)]);
    };
    const auto weight = [&](int64_t c) -> long double {
      return operands.size() > 2 ? (*operands[2].f)[static_cast<size_t>(c)] : 1;
    };
    int64_t wanted = (*target.i)[static_cast<size_t>(place)];
    long double loss = 0;
    if (wanted != ignored) {
      if (wanted < -classes || wanted >= classes) {
        return InvalidArgument(ErrorReason::kIndexOutOfRange, "",
                               absl::StrCat("index ", wanted, " is out of range for size ", classes));
      }
      if (wanted < 0) wanted += classes;
      long double log_sum = 0, max = 0;
      if (from_logits) {
        max = element(0);
        for (int64_t c = 0; c < classes; ++c) {
          if (std::isnan(element(c)) || element(c) > max) max = element(c);
        }
        long double exps = 0;
        for (int64_t c = 0; c < classes; ++c) exps += std::exp(element(c) - max);
        log_sum = std::log(exps);
      }
      const auto minus_log = [&](int64_t c) { return log_sum - (element(c) - max); };
      loss = (1 - smoothing) * weight(wanted) * minus_log(wanted);
      if (smoothing != 0) {
        for (int64_t c = 0; c < classes; ++c)
          loss += smoothing / static_cast<long double>(classes) * weight(c) * minus_log(c);
      }
      total_weight += weight(wanted);
    }
    if (reduction == "none") (*result.f)[static_cast<size_t>(place)] = context.Round(static_cast<double>(loss));
    sum += loss;
  }
  if (reduction == "mean") {
    // 0 / 0 written out: the sign of its NaN does not matter, that it is one does.
    sum = total_weight == 0 && sum == 0 ? std::numeric_limits<long double>::quiet_NaN() : sum / total_weight;
  }
  if (reduction != "none") (*result.f)[0] = context.Round(static_cast<double>(sum));
  return result;
}

}  // namespace

bool IsLoss(const std::string& op) {
  return op == "cross_entropy" || op == "nll_loss" || op == "kl_div" || op == "smooth_l1_loss" || op == "huber_loss";
}

absl::StatusOr<Array> EvaluateLoss(const OpContext& context, const std::vector<Array>& operands) {
  const std::string& op = context.node.op;
  if (op == "cross_entropy" || op == "nll_loss") return PerClass(context, operands, op == "cross_entropy");
  if (op == "kl_div") {
    const bool log_target = context.Bool("log_target");
    return PerElement(context, operands[0], operands[1], [log_target](long double x, long double t) -> long double {
      if (log_target) return std::exp(t) * (t - x);
      return (t == 0 ? 0 : t * std::log(t)) - t * x;
    });
  }
  const bool huber = op == "huber_loss";
  const long double edge = context.Number(huber ? "delta" : "beta");
  return PerElement(context, operands[0], operands[1], [huber, edge](long double x, long double t) -> long double {
    const long double distance = std::fabs(x - t);
    if (huber) return distance <= edge ? distance * distance / 2 : edge * (distance - edge / 2);
    return distance < edge ? distance * distance / (2 * edge) : distance - edge / 2;
  });
}

}  // namespace fuseline::reference
