// The tensors of a graph's inputs: from .npy files, kept by the server, random where a seed is given.
// Pipeline: Graph, --input, --inputs-dir, --random, --symbol -> MakeInputs -> named tensors.
// Random values: floats normal with deviation 1, integers in [0, 8) (valid as indices almost everywhere), bool either;
// input i of the graph uses the seed SEED + i of common/case_file/random_values.h. Errors: INVALID_ARGUMENT
// (kTensorMismatch, kOptionInvalid) naming the input; what reading files says. Tested by tests/unit/client/cli_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "common/ir/graph.h"

namespace fuseline::cli {

struct InputFlags {
  std::vector<std::string> files;  // NAME=FILE.npy, or NAME=@HANDLE of a kept tensor
  std::string directory;           // where NAME.npy is looked for, of inputs that `files` does not name; "": nowhere
  std::optional<int64_t> random_seed;  // for inputs without a file
};

// In the graph's order. `symbols`: sizes of symbolic dims; those of given files are taken from them.
absl::StatusOr<std::vector<client::NamedTensor>> MakeInputs(const Graph& graph, const SymbolSizes& symbols,
                                                            const InputFlags& flags);

}  // namespace fuseline::cli
