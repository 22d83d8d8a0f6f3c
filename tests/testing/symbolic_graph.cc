#include "tests/testing/symbolic_graph.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/ir/verify_graph.h"
#include "common/status/str_cat.h"

namespace fuseline::testing {
namespace {

std::string SymbolFor(int64_t size) { return StrCat("n", size); }

// Sizes above 1 that occur in dense inputs and in no strided one, whose strides would change with them.
std::set<int64_t> Candidates(const Graph& graph) {
  std::set<int64_t> out;
  std::set<int64_t> fixed;
  for (const ValueId id : graph.inputs) {
    const TensorType& type = graph.type(id);
    for (const Dim& dim : type.dims) {
      if (dim.size > 1) (type.strides.has_value() ? fixed : out).insert(dim.size);
    }
  }
  for (const int64_t size : fixed) out.erase(size);
  return out;
}

// The graph with these sizes as symbols, and nothing that was inferred from them.
Graph WithSymbols(const Graph& graph, const std::set<int64_t>& sizes) {
  Graph out = graph;
  for (Value& value : out.values) {
    value.declared_type.reset();
    if (value.producer != kNoNode) value.type = TensorType();
  }
  for (const ValueId id : out.inputs) {
    for (Dim& dim : out.values[static_cast<size_t>(id)].type.dims) {
      if (sizes.count(dim.size) > 0) dim = Dim::Symbol(SymbolFor(dim.size));
    }
  }
  return out;
}

bool Fits(const Graph& graph, int64_t max_elements) {
  return std::all_of(graph.values.begin(), graph.values.end(), [&](const Value& value) {
    int64_t elements = 1;
    for (const Dim& dim : value.type.dims) {
      if (dim.size > 0 && elements > max_elements / dim.size) return false;
      elements *= dim.size;
    }
    return true;
  });
}

// Other sizes: an odd multiple and some more, so that what it can be divided by changes as well; or 1.
int64_t OtherSize(int64_t size, bool one) { return one ? 1 : 2 * size + 1; }

std::optional<Graph> BindTo(const Graph& symbolic, const std::set<int64_t>& sizes, bool own, bool one,
                            int64_t max_elements) {
  SymbolSizes bound;
  for (const int64_t size : sizes) bound[SymbolFor(size)] = own ? size : OtherSize(size, one);
  absl::StatusOr<Graph> graph = BindSymbols(symbolic, bound);
  if (!graph.ok() || !Fits(*graph, max_elements)) return std::nullopt;
  return *std::move(graph);
}

// The elements over and over.
Tensor Repeat(const Tensor& tensor, const TensorType& type) {
  Tensor out = Tensor::Allocate(type.dtype, type.shape());
  const auto size = static_cast<size_t>(DTypeSizeBytes(type.dtype));
  const int64_t count = tensor.element_count();
  for (int64_t i = 0; i < out.element_count(); ++i) {
    std::memcpy(static_cast<char*>(out.data()) + static_cast<size_t>(i) * size,
                static_cast<const char*>(tensor.data()) + static_cast<size_t>(i % count) * size, size);
  }
  return out;
}

}  // namespace

std::optional<SymbolicGraph> MakeSymbolic(const Graph& graph, const std::vector<Tensor>& inputs, int64_t max_elements) {
  std::set<int64_t> sizes;
  for (const int64_t candidate : Candidates(graph)) {
    std::set<int64_t> more = sizes;
    more.insert(candidate);
    const Graph symbolic = WithSymbols(graph, more);
    if (BindTo(symbolic, more, true, false, max_elements) && BindTo(symbolic, more, false, false, max_elements))
      sizes = std::move(more);
  }
  if (sizes.empty()) return std::nullopt;
  SymbolicGraph out;
  out.graph = WithSymbols(graph, sizes);
  out.bindings.push_back({*BindTo(out.graph, sizes, true, false, max_elements), inputs});
  for (const bool one : {false, true}) {
    std::optional<Graph> bound = BindTo(out.graph, sizes, false, one, max_elements);
    if (!bound) continue;
    SymbolicBinding binding;
    for (size_t i = 0; i < inputs.size(); ++i)
      binding.inputs.push_back(Repeat(inputs[i], bound->type(bound->inputs[i])));
    binding.graph = *std::move(bound);
    out.bindings.push_back(std::move(binding));
  }
  return out;
}

}  // namespace fuseline::testing
