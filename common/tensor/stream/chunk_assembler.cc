#include "common/tensor/stream/chunk_assembler.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline {
namespace {

absl::Status ChunkError(const std::string& subject, const std::string& message) {
  return InvalidArgument(ErrorReason::kTensorMismatch, subject, message);
}

}  // namespace

ChunkAssembler::ChunkAssembler(std::string what, std::vector<StreamedTensor> tensors) : what_(std::move(what)) {
  parts_.reserve(tensors.size());
  for (StreamedTensor& tensor : tensors) {
    unnamed_ = unnamed_ && tensor.name.empty();
    by_name_.emplace(tensor.name, parts_.size());
    parts_.push_back({std::move(tensor.name), std::move(tensor.tensor)});
  }
  while (!complete() && parts_[first_open_].complete()) ++first_open_;
}

std::string ChunkAssembler::Label(size_t part) const {
  if (!parts_[part].name.empty()) return absl::StrCat(what_, " '", parts_[part].name, "'");
  return parts_.size() == 1 ? what_ : absl::StrCat(what_, " ", part);
}

absl::Status ChunkAssembler::Find(const ChunkView& chunk, size_t& part) const {
  if (chunk.name.empty() && (unnamed_ || parts_.size() == 1)) {
    if (complete()) {
      return ChunkError(what_, absl::StrCat("a chunk at offset ", chunk.offset_bytes,
                                            " comes after everything that the header announced"));
    }
    part = first_open_;
    return absl::OkStatus();
  }
  const auto it = by_name_.find(chunk.name);
  if (it == by_name_.end()) {
    return ChunkError(chunk.name, absl::StrCat("a chunk at offset ", chunk.offset_bytes, " is of ", what_, " '",
                                               chunk.name, "', which the header did not announce"));
  }
  part = it->second;
  if (part != current_ && parts_[current_].filled_bytes > 0 && !parts_[current_].complete()) {
    return ChunkError(parts_[current_].name,
                      absl::StrCat(Label(current_), ": a chunk at offset ", parts_[current_].filled_bytes,
                                   " was expected, not one of ", Label(part), ": tensors come one after the other"));
  }
  return absl::OkStatus();
}

absl::Status ChunkAssembler::Add(const ChunkView& chunk) {
  size_t index = 0;
  FUSELINE_RETURN_IF_ERROR(Find(chunk, index));
  Part& part = parts_[index];
  const auto error = [&](const auto&... message) {
    return ChunkError(part.name.empty() ? what_ : part.name,
                      absl::StrCat(Label(index), ": the chunk at offset ", chunk.offset_bytes, message...));
  };
  if (chunk.size_bytes == 0) return error(" has no data");
  if (chunk.size_bytes > kMaxChunkBytes) return error(" has ", chunk.size_bytes, " bytes, more than ", kMaxChunkBytes);
  if (chunk.offset_bytes != part.filled_bytes) return error(" should start at ", part.filled_bytes);
  const int64_t left = part.tensor.size_bytes() - part.filled_bytes;
  if (chunk.size_bytes > left) return error(" has ", chunk.size_bytes, " bytes where only ", left, " are missing");
  char* const begin = static_cast<char*>(part.tensor.data()) + part.filled_bytes;
  char* to = begin;
  for (const std::string_view piece : chunk.pieces) {
    if (piece.empty()) continue;
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  if (part.tensor.dtype() == DType::kBool) {
    // Kernels compute with these bytes as they are, so only 0 and 1 may come in.
    uint8_t all = 0;
    for (const char* c = begin; c != to; ++c) all |= static_cast<uint8_t>(*c);
    if (all > 1) return error(" has a bool that is neither 0 nor 1");
  }
  part.filled_bytes += chunk.size_bytes;
  current_ = index;
  while (!complete() && parts_[first_open_].complete()) ++first_open_;
  return absl::OkStatus();
}

absl::Status ChunkAssembler::CheckComplete() const {
  if (complete()) return absl::OkStatus();
  const Part& part = parts_[first_open_];
  return ChunkError(part.name.empty() ? what_ : part.name,
                    absl::StrCat(Label(first_open_), ": the stream ends at offset ", part.filled_bytes, " of ",
                                 part.tensor.size_bytes(), " bytes"));
}

}  // namespace fuseline
