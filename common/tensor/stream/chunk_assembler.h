// Puts the chunks of a stream into the tensors that its header declared.
// Pipeline: header -> ChunkAssembler; ChunkView -> Add -> tensors. Chunks of a tensor come in order and without gaps,
// the tensors one after the other, in any order; chunks without a name go to the first tensor that is not complete.
// Ownership: the tensors' storage is allocated by the caller and filled in place. Units: bytes.
// Errors: INVALID_ARGUMENT (kTensorMismatch) naming the tensor and the chunk's offset; after one, the tensors are of no
// use. Thread-safety: thread-compatible. Tested by tests/unit/tensor_stream/chunk_assembler_test.cc
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/tensor/stream/chunk_format.h"
#include "common/tensor/tensor.h"

namespace fuseline {

// A tensor of a stream; its name may be empty, where it is known by its place.
struct StreamedTensor {
  std::string name;
  Tensor tensor;
};

class ChunkAssembler {
 public:
  // `what` is "input" or "output", for messages. Names are unique, or all empty.
  ChunkAssembler(std::string what, std::vector<StreamedTensor> tensors);

  absl::Status Add(const ChunkView& chunk);
  // Whether nothing is missing.
  bool complete() const { return first_open_ == parts_.size(); }
  // OK, or what is missing.
  absl::Status CheckComplete() const;

 private:
  struct Part {
    std::string name;
    Tensor tensor;
    int64_t filled_bytes = 0;
    bool complete() const { return filled_bytes == tensor.size_bytes(); }
  };

  std::string Label(size_t part) const;
  // The part that the chunk belongs to.
  absl::Status Find(const ChunkView& chunk, size_t& part) const;

  const std::string what_;
  std::vector<Part> parts_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  bool unnamed_ = true;
  size_t first_open_ = 0;  // parts before it are complete
  size_t current_ = 0;     // the part of the last chunk
};

}  // namespace fuseline
