#include "common/case_file/random_inputs.h"

#include "absl/strings/str_cat.h"
#include "common/case_file/random_values.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline {

Tensor MakeRandomInput(const TensorType& type, uint64_t seed, int64_t period) {
  Tensor tensor = Tensor::Allocate(type.dtype, type.shape());
  if (IsFloat(type.dtype)) {
    FillNormal(tensor, seed, period);
  } else {
    FillRandomInt(tensor, seed, 0, IsBool(type.dtype) ? 2 : 8, period);
  }
  return tensor;
}

absl::StatusOr<int64_t> BenchmarkInputBytes(const std::vector<TensorType>& types) {
  int64_t total = 0;
  for (const TensorType& type : types) {
    const int64_t bytes = type.size_bytes();
    if (bytes > kMaxBenchmarkInputBytes - total) {
      return InvalidArgument(
          ErrorReason::kLimitExceeded, "inputs",
          absl::StrCat("the graph's inputs are over the limit of ", kMaxBenchmarkInputBytes, " bytes for a benchmark"));
    }
    total += bytes;
  }
  return total;
}

absl::StatusOr<std::vector<Tensor>> MakeBenchmarkInputs(const std::vector<TensorType>& types, int64_t seed) {
  FUSELINE_RETURN_IF_ERROR(BenchmarkInputBytes(types).status());
  std::vector<Tensor> inputs;
  inputs.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    inputs.push_back(MakeRandomInput(types[i], static_cast<uint64_t>(seed) + i, kBenchmarkInputPeriod));
  }
  return inputs;
}

}  // namespace fuseline
