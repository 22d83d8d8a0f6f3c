#include "common/tensor/stream/chunk_format.h"

#include <algorithm>

namespace fuseline {
namespace {

// Tags: field number * 8 + wire type (0: varint, 2: with a length).
constexpr uint8_t kChunkTag = 2 * 8 + 2;
constexpr uint8_t kNameTag = 1 * 8 + 2;
constexpr uint8_t kOffsetTag = 2 * 8 + 0;
constexpr uint8_t kDataTag = 3 * 8 + 2;
// Longer names are left to the parser, which has bounds of its own.
constexpr uint64_t kMaxNameBytes = 4096;

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// A position in a message that is given in pieces.
class Cursor {
 public:
  explicit Cursor(const std::vector<std::string_view>& pieces) : pieces_(pieces) {
    for (const std::string_view piece : pieces) left_ += piece.size();
  }

  uint64_t left() const { return left_; }

  bool Byte(uint8_t& byte) {
    if (left_ == 0) return false;
    SkipEmpty();
    byte = static_cast<uint8_t>(pieces_[index_][offset_]);
    Advance(1);
    return true;
  }

  bool Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      if (!Byte(byte)) return false;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // The next `size` bytes, which are there, as pieces.
  void Take(uint64_t size, std::vector<std::string_view>& out) {
    while (size > 0) {
      SkipEmpty();
      const std::string_view piece = pieces_[index_].substr(offset_);
      const size_t count = static_cast<size_t>(std::min<uint64_t>(size, piece.size()));
      out.push_back(piece.substr(0, count));
      Advance(count);
      size -= count;
    }
  }

 private:
  void SkipEmpty() {
    while (offset_ == pieces_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
  }
  void Advance(size_t count) {
    offset_ += count;
    left_ -= count;
  }

  const std::vector<std::string_view>& pieces_;
  size_t index_ = 0;
  size_t offset_ = 0;
  uint64_t left_ = 0;
};

}  // namespace

std::string ChunkHead(std::string_view name, int64_t offset_bytes, int64_t size_bytes) {
  std::string fields;
  if (!name.empty()) {
    fields.push_back(static_cast<char>(kNameTag));
    AppendVarint(name.size(), fields);
    fields.append(name);
  }
  if (offset_bytes != 0) {
    fields.push_back(static_cast<char>(kOffsetTag));
    AppendVarint(static_cast<uint64_t>(offset_bytes), fields);
  }
  const uint64_t size = static_cast<uint64_t>(size_bytes);
  if (size != 0) {
    fields.push_back(static_cast<char>(kDataTag));
    AppendVarint(size, fields);
  }
  std::string head;
  head.push_back(static_cast<char>(kChunkTag));
  AppendVarint(fields.size() + size, head);
  return head + fields;
}

bool ReadChunk(const std::vector<std::string_view>& message, ChunkView& chunk) {
  Cursor cursor(message);
  uint8_t tag = 0;
  uint64_t size = 0;
  if (!cursor.Byte(tag) || tag != kChunkTag || !cursor.Varint(size) || size != cursor.left()) return false;
  chunk = ChunkView();
  uint32_t seen = 0;
  while (cursor.left() > 0) {
    if (!cursor.Byte(tag)) return false;
    if ((seen & (1u << (tag >> 3 & 31))) != 0) return false;  // given twice: the parser knows which one counts
    seen |= 1u << (tag >> 3 & 31);
    uint64_t value = 0;
    if ((tag != kNameTag && tag != kOffsetTag && tag != kDataTag) || !cursor.Varint(value)) return false;
    if (tag == kOffsetTag) {
      chunk.offset_bytes = static_cast<int64_t>(value);
      continue;
    }
    if (value > cursor.left()) return false;
    if (tag == kDataTag) {
      cursor.Take(value, chunk.pieces);
      chunk.size_bytes = static_cast<int64_t>(value);
      continue;
    }
    if (value > kMaxNameBytes) return false;
    std::vector<std::string_view> name;
    cursor.Take(value, name);
    for (const std::string_view piece : name) chunk.name.append(piece);
  }
  return true;
}

}  // namespace fuseline
