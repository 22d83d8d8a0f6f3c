#include "server/codegen/schedule/partial_sums.h"

#include <algorithm>

namespace fuseline::codegen {
namespace {

using lowering::Accumulation;

constexpr int64_t kElementsOfSum = 4;    // at least, so that combining the partial sums costs little
constexpr int64_t kMostOfCudaRow = 512;  // a block of 128 threads with 4 lanes each
// Threads that walk down columns together, each with one partial sum for each of its columns in registers.
constexpr int64_t kMostOfCudaColumn = 8;
constexpr int64_t kMostOfCpuRow = 64;  // four vectors of the widest kind: enough additions under way at once

}  // namespace

int32_t CountPartialSums(const KernelBody& body, bool cuda) {
  switch (body.accumulation()) {
    case Accumulation::kFree:
      return 0;
    case Accumulation::kChained:
      return 1;
    case Accumulation::kByShape:
      break;
  }
  // The CPU walks down a tile of columns, whose lanes keep it busy.
  if (!body.inner && !cuda) return 1;
  const int64_t most = !body.inner ? kMostOfCudaColumn : cuda ? kMostOfCudaRow : kMostOfCpuRow;
  const int64_t wanted = std::min(most, body.reduced_count() / kElementsOfSum);
  int32_t count = 1;
  while (count * 2 <= wanted) count *= 2;
  return count;
}

}  // namespace fuseline::codegen
