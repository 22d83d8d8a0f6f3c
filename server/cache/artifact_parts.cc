#include "server/cache/artifact_parts.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

// Stands in the body where a kernel's bytes were, since an artifact without them is not valid.
constexpr std::string_view kElsewhere = "@";
// A record: version (1 byte), then for each part SHA-256 and size (little-endian), then the checksum.
constexpr char kRecordVersion = 1;
constexpr size_t kDigestBytes = 32 + 8;
constexpr size_t kChecksumBytes = 16;
constexpr int64_t kMaxPartBytes = int64_t{1} << 40;

absl::Status Bad(std::string_view what) {
  return InvalidArgument(ErrorReason::kDataLoss, "artifact", StrCat("cache entry: ", what));
}

std::string Checksum(const Fingerprint& key, std::string_view payload) {
  std::string text(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
  text.append(payload);
  const Digest digest = ComputeDigest(text);
  return std::string(reinterpret_cast<const char*>(digest.sha256.data()), kChecksumBytes);
}

}  // namespace

std::vector<std::string> SplitArtifact(const Artifact& artifact) {
  std::vector<std::string> parts(1);
  Artifact body = artifact;
  for (KernelImage& kernel : body.kernels) {
    parts.push_back(std::exchange(kernel.bytes, std::string(kElsewhere)));
    parts.push_back(std::exchange(kernel.source, std::string(kElsewhere)));
  }
  parts[0] = SerializeArtifact(body);
  return parts;
}

absl::StatusOr<Artifact> JoinArtifact(std::vector<std::string> parts) {
  if (parts.empty()) return Bad("no parts");
  FUSELINE_ASSIGN_OR_RETURN(Artifact artifact, DeserializeArtifact(parts[0]));
  if (parts.size() != 1 + 2 * artifact.kernels.size()) return Bad("the number of parts does not fit the kernels");
  for (size_t k = 0; k < artifact.kernels.size(); ++k) {
    artifact.kernels[k].bytes = std::move(parts[1 + 2 * k]);
    artifact.kernels[k].source = std::move(parts[2 + 2 * k]);
    if (artifact.kernels[k].bytes.empty()) return Bad("a kernel is empty");
  }
  return artifact;
}

std::string EncodeIndexRecord(const Fingerprint& key, const std::vector<Digest>& parts) {
  std::string record(1, kRecordVersion);
  for (const Digest& part : parts) {
    record.append(reinterpret_cast<const char*>(part.sha256.data()), part.sha256.size());
    for (int byte = 0; byte < 8; ++byte)
      record += static_cast<char>(static_cast<uint64_t>(part.size_bytes) >> (8 * byte) & 0xff);
  }
  return record + Checksum(key, record);
}

absl::StatusOr<std::vector<Digest>> DecodeIndexRecord(const Fingerprint& key, std::string_view record) {
  if (record.size() < 1 + kDigestBytes + kChecksumBytes || (record.size() - 1 - kChecksumBytes) % kDigestBytes != 0) {
    return Bad("the index record has a wrong length");
  }
  const std::string_view payload = record.substr(0, record.size() - kChecksumBytes);
  if (payload[0] != kRecordVersion) return Bad("the index record has another version");
  if (record.substr(payload.size()) != Checksum(key, payload)) return Bad("the index record's checksum is wrong");
  std::vector<Digest> parts;
  for (std::string_view rest = payload.substr(1); !rest.empty(); rest.remove_prefix(kDigestBytes)) {
    Digest& part = parts.emplace_back();
    memcpy(part.sha256.data(), rest.data(), part.sha256.size());
    uint64_t size = 0;
    for (int byte = 0; byte < 8; ++byte)
      size |= static_cast<uint64_t>(static_cast<uint8_t>(rest[32 + byte])) << (8 * byte);
    part.size_bytes = static_cast<int64_t>(size);
    if (part.size_bytes < 0 || part.size_bytes > kMaxPartBytes) return Bad("a part's size is out of range");
  }
  return parts;
}

}  // namespace fuseline::cache
