// The two seed examples as a programmer would write them by hand, fused: what the CPU target's code is measured
// against. Built for this machine's processor, as that code is. Thread-safety: pure functions.
#pragma once

#include <cstdint>

namespace fuseline {

// y[i][j] = sigmoid(x[i][j] * w[j] + b[j]) for rows [begin, end).
void SigmoidRows(const float* x, const float* w, const float* b, float* y, int64_t columns, int64_t begin, int64_t end);
// y[i] = sum over j of x[i][j] * 2, plus 1, for rows [begin, end).
void SumRows(const float* x, float* y, int64_t columns, int64_t begin, int64_t end);

}  // namespace fuseline
