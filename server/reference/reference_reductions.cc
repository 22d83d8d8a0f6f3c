// The primitive reductions. Tested by tests/unit/reference/reference_interpreter_test.cc
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/reference/reduced_loop.h"
#include "server/reference/reference_ops.h"
#include "server/reference/variance.h"

namespace fuseline::reference {
namespace {

// Whether `a` takes the place of `best`: NaN over numbers, +0.0 over -0.0.
bool ExceedsFloat(double a, double best) {
  if (std::isnan(best)) return false;
  if (std::isnan(a) || a > best) return true;
  return a == best && std::signbit(best) && !std::signbit(a);
}
bool FallsBelowFloat(double a, double best) {
  if (std::isnan(best)) return false;
  if (std::isnan(a) || a < best) return true;
  return a == best && !std::signbit(best) && std::signbit(a);
}

// Long double sums and products, one rounding at the end.
Array SumOrProduct(const OpContext& context, const Array& operand, const ReducedLoop& loop, bool product) {
  const DType to = context.result_types[0].dtype;
  Array result = Array::Make(to, context.result_types[0].shape());
  loop.ForEachKept([&](int64_t kept, int64_t base) {
    if (result.is_float()) {
      // The operand is converted to the dtype that is summed in.
      const DType compute = ComputeDType(to);
      long double total = product ? 1 : 0;
      loop.ForEachReduced(base, [&](int64_t, int64_t at) {
        const double element =
            RoundToDType(compute, operand.is_float() ? (*operand.f)[static_cast<size_t>(at)]
                                                     : static_cast<double>((*operand.i)[static_cast<size_t>(at)]));
        total = product ? total * element : total + element;
      });
      (*result.f)[static_cast<size_t>(kept)] = context.Round(static_cast<double>(total));
    } else {
      uint64_t total = product ? 1 : 0;
      loop.ForEachReduced(base, [&](int64_t, int64_t at) {
        const uint64_t element = static_cast<uint64_t>(WrapInteger(to, (*operand.i)[static_cast<size_t>(at)]));
        total = product ? total * element : total + element;
      });
      (*result.i)[static_cast<size_t>(kept)] = WrapInteger(to, static_cast<int64_t>(total));
    }
  });
  return result;
}

Array Extremum(const OpContext& context, const Array& operand, const ReducedLoop& loop, bool max) {
  Array result = Array::Make(operand.dtype, context.result_types[0].shape());
  loop.ForEachKept([&](int64_t kept, int64_t base) {
    if (operand.is_float()) {
      double best = (*operand.f)[static_cast<size_t>(base)];
      loop.ForEachReduced(base, [&](int64_t, int64_t at) {
        const double element = (*operand.f)[static_cast<size_t>(at)];
        if (max ? ExceedsFloat(element, best) : FallsBelowFloat(element, best)) best = element;
      });
      (*result.f)[static_cast<size_t>(kept)] = context.Round(best);
    } else {
      int64_t best = (*operand.i)[static_cast<size_t>(base)];
      loop.ForEachReduced(base, [&](int64_t, int64_t at) {
        const int64_t element = (*operand.i)[static_cast<size_t>(at)];
        if (max ? element > best : element < best) best = element;
      });
      (*result.i)[static_cast<size_t>(kept)] = best;
    }
  });
  return result;
}

// The first NaN wins, else the first of the equal ones; zeros of both signs are equal.
Array ArgExtremum(const OpContext& context, const Array& operand, const ReducedLoop& loop, bool max) {
  Array result = Array::Make(DType::kI64, context.result_types[0].shape());
  loop.ForEachKept([&](int64_t kept, int64_t base) {
    int64_t index = 0;
    if (operand.is_float()) {
      double best = (*operand.f)[static_cast<size_t>(base)];
      loop.ForEachReduced(base, [&](int64_t position, int64_t at) {
        const double element = (*operand.f)[static_cast<size_t>(at)];
        if (std::isnan(best)) return;
        if (std::isnan(element) || (max ? element > best : element < best)) {
          best = element;
          index = position;
        }
      });
    } else {
      int64_t best = (*operand.i)[static_cast<size_t>(base)];
      loop.ForEachReduced(base, [&](int64_t position, int64_t at) {
        const int64_t element = (*operand.i)[static_cast<size_t>(at)];
        if (max ? element > best : element < best) {
          best = element;
          index = position;
        }
      });
    }
    (*result.i)[static_cast<size_t>(kept)] = index;
  });
  return result;
}

Array Truth(const OpContext& context, const Array& operand, const ReducedLoop& loop, bool any) {
  Array result = Array::Make(DType::kBool, context.result_types[0].shape());
  loop.ForEachKept([&](int64_t kept, int64_t base) {
    bool truth = !any;
    loop.ForEachReduced(base, [&](int64_t, int64_t at) {
      const size_t k = static_cast<size_t>(at);
      const bool element = operand.is_float() ? (*operand.f)[k] != 0 : (*operand.i)[k] != 0;  // NaN is true
      truth = any ? truth || element : truth && element;
    });
    (*result.i)[static_cast<size_t>(kept)] = truth ? 1 : 0;
  });
  return result;
}

}  // namespace

std::vector<int64_t> ReducedDims(const OpContext& context, size_t rank) {
  std::vector<int64_t> dims;
  if (context.Has("dim")) {
    dims.push_back(context.Int("dim"));
  } else if (context.Has("dims")) {
    dims = context.Ints("dims");
  } else {
    for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  }
  for (int64_t& d : dims) {
    if (d < 0) d += static_cast<int64_t>(rank);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

Moments MomentsOf(const Array& operand, const ReducedLoop& loop, int64_t base, double correction) {
  const long double count = static_cast<long double>(loop.reduced_count());
  long double sum = 0;
  loop.ForEachReduced(base, [&](int64_t, int64_t at) { sum += (*operand.f)[static_cast<size_t>(at)]; });
  Moments moments;
  moments.mean = sum / count;
  long double squares = 0;
  loop.ForEachReduced(base, [&](int64_t, int64_t at) {
    const long double d = (*operand.f)[static_cast<size_t>(at)] - moments.mean;
    squares += d * d;
  });
  const long double divisor = std::max<long double>(0, count - correction);
  moments.variance = loop.reduced_count() == 0 ? std::numeric_limits<long double>::quiet_NaN() : squares / divisor;
  return moments;
}

absl::StatusOr<std::vector<Array>> EvaluateReduction(const OpContext& context, const Array& operand) {
  const ReducedLoop loop(operand, ReducedDims(context, operand.shape.size()));
  switch (context.node.def->reduction) {
    case ReductionKind::kSum:
      return std::vector<Array>{SumOrProduct(context, operand, loop, false)};
    case ReductionKind::kProd:
      return std::vector<Array>{SumOrProduct(context, operand, loop, true)};
    case ReductionKind::kAmax:
      return std::vector<Array>{Extremum(context, operand, loop, true)};
    case ReductionKind::kAmin:
      return std::vector<Array>{Extremum(context, operand, loop, false)};
    case ReductionKind::kAny:
      return std::vector<Array>{Truth(context, operand, loop, true)};
    case ReductionKind::kAll:
      return std::vector<Array>{Truth(context, operand, loop, false)};
    case ReductionKind::kArgmax:
      return std::vector<Array>{ArgExtremum(context, operand, loop, true)};
    case ReductionKind::kArgmin:
      return std::vector<Array>{ArgExtremum(context, operand, loop, false)};
    case ReductionKind::kVarMean: {
      Array var = Array::Make(context.result_types[0].dtype, context.result_types[0].shape());
      Array mean = Array::Make(context.result_types[1].dtype, context.result_types[1].shape());
      loop.ForEachKept([&](int64_t kept, int64_t base) {
        const Moments moments = MomentsOf(operand, loop, base, context.Number("correction"));
        (*var.f)[static_cast<size_t>(kept)] = context.Round(static_cast<double>(moments.variance), 0);
        (*mean.f)[static_cast<size_t>(kept)] = context.Round(static_cast<double>(moments.mean), 1);
      });
      return std::vector<Array>{var, mean};
    }
    case ReductionKind::kNone:
      break;
  }
  return Unimplemented("", absl::StrCat("op '", context.node.op, "' has no reference"));
}

}  // namespace fuseline::reference
