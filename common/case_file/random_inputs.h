// Random tensors for the inputs of a graph: what `run --random` feeds and what benchmarks measure with.
// Pipeline: input types, seed -> MakeRandomInputs -> tensors.
// Values: floats normal with deviation 1, integers in [0, 8) (valid as indices almost everywhere), bool either; input i
// uses the seed SEED + i of random_values.h. Units: bytes. Thread-safety: pure functions.
// Tested by tests/unit/client/random_inputs_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/types.h"
#include "common/tensor/tensor.h"

namespace fuseline {

// Drawn values of a large input of a benchmark; the rest repeats them. Long enough that no cache or branch predictor
// learns them, short enough that making the inputs costs less than measuring.
inline constexpr int64_t kBenchmarkInputPeriod = int64_t{1} << 20;
// The inputs of a benchmark together, in host memory: several times what the largest graphs of deploy/examples/bench
// need, and no more than a machine with a GPU has.
inline constexpr int64_t kMaxBenchmarkInputBytes = int64_t{32} << 30;

// `type` is static. `seed`: SEED + i. `period`: see random_values.h.
Tensor MakeRandomInput(const TensorType& type, uint64_t seed, int64_t period);

// The bytes of all inputs of a benchmark. Errors: INVALID_ARGUMENT (kLimitExceeded) over kMaxBenchmarkInputBytes.
absl::StatusOr<int64_t> BenchmarkInputBytes(const std::vector<TensorType>& types);
// The inputs of a benchmark, in the order of `types`, which are static. Errors: as BenchmarkInputBytes.
absl::StatusOr<std::vector<Tensor>> MakeBenchmarkInputs(const std::vector<TensorType>& types, int64_t seed);

}  // namespace fuseline
