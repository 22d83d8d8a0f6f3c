#include "client/cli/graph_inputs.h"

#include <filesystem>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/graph_file.h"
#include "common/case_file/random_inputs.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/npy.h"

namespace fuseline::cli {
namespace {

absl::Status InputError(const std::string& name, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, name, absl::StrCat("input '", name, "' ", message));
}

// Learns sizes of symbols from a tensor; the engine checks them.
void LearnSymbols(const TensorType& type, const Shape& shape, SymbolSizes& symbols) {
  if (type.dims.size() != shape.size()) return;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (type.dims[d].is_symbolic()) symbols.emplace(type.dims[d].symbol, shape[d]);
  }
}

absl::StatusOr<Tensor> RandomTensor(const std::string& name, const TensorType& type, const SymbolSizes& symbols,
                                    uint64_t seed) {
  // A graph that is not verified yet may ask for anything.
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  Shape shape;
  int64_t bytes = DTypeSizeBytes(type.dtype);
  for (const Dim& dim : type.dims) {
    int64_t size = dim.size;
    if (dim.is_symbolic()) {
      const auto it = symbols.find(dim.symbol);
      if (it == symbols.end())
        return InputError(
            name, absl::StrCat("has a dim '", dim.symbol, "' without a size: give --symbol ", dim.symbol, "=SIZE"));
      size = it->second;
    }
    if (size < 0 || (size > 0 && bytes > kMaxBytes / size)) return InputError(name, "is too large");
    bytes *= size;
    shape.push_back(size);
  }
  return MakeRandomInput(TensorType::Make(type.dtype, shape), seed, /*period=*/0);
}

// DIRECTORY/NAME.npy of every other input that has one. A graph that is not verified yet may have any name.
void AddFilesOf(const std::string& directory, const Graph& graph, std::map<std::string, std::string>& files) {
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    if (absl::StrContains(name, '/')) continue;
    std::string path = absl::StrCat(directory, "/", name, ".npy");
    std::error_code error;
    if (std::filesystem::exists(path, error)) files.emplace(name, std::move(path));
  }
}

}  // namespace

absl::StatusOr<std::vector<client::NamedTensor>> MakeInputs(const Graph& graph, const SymbolSizes& symbols,
                                                            const InputFlags& flags) {
  std::map<std::string, std::string> files;
  for (const std::string& text : flags.files) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--input"));
    if (!files.insert(assignment).second) return InputError(assignment.first, "is given twice");
  }
  if (!flags.directory.empty()) AddFilesOf(flags.directory, graph, files);
  SymbolSizes sizes = symbols;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> handles;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const auto it = files.find(value.name);
    if (it == files.end()) continue;
    if (it->second[0] == '@') {
      handles[value.name] = it->second.substr(1);
      files.erase(it);
      continue;
    }
    absl::StatusOr<Tensor> tensor = ReadNpyFile(it->second, value.type.dtype);
    if (!tensor.ok()) return Wrap(tensor.status(), absl::StrCat("input '", value.name, "'"));
    LearnSymbols(value.type, tensor->shape(), sizes);
    tensors[value.name] = *std::move(tensor);
    files.erase(it);
  }
  if (!files.empty()) return InputError(files.begin()->first, "is not an input of the graph");
  std::vector<client::NamedTensor> inputs;
  uint64_t position = 0;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const uint64_t seed = static_cast<uint64_t>(flags.random_seed.value_or(0)) + position++;
    if (const auto handle = handles.find(value.name); handle != handles.end()) {
      inputs.push_back({value.name, {}, handle->second});
      continue;
    }
    auto it = tensors.find(value.name);
    if (it == tensors.end()) {
      if (!flags.random_seed.has_value())
        return InputError(value.name,
                          absl::StrCat("has no tensor: give --input ", value.name, "=FILE.npy or --random SEED"));
      FUSELINE_ASSIGN_OR_RETURN(Tensor tensor, RandomTensor(value.name, value.type, sizes, seed));
      it = tensors.emplace(value.name, std::move(tensor)).first;
    }
    inputs.push_back({value.name, it->second});
  }
  return inputs;
}

}  // namespace fuseline::cli
