// RNN, GRU and LSTM, unrolled over their time steps, which a static shape tells.
//
// Weights: W [directions, gates * H, inputs], R [directions, gates * H, H], B [directions, 2 * gates * H].
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxSteps = 512;

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

Val Activate(OpCall& c, const Activation& a, Val x) {
  if (a.name == "sigmoid" || a.name == "tanh" || a.name == "relu" || a.name == "softsign")
    return Apply(a.name.c_str(), x);
  if (a.name == "softplus") return c.e.Emit("softplus", {x});
  if (a.name == "affine") return x * a.alpha + a.beta;
  if (a.name == "leakyrelu") return c.e.Emit("leaky_relu", {x}, {{"slope", a.alpha}});
  if (a.name == "hardsigmoid") return c.e.Emit("hardsigmoid", {x}, {{"alpha", a.alpha}, {"beta", a.beta}});
  if (a.name == "elu") return c.e.Emit("elu", {x}, {{"alpha", a.alpha}});
  if (a.name == "thresholdedrelu") return c.e.Emit("threshold", {x}, {{"threshold", a.alpha}, {"value", 0.0}});
  if (a.name == "scaledtanh") return Apply("tanh", x * a.beta) * a.alpha;
  c.Refuse(absl::StrCat("activation '", a.name, "' is not supported"));
  return x;
}

// The numbers that activations have where none are given.
Activation WithDefaults(std::string name) {
  Activation a{std::move(name), 0, 0};
  if (a.name == "leakyrelu") a.alpha = 0.01;
  if (a.name == "hardsigmoid") a = {a.name, 0.2, 0.5};
  if (a.name == "elu" || a.name == "thresholdedrelu") a.alpha = 1;
  if (a.name == "affine" || a.name == "scaledtanh") a = {a.name, 1, a.name == "scaledtanh" ? 1.0 : 0.0};
  return a;
}

bool TakesAlpha(const std::string& name) {
  return name == "affine" || name == "leakyrelu" || name == "hardsigmoid" || name == "elu" ||
         name == "thresholdedrelu" || name == "scaledtanh";
}
bool TakesBeta(const std::string& name) { return name == "affine" || name == "hardsigmoid" || name == "scaledtanh"; }

struct Layer {
  int64_t gates = 1, steps = 0, batch = 0, hidden = 0, directions = 1;
  bool batch_first = false;
  std::string direction;
  double clip = 0;
  std::vector<Activation> activations;  // for each direction one after another
  size_t per_direction = 1;
  Val x;        // [steps, batch, inputs]
  Val lengths;  // [batch, 1], or nothing
};

Layer ReadLayer(OpCall& c, int64_t gates, const std::vector<std::string>& names) {
  Layer l;
  l.gates = gates;
  l.batch_first = c.Int("layout", 0) != 0;
  l.direction = c.String("direction", "forward");
  l.clip = c.Float("clip", 0);
  l.directions = l.direction == "bidirectional" ? 2 : 1;
  l.per_direction = names.size();
  c.Ignore("output_sequence");
  std::vector<std::string> all;
  for (int64_t d = 0; d < l.directions; ++d) all.insert(all.end(), names.begin(), names.end());
  all = c.StringList("activations", all);
  const std::vector<double> alphas = c.FloatList("activation_alpha", {}), betas = c.FloatList("activation_beta", {});
  size_t alpha_at = 0, beta_at = 0;
  for (const std::string& name : all) {
    Activation a = WithDefaults(absl::AsciiStrToLower(name));
    if (TakesAlpha(a.name) && alpha_at < alphas.size()) a.alpha = alphas[alpha_at++];
    if (TakesBeta(a.name) && beta_at < betas.size()) a.beta = betas[beta_at++];
    l.activations.push_back(a);
  }
  if (all.size() != names.size() * static_cast<size_t>(l.directions)) c.Fail("'activations' has the wrong length");
  l.x = c.In(0);
  if (l.x.rank() != 3) c.Fail("the operand has not three dims");
  if (l.batch_first) l.x = c.e.Permute(l.x, {1, 0, 2});
  l.steps = l.x.dim(0);
  l.batch = l.x.dim(1);
  l.hidden = c.Int("hidden_size", c.In(2).dim(-1));
  if (c.Has(4)) l.lengths = c.e.Reshape(c.e.Cast(c.In(4), DType::kI64), {l.batch, 1});
  if (l.steps > kMaxSteps) c.Refuse(absl::StrCat(l.steps, " time steps, and up to ", kMaxSteps, " are unrolled"));
  const auto is_shape = [&](size_t i, const Shape& shape) { return !c.Has(i) || c.InShape(i) == shape; };
  if (c.ok() && (!is_shape(1, {l.directions, gates * l.hidden, l.x.dim(2)}) ||
                 !is_shape(2, {l.directions, gates * l.hidden, l.hidden}) ||
                 !is_shape(3, {l.directions, 2 * gates * l.hidden}))) {
    c.Fail("the weights do not fit 'hidden_size' and the operand");
  }
  return l;
}

Val OfDirection(OpCall& c, Val v, int64_t d) { return c.e.Squeeze(c.e.Slice(v, 0, d, d + 1), {0}); }

// The initial state of a direction: [batch, hidden], zeros where none is given.
Val InitialState(OpCall& c, const Layer& l, size_t i, int64_t d) {
  if (!c.Has(i)) return c.e.Full(l.x.dtype(), {l.batch, l.hidden}, 0);
  Val v = c.In(i);
  if (l.batch_first) v = c.e.Permute(v, {1, 0, 2});
  return OfDirection(c, v, d);
}

Val Gate(OpCall& c, const Layer& l, Val all, int64_t gate) {
  return c.e.Slice(all, 1, gate * l.hidden, (gate + 1) * l.hidden);
}

Val Clipped(OpCall& c, const Layer& l, Val x) { return l.clip > 0 ? c.e.Clamp(x, -l.clip, l.clip) : x; }

// One direction's weights, transposed for x W^T.
struct Weights {
  Val input, recurrent;            // [inputs, gates * H], [H, gates * H]
  Val input_bias, recurrent_bias;  // [gates * H], or nothing
  Val peepholes;                   // [3 * H], or nothing
};

Weights ReadWeights(OpCall& c, const Layer& l, int64_t d) {
  Weights w;
  w.input = c.e.Permute(OfDirection(c, c.In(1), d), {1, 0});
  w.recurrent = c.e.Permute(OfDirection(c, c.In(2), d), {1, 0});
  if (c.Has(3)) {
    const Val bias = OfDirection(c, c.In(3), d);
    w.input_bias = c.e.Slice(bias, 0, 0, l.gates * l.hidden);
    w.recurrent_bias = c.e.Slice(bias, 0, l.gates * l.hidden, 2 * l.gates * l.hidden);
  }
  if (c.Has(7)) w.peepholes = OfDirection(c, c.In(7), d);
  return w;
}

struct State {
  Val h, cell;
};

struct Cell {
  OpCall& c;
  const Layer& l;
  const Weights& w;
  const Activation* f;  // of the direction
  bool linear_before_reset = false;
  bool input_forget = false;

  Val Biased(Val v, Val bias) const { return bias.ok() ? v + bias : v; }
  Val Bias(Val bias, int64_t gate) const { return c.e.Slice(bias, 0, gate * l.hidden, (gate + 1) * l.hidden); }

  // `xw`: the step's input times its weights, biases added. [batch, gates * H]
  State Rnn(Val xw, const State& s) const {
    const Val sum = Biased(xw + c.e.Emit("matmul", {s.h, w.recurrent}), w.recurrent_bias);
    return {Activate(c, f[0], Clipped(c, l, sum)), {}};
  }

  State Gru(Val xw, const State& s) const {
    // Gates: update, reset, hidden.
    const Val hr = Biased(c.e.Emit("matmul", {s.h, w.recurrent}), w.recurrent_bias);
    const Val z = Activate(c, f[0], Clipped(c, l, Gate(c, l, xw, 0) + Gate(c, l, hr, 0)));
    const Val r = Activate(c, f[0], Clipped(c, l, Gate(c, l, xw, 1) + Gate(c, l, hr, 1)));
    Val hidden;
    if (linear_before_reset) {
      hidden = r * Gate(c, l, hr, 2);
    } else {
      hidden = c.e.Emit("matmul", {r * s.h, c.e.Slice(w.recurrent, 1, 2 * l.hidden, 3 * l.hidden)});
      if (w.recurrent_bias.ok()) hidden = hidden + Bias(w.recurrent_bias, 2);
    }
    const Val candidate = Activate(c, f[1], Clipped(c, l, Gate(c, l, xw, 2) + hidden));
    return {(-z + 1.0) * candidate + z * s.h, {}};
  }

  State Lstm(Val xw, const State& s) const {
    // Gates: input, output, forget, cell. Peepholes: input, output, forget.
    const Val sum = Biased(xw + c.e.Emit("matmul", {s.h, w.recurrent}), w.recurrent_bias);
    const auto peep = [&](Val v, int64_t k, Val state) {
      return w.peepholes.ok() ? v + Bias(w.peepholes, k) * state : v;
    };
    const auto gate = [&](int64_t k, int64_t peephole, Val state) {
      return Activate(c, f[0], Clipped(c, l, peep(Gate(c, l, sum, k), peephole, state)));
    };
    const Val i = gate(0, 0, s.cell);
    const Val forget = input_forget ? -i + 1.0 : gate(2, 2, s.cell);
    const Val candidate = Activate(c, f[1], Clipped(c, l, Gate(c, l, sum, 3)));
    const Val cell = forget * s.cell + i * candidate;
    const Val o = gate(1, 1, cell);
    return {o * Activate(c, f[2], cell), cell};
  }
};

void ImportRecurrent(OpCall& c) {
  const bool lstm = c.op() == "LSTM", gru = c.op() == "GRU";
  const std::vector<std::string> names = lstm  ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                         : gru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                               : std::vector<std::string>{"Tanh"};
  const Layer l = ReadLayer(c, lstm ? 4 : gru ? 3 : 1, names);
  const bool linear_before_reset = gru && c.Int("linear_before_reset", 0) != 0;
  const bool input_forget = lstm && c.Int("input_forget", 0) != 0;
  if (!c.ok()) return;
  std::vector<std::vector<Val>> by_direction;
  std::vector<Val> last_h, last_cell;
  for (int64_t d = 0; d < l.directions; ++d) {
    const bool backwards = l.direction == "reverse" || d == 1;
    const Weights w = ReadWeights(c, l, d);
    const Cell cell{c,           l, w, &l.activations[static_cast<size_t>(d) * l.per_direction], linear_before_reset,
                    input_forget};
    // All steps' inputs times their weights in one product.
    Val xw = c.e.Emit("matmul", {l.x, w.input});
    if (w.input_bias.ok()) xw = xw + w.input_bias;
    State state{InitialState(c, l, 5, d), lstm ? InitialState(c, l, 6, d) : Val()};
    std::vector<Val> outputs(static_cast<size_t>(l.steps));
    for (int64_t i = 0; i < l.steps && c.ok(); ++i) {
      const int64_t t = backwards ? l.steps - 1 - i : i;
      const Val step = c.e.Squeeze(c.e.Slice(xw, 0, t, t + 1), {0});
      State next = lstm ? cell.Lstm(step, state) : gru ? cell.Gru(step, state) : cell.Rnn(step, state);
      Val output = next.h;
      if (l.lengths.ok()) {
        // Beyond a sequence's end its state stays and its output is 0.
        const Val runs = Apply("gt", l.lengths, static_cast<double>(t));
        output = c.e.Where(runs, next.h, 0.0);
        next.h = c.e.Where(runs, next.h, state.h);
        if (lstm) next.cell = c.e.Where(runs, next.cell, state.cell);
      }
      outputs[static_cast<size_t>(t)] = output;
      state = next;
    }
    by_direction.push_back(std::move(outputs));
    last_h.push_back(state.h);
    last_cell.push_back(state.cell);
  }
  if (!c.ok()) return;
  const auto last = [&](const std::vector<Val>& states) {
    std::vector<Val> parts;
    for (const Val& s : states) parts.push_back(c.e.Unsqueeze(s, l.batch_first ? 1 : 0));
    return c.e.Concat(parts, l.batch_first ? 1 : 0);  // [directions, batch, H] or [batch, directions, H]
  };
  if (c.WantsOut(0)) {
    if (l.steps == 0) return c.Refuse("a sequence of no steps is not supported");
    std::vector<Val> directions;
    for (const std::vector<Val>& outputs : by_direction) {
      std::vector<Val> steps;
      for (const Val& output : outputs) steps.push_back(c.e.Unsqueeze(output, 0));
      directions.push_back(c.e.Unsqueeze(c.e.Concat(steps, 0), 1));
    }
    const Val y = c.e.Concat(directions, 1);  // [steps, directions, batch, H]
    c.Out(0, l.batch_first ? c.e.Permute(y, {2, 0, 1, 3}) : y);
  }
  if (c.WantsOut(1)) c.Out(1, last(last_h));
  if (lstm && c.WantsOut(2)) c.Out(2, last(last_cell));
}

}  // namespace

void AddRecurrentImporters(ImporterTable& table) {
  for (const char* op : {"RNN", "GRU", "LSTM"}) table[op] = ImportRecurrent;
}

}  // namespace fuseline::onnx_import
