#include "common/tensor/stream/chunk_buffers.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fuseline {

ChunkSplitter::ChunkSplitter(std::string name, const Tensor& tensor)
    : name_(std::move(name)), tensor_(std::make_shared<const Tensor>(tensor)) {}

bool ChunkSplitter::Next(grpc::ByteBuffer* buffer) {
  const int64_t size_bytes = std::min(kChunkBytes, tensor_->size_bytes() - offset_bytes_);
  if (size_bytes <= 0) return false;
  using Owner = std::shared_ptr<const Tensor>;
  // gRPC only reads; its interface takes a non-const pointer.
  char* const data = const_cast<char*>(static_cast<const char*>(tensor_->data())) + offset_bytes_;
  const grpc::Slice slices[] = {grpc::Slice(ChunkHead(name_, offset_bytes_, size_bytes)),
                                grpc::Slice(
                                    data, static_cast<size_t>(size_bytes),
                                    [](void* owner) { delete static_cast<Owner*>(owner); }, new Owner(tensor_))};
  *buffer = grpc::ByteBuffer(slices, 2);
  offset_bytes_ += size_bytes;
  return true;
}

bool ReadChunkInPlace(const grpc::ByteBuffer& buffer, std::vector<grpc::Slice>& slices, ChunkView& chunk) {
  slices.clear();
  if (!buffer.Dump(&slices).ok()) return false;
  std::vector<std::string_view> pieces;
  pieces.reserve(slices.size());
  for (const grpc::Slice& slice : slices)
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return ReadChunk(pieces, chunk);
}

}  // namespace fuseline
