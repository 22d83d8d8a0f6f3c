// Changes of a graph for tests of its key: those that leave what it means, and those that change it.
// Pipeline: Graph, seed -> Respell -> the same graph spelled otherwise; Graph, seed -> Mutate -> other graphs.
// A mutated graph need not be valid: the key must tell it from the original all the same, so that it does not lean on
// the verifier. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace fuseline::testing {

// Other names everywhere, other origins, nodes in another order, other numbers of values, dead nodes, types declared
// or not.
Graph Respell(const Graph& graph, uint64_t seed);

struct Mutation {
  std::string kind;  // "literal: one bit"
  std::string site;  // for the message of a failed test: "%v3: mul"
  Graph graph;
};

// Of a graph whose nodes are all live: at most `per_kind` mutations of each kind that it has a place for.
std::vector<Mutation> Mutate(const Graph& graph, uint64_t seed, int per_kind);

// Values of the attribute's type that differ from `value` and from each other, in as little as they can.
std::vector<AttrValue> OtherValues(const AttrValue& value);

}  // namespace fuseline::testing
