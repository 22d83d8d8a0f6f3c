#include "server/cache/key_record.h"

#include <string.h>

#include <algorithm>
#include <optional>

#include "common/ir/canonical_parts.h"
#include "common/status/error.h"

namespace fuseline::cache {
namespace {

// One byte version, the fingerprint, then the fields.
constexpr char kVersion = 1;
constexpr size_t kFieldBytes = 8;
constexpr size_t kMaxFields = 64;
constexpr int64_t kNodesWeight = 1000;
constexpr int64_t kInputsWeight = 100;

KeyRecord::FieldDigest Short(std::string_view bytes) {
  KeyRecord::FieldDigest out;
  const Digest digest = ComputeDigest(bytes);
  std::copy_n(digest.sha256.begin(), out.size(), out.begin());
  return out;
}

}  // namespace

KeyRecord MakeKeyRecord(const Fingerprint& fingerprint, const FingerprintInputs& inputs) {
  KeyRecord record;
  record.fingerprint = fingerprint;
  const std::optional<CanonicalParts> parts = SplitCanonicalBytes(inputs.canonical_graph);
  record.fields.push_back(Short(parts.has_value() ? parts->inputs : std::string_view()));
  record.fields.push_back(Short(parts.has_value() ? parts->nodes : std::string_view(inputs.canonical_graph)));
  for (const KeyField& field : ExplainKey(inputs)) {
    if (field.name != "graph") record.fields.push_back(Short(field.digest));
  }
  return record;
}

KeyRecord MakeKeyRecord(const Fingerprint& fingerprint, const Artifact& artifact) {
  return MakeKeyRecord(fingerprint,
                       {artifact.canonical_graph, artifact.target, artifact.options, artifact.compiler_identity});
}

std::string EncodeKeyRecord(const KeyRecord& record) {
  std::string bytes(1, kVersion);
  bytes.append(reinterpret_cast<const char*>(record.fingerprint.bytes.data()), record.fingerprint.bytes.size());
  for (const KeyRecord::FieldDigest& field : record.fields)
    bytes.append(reinterpret_cast<const char*>(field.data()), field.size());
  return bytes;
}

absl::StatusOr<KeyRecord> DecodeKeyRecord(std::string_view bytes) {
  KeyRecord record;
  const size_t head = 1 + record.fingerprint.bytes.size();
  if (bytes.size() < head || bytes[0] != kVersion || (bytes.size() - head) % kFieldBytes != 0 ||
      (bytes.size() - head) / kFieldBytes > kMaxFields) {
    return InvalidArgument(ErrorReason::kDataLoss, "key", "cache entry: the key record is malformed");
  }
  memcpy(record.fingerprint.bytes.data(), bytes.data() + 1, record.fingerprint.bytes.size());
  for (bytes.remove_prefix(head); !bytes.empty(); bytes.remove_prefix(kFieldBytes))
    memcpy(record.fields.emplace_back().data(), bytes.data(), kFieldBytes);
  return record;
}

int64_t Nearness(const KeyRecord& a, const KeyRecord& b) {
  if (a.fields.size() != b.fields.size()) return 0;
  int64_t nearness = 0;
  for (size_t i = 0; i < a.fields.size(); ++i) {
    if (a.fields[i] == b.fields[i]) nearness += i == 0 ? kInputsWeight : i == 1 ? kNodesWeight : 1;
  }
  return nearness;
}

void TakeNearer(const KeyRecord& wanted, const KeyRecord& entry, NearestEntry& nearest) {
  if (entry.fingerprint == wanted.fingerprint) return;
  ++nearest.compared;
  const int64_t nearness = Nearness(wanted, entry);
  if (nearness <= nearest.nearness) return;
  nearest.nearness = nearness;
  nearest.key = entry.fingerprint;
}

}  // namespace fuseline::cache
