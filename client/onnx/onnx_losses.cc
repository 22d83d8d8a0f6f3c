// Losses, and the optimizers of ONNX's training domain.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

// The loss of classes `target` [N, d…] under log-probabilities [N, C, d…]: picked, weighted, reduced.
void NegativeLogLikelihood(OpCall& c, Val log_prob, size_t target_at, size_t weight_at) {
  const std::string reduction = c.String("reduction", "mean");
  const bool ignores = c.HasAttr("ignore_index");
  const auto ignore = static_cast<double>(c.Int("ignore_index", 0));
  Val target = c.e.Cast(c.In(target_at), DType::kI64);
  if (!c.ok()) return;
  Val counts;
  if (ignores) {
    counts = Apply("ne", target, ignore);
    target = c.e.Where(counts, target, 0.0);
  }
  const Val wide = c.e.Unsqueeze(target, 1);
  const Val picked = c.e.Squeeze(c.e.Emit("gather", {log_prob, wide}, {{"dim", 1}}), {1});
  Val weight;
  if (c.Has(weight_at)) {
    const Val flat = c.e.Emit("index_select", {c.In(weight_at), c.e.Reshape(target, {target.count()})}, {{"dim", 0}});
    weight = c.e.Reshape(flat, target.shape());
  }
  if (ignores) {
    const Val zero = c.e.Full(log_prob.dtype(), {}, 0);
    weight = weight.ok() ? c.e.Where(counts, weight, zero) : c.e.Cast(counts, log_prob.dtype());
  }
  Val loss = -picked;
  // What is ignored counts 0, be it infinite.
  if (ignores) loss = c.e.Where(counts, loss, 0.0);
  if (weight.ok()) loss = loss * weight;
  if (reduction == "none") return c.Out(0, loss);
  const Val sum = c.e.Emit("sum", {loss});
  if (reduction == "sum") return c.Out(0, sum);
  if (reduction != "mean") return c.Fail(absl::StrCat("attribute 'reduction' = '", reduction, "' is not known"));
  if (!weight.ok()) return c.Out(0, c.e.Emit("mean", {loss}));
  c.Out(0, sum / c.e.Emit("sum", {weight}));
}

void ImportNll(OpCall& c) { NegativeLogLikelihood(c, c.In(0), 1, 2); }

void ImportSoftmaxCrossEntropy(OpCall& c) {
  const Val log_prob = c.e.Emit("log_softmax", {c.In(0)}, {{"dim", 1}});
  if (c.WantsOut(1)) c.Out(1, log_prob);
  NegativeLogLikelihood(c, log_prob, 1, 2);
}

// The optimizers take a rate and a step, then for each of n tensors: values, gradients and state.
struct Step {
  Val rate, step;
  size_t count = 0;
};

Step ReadStep(OpCall& c, size_t each) {
  Step s;
  s.rate = c.e.Reshape(c.In(0), {});
  s.step = c.e.Reshape(c.In(1), {});
  if (c.input_count() < 2 + each || (c.input_count() - 2) % each != 0) {
    c.Fail("the number of operands does not fit");
    return s;
  }
  s.count = (c.input_count() - 2) / each;
  return s;
}

void ImportAdagrad(OpCall& c) {
  const double decay = c.Float("decay_factor", 0), eps = c.Float("epsilon", 1e-6),
               norm = c.Float("norm_coefficient", 0);
  const Step s = ReadStep(c, 3);
  for (size_t i = 0; i < s.count; ++i) {
    const Val x = c.In(2 + i), h = c.In(2 + 2 * s.count + i);
    const Val gradient = x * norm + c.In(2 + s.count + i);
    const Val rate = s.rate / (c.e.Cast(s.step, s.rate.dtype()) * decay + 1.0);
    const Val squares = h + gradient * gradient;
    c.Out(i, x - rate * gradient / (Apply("sqrt", squares) + eps));
    c.Out(s.count + i, squares);
  }
}

void ImportMomentum(OpCall& c) {
  const double alpha = c.Float("alpha", 0), beta = c.Float("beta", 0), norm = c.Float("norm_coefficient", 0);
  const std::string mode = c.String("mode", "standard");
  const Step s = ReadStep(c, 3);
  for (size_t i = 0; i < s.count; ++i) {
    const Val x = c.In(2 + i), v = c.In(2 + 2 * s.count + i);
    const Val gradient = x * norm + c.In(2 + s.count + i);
    // In the first step the gradient counts whole.
    const Val first = Apply("gt", s.step, 0.0);
    const Val share = c.e.Where(first, c.e.Full(x.dtype(), {}, beta), c.e.Full(x.dtype(), {}, 1.0));
    const Val moved = v * alpha + gradient * share;
    c.Out(i, mode == "nesterov" ? x - (gradient + moved * alpha) * s.rate : x - moved * s.rate);
    c.Out(s.count + i, moved);
  }
}

void ImportAdam(OpCall& c) {
  const double alpha = c.Float("alpha", 0.9), beta = c.Float("beta", 0.999), eps = c.Float("epsilon", 1e-6);
  const double norm = c.Float("norm_coefficient", 0), norm_post = c.Float("norm_coefficient_post", 0);
  const Step s = ReadStep(c, 4);
  for (size_t i = 0; i < s.count; ++i) {
    const Val x = c.In(2 + i), v = c.In(2 + 2 * s.count + i), h = c.In(2 + 3 * s.count + i);
    const Val gradient = x * norm + c.In(2 + s.count + i);
    const Val first = v * alpha + gradient * (1 - alpha), second = h * beta + gradient * gradient * (1 - beta);
    const Val t = c.e.Cast(s.step, s.rate.dtype());
    const auto one_minus_power = [&](double base) { return -Apply("pow", c.e.Full(t.dtype(), {}, base), t) + 1.0; };
    const Val corrected = s.rate * Apply("sqrt", one_minus_power(beta)) / one_minus_power(alpha);
    const Val rate = c.e.Where(Apply("gt", t, 0.0), corrected, s.rate);
    const Val moved = x - rate * first / (Apply("sqrt", second) + eps);
    c.Out(i, moved * (1 - norm_post));
    c.Out(s.count + i, first);
    c.Out(2 * s.count + i, second);
  }
}

}  // namespace

void AddLossImporters(ImporterTable& table) {
  table["NegativeLogLikelihoodLoss"] = ImportNll;
  table["SoftmaxCrossEntropyLoss"] = ImportSoftmaxCrossEntropy;
  table["ai.onnx.preview.training::Adagrad"] = ImportAdagrad;
  table["ai.onnx.preview.training::Momentum"] = ImportMomentum;
  table["ai.onnx.preview.training::Adam"] = ImportAdam;
}

}  // namespace fuseline::onnx_import
