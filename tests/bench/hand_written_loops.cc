#include "tests/bench/hand_written_loops.h"

// libmvec's vector form of expf (within 4 ulp), which -fno-math-errno and this declaration allow.
extern "C" __attribute__((__simd__("notinbranch"), const)) float expf(float) noexcept;

namespace fuseline {

void SigmoidRows(const float* x, const float* w, const float* b, float* y, int64_t columns, int64_t begin,
                 int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float* __restrict__ from = x + i * columns;
    float* __restrict__ to = y + i * columns;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) to[j] = 1.0f / (1.0f + expf(-(from[j] * w[j] + b[j])));
  }
}

void SumRows(const float* x, float* y, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float* from = x + i * columns;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < columns; ++j) sum += from[j] * 2.0f;
    y[i] = sum + 1.0f;
  }
}

}  // namespace fuseline
