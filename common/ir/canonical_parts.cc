#include "common/ir/canonical_parts.h"

#include <cstdint>
#include <string>
#include <utility>

#include "common/ir/canonical.h"

namespace fuseline {
namespace {

// Reads what CanonicalBytes writes. After the first failure everything is 0 or empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t Uint() {
    const std::string_view bytes = Take(8);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    return value;
  }
  uint8_t Tag() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  // A count of things of at least `least_bytes` each.
  size_t Count(size_t least_bytes) {
    const uint64_t count = Uint();
    if (count > rest_.size() / least_bytes) ok_ = false;
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  std::string_view String() { return Take(Count(1)); }
  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view Take(size_t size) {
    if (size > rest_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

TensorType ReadType(ByteReader& reader) {
  TensorType type;
  type.dtype = static_cast<DType>(reader.Tag() % kDTypeCount);
  const size_t rank = reader.Count(8);
  for (size_t i = 0; i < rank && reader.ok(); ++i) {
    Dim& dim = type.dims.emplace_back();
    dim.symbol = std::string(reader.String());
    if (!dim.is_symbolic()) dim.size = static_cast<int64_t>(reader.Uint());
  }
  if (reader.Tag() != 0) {
    std::vector<int64_t>& strides = type.strides.emplace();
    const size_t count = reader.Count(8);
    for (size_t i = 0; i < count && reader.ok(); ++i) strides.push_back(static_cast<int64_t>(reader.Uint()));
  }
  return type;
}

}  // namespace

std::optional<CanonicalParts> SplitCanonicalBytes(std::string_view bytes) {
  // What stands before the inputs is the same for all graphs of this version.
  const std::string empty_graph = CanonicalBytes(Graph());
  constexpr size_t kCountsBehind = 3 * 8;  // inputs, nodes, outputs
  const std::string_view head = std::string_view(empty_graph).substr(0, empty_graph.size() - kCountsBehind);
  if (bytes.substr(0, head.size()) != head) return std::nullopt;
  ByteReader reader(bytes.substr(head.size()));
  CanonicalParts parts;
  constexpr size_t kLeastInputBytes = 8 + 1 + 8 + 1;
  const size_t count = reader.Count(kLeastInputBytes);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    reader.Uint();  // its number
    parts.input_types.push_back(ReadType(reader));
  }
  if (!reader.ok()) return std::nullopt;
  parts.nodes = reader.rest();
  parts.inputs = bytes.substr(head.size(), bytes.size() - head.size() - parts.nodes.size());
  return parts;
}

}  // namespace fuseline
