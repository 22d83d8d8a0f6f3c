#include "server/cache/export_file.h"

#include <openssl/evp.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/cache/artifact_parts.h"

namespace fuseline::cache {

// SHA-256 of what has passed by.
class RunningDigest {
 public:
  RunningDigest() {
    if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) Fail();
  }
  ~RunningDigest() { EVP_MD_CTX_free(context_); }
  RunningDigest(const RunningDigest&) = delete;
  RunningDigest& operator=(const RunningDigest&) = delete;

  void Add(std::string_view bytes) {
    if (EVP_DigestUpdate(context_, bytes.data(), bytes.size()) != 1) Fail();
  }
  std::string Take() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    if (EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), &size) != 1) Fail();
    digest.resize(size);
    return digest;
  }

 private:
  [[noreturn]] static void Fail() {
    std::fputs("fuseline: SHA-256 is not available in this libcrypto\n", stderr);
    std::abort();
  }

  EVP_MD_CTX* const context_ = EVP_MD_CTX_new();
};

namespace {

constexpr std::string_view kMagic = "fuseline-cache-export\n";
constexpr char kVersion = 1;
constexpr size_t kHeaderBytes = kMagic.size() + 1;
constexpr char kEntryTag = 'E';
constexpr char kEndTag = 'Z';
constexpr size_t kKeyBytes = 32;
constexpr size_t kEntryHeadBytes = 1 + kKeyBytes + 4 + 8;
constexpr size_t kDigestBytes = 32;
constexpr size_t kEndBytes = 1 + 8 + kDigestBytes;
// An index record of one part, its signature, and room.
constexpr uint64_t kMaxRecordBytes = 4096;
// As a message of gRPC.
constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 31;
constexpr size_t kPieceBytes = size_t{4} << 20;

void AppendNumber(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadNumber(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

struct EntryHead {
  Fingerprint key;
  uint64_t record_bytes = 0;
  uint64_t body_bytes = 0;
};

// `bytes`: of kEntryHeadBytes, with the tag. False where the sizes are out of range.
bool ReadEntryHead(std::string_view bytes, EntryHead& head) {
  memcpy(head.key.bytes.data(), bytes.data() + 1, kKeyBytes);
  head.record_bytes = ReadNumber(bytes.substr(1 + kKeyBytes, 4));
  head.body_bytes = ReadNumber(bytes.substr(1 + kKeyBytes + 4, 8));
  return head.record_bytes <= kMaxRecordBytes && head.body_bytes <= kMaxBodyBytes;
}

absl::Status BadFile(uint64_t offset, uint64_t entries, std::string_view what) {
  return InvalidArgument(ErrorReason::kDataLoss, "file",
                         StrCat("the export file ", what, " at byte ", offset, ", after ", entries, " entries"));
}

absl::Status CheckHeader(std::string_view header) {
  if (header.substr(0, kMagic.size()) != kMagic)
    return InvalidArgument(ErrorReason::kDataLoss, "file", "this is no export file of a cache");
  if (header[kMagic.size()] == kVersion) return absl::OkStatus();
  return InvalidArgument(ErrorReason::kDataLoss, "file",
                         StrCat("export file: version ", static_cast<int>(static_cast<uint8_t>(header[kMagic.size()])),
                                ", this program reads ", static_cast<int>(kVersion)));
}

absl::Status BadEntry(std::string_view what) {
  return InvalidArgument(ErrorReason::kDataLoss, "artifact", StrCat("cache entry: ", what));
}

}  // namespace

ExportWriter::ExportWriter(ByteSink sink, const RecordSigner& signer)
    : sink_(std::move(sink)), signer_(signer), digest_(std::make_unique<RunningDigest>()) {}
ExportWriter::~ExportWriter() = default;

absl::Status ExportWriter::Add(const Artifact& artifact) {
  const std::string body = SerializeArtifact(artifact);
  const std::string record =
      signer_.Sign(artifact.fingerprint, EncodeIndexRecord(artifact.fingerprint, {ComputeDigest(body)}));
  std::string head(1, kEntryTag);
  head.append(reinterpret_cast<const char*>(artifact.fingerprint.bytes.data()), kKeyBytes);
  AppendNumber(record.size(), 4, &head);
  AppendNumber(body.size(), 8, &head);
  FUSELINE_RETURN_IF_ERROR(Write(head + record));
  for (size_t at = 0; at < body.size(); at += kPieceBytes)
    FUSELINE_RETURN_IF_ERROR(Write(std::string_view(body).substr(at, kPieceBytes)));
  ++entries_;
  return absl::OkStatus();
}

absl::Status ExportWriter::Finish() {
  std::string end(1, kEndTag);
  AppendNumber(entries_, 8, &end);
  FUSELINE_RETURN_IF_ERROR(Write(end));
  return sink_(digest_->Take());
}

absl::Status ExportWriter::Write(std::string_view bytes) {
  if (!begun_) {
    begun_ = true;
    FUSELINE_RETURN_IF_ERROR(Write(StrCat(kMagic, std::string(1, kVersion))));
  }
  digest_->Add(bytes);
  return sink_(bytes);
}

ExportReader::ExportReader(ByteSource source, const RecordSigner& signer)
    : source_(std::move(source)), signer_(signer), digest_(std::make_unique<RunningDigest>()) {}
ExportReader::~ExportReader() = default;

absl::StatusOr<std::optional<ExportReader::Entry>> ExportReader::Next() {
  if (ended_) return std::optional<Entry>();
  if (!begun_) FUSELINE_RETURN_IF_ERROR(ReadHeader());
  std::string bytes;
  FUSELINE_RETURN_IF_ERROR(Read(1, bytes));
  if (bytes[0] == kEndTag) return ReadEnd();
  if (bytes[0] != kEntryTag) return Damaged("is damaged before");
  std::string rest;
  FUSELINE_RETURN_IF_ERROR(Read(kEntryHeadBytes - 1, rest));
  EntryHead head;
  if (!ReadEntryHead(bytes + rest, head)) return Damaged("has sizes out of range before");
  std::string record;
  FUSELINE_RETURN_IF_ERROR(Read(static_cast<size_t>(head.record_bytes), record));
  std::string body;
  FUSELINE_RETURN_IF_ERROR(Read(static_cast<size_t>(head.body_bytes), body));
  ++entries_;
  Entry entry;
  entry.key = head.key;
  absl::StatusOr<ArtifactPtr> artifact = ReadExportEntry(head.key, record, body, signer_, nullptr);
  if (artifact.ok()) {
    entry.artifact = *std::move(artifact);
  } else {
    entry.refusal = std::string(artifact.status().message());
  }
  return std::optional<Entry>(std::move(entry));
}

absl::Status ExportReader::ReadHeader() {
  std::string header;
  const absl::Status status = Read(kHeaderBytes, header);
  // Whatever is shorter than the header is none either.
  if (!status.ok() && GetErrorReason(status) == ErrorReason::kDataLoss)
    return CheckHeader(std::string(kHeaderBytes, ' '));
  FUSELINE_RETURN_IF_ERROR(status);
  begun_ = true;
  return CheckHeader(header);
}

absl::StatusOr<std::optional<ExportReader::Entry>> ExportReader::ReadEnd() {
  std::string count;
  FUSELINE_RETURN_IF_ERROR(Read(8, count));
  const std::string expected = digest_->Take();
  std::string digest;
  FUSELINE_RETURN_IF_ERROR(Read(kDigestBytes, digest));
  if (ReadNumber(count) != entries_ || digest != expected) return Damaged("does not have the digest that it says");
  std::string more;
  if (Read(1, more).ok()) return Damaged("goes on behind its end");
  ended_ = true;
  return std::optional<Entry>();
}

absl::Status ExportReader::Read(size_t size, std::string& bytes) {
  bytes.clear();
  while (bytes.size() < size) {
    if (buffer_offset_ == buffer_.size()) {
      FUSELINE_ASSIGN_OR_RETURN(buffer_, source_());
      buffer_offset_ = 0;
      if (buffer_.empty()) return Damaged("is cut off");
    }
    const size_t taken = std::min(size - bytes.size(), buffer_.size() - buffer_offset_);
    bytes.append(buffer_, buffer_offset_, taken);
    buffer_offset_ += taken;
    offset_ += taken;
  }
  digest_->Add(bytes);
  return absl::OkStatus();
}

absl::Status ExportReader::Damaged(std::string_view what) const { return BadFile(offset_, entries_, what); }

absl::StatusOr<std::vector<ExportPlace>> ListExportEntries(const ByteReadAt& read, int64_t file_bytes) {
  const auto size = static_cast<uint64_t>(std::max<int64_t>(file_bytes, 0));
  if (size < kHeaderBytes) return CheckHeader(std::string(kHeaderBytes, ' '));
  FUSELINE_ASSIGN_OR_RETURN(const std::string header, read(0, kHeaderBytes));
  FUSELINE_RETURN_IF_ERROR(CheckHeader(header));
  std::vector<ExportPlace> places;
  uint64_t at = kHeaderBytes;
  const auto bad = [&](std::string_view what) { return BadFile(at, places.size(), what); };
  while (true) {
    if (size - at < kEndBytes) return bad("is cut off");  // an entry is longer than the end
    FUSELINE_ASSIGN_OR_RETURN(const std::string head_bytes,
                              read(static_cast<int64_t>(at), std::min<size_t>(kEntryHeadBytes, size - at)));
    if (head_bytes[0] == kEndTag) {
      if (size - at != kEndBytes) return bad("goes on behind its end");
      if (ReadNumber(std::string_view(head_bytes).substr(1, 8)) != places.size())
        return bad("has another count of entries");
      return places;
    }
    EntryHead head;
    if (head_bytes[0] != kEntryTag) return bad("is damaged before");
    if (head_bytes.size() < kEntryHeadBytes) return bad("is cut off");
    if (!ReadEntryHead(head_bytes, head)) return bad("has sizes out of range before");
    at += kEntryHeadBytes;
    if (head.record_bytes + head.body_bytes > size - at) return bad("is cut off");
    places.push_back({head.key, static_cast<int64_t>(at), static_cast<int64_t>(head.record_bytes),
                      static_cast<int64_t>(head.body_bytes)});
    at += head.record_bytes + head.body_bytes;
  }
}

absl::StatusOr<ArtifactPtr> ReadExportEntry(const Fingerprint& key, std::string_view record, std::string_view body,
                                            const RecordSigner& signer, bool* is_unsigned) {
  const absl::StatusOr<std::string> payload = signer.Verify(key, record);
  if (is_unsigned != nullptr) *is_unsigned = !payload.ok();
  FUSELINE_RETURN_IF_ERROR(payload.status());
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Digest> digests, DecodeIndexRecord(key, *payload));
  if (digests.size() != 1 || ComputeDigest(body) != digests[0]) return BadEntry("its digest is wrong");
  FUSELINE_ASSIGN_OR_RETURN(Artifact artifact, DeserializeArtifact(body));
  if (artifact.fingerprint != key) return BadEntry("the artifact has another fingerprint");
  return std::make_shared<const Artifact>(std::move(artifact));
}

}  // namespace fuseline::cache
