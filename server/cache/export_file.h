// Export files: entries of a cache as one file, to carry them to other machines or into an image. docs/cache_format.md
// has the form. Pipeline: artifacts -> ExportWriter -> bytes -> ExportReader -> artifacts.
// Both go from front to back and keep one entry in memory. A file is as untrusted as the network: what is read is
// bounded and checked, and with keys configured must be signed.
// Thread-safety: thread-compatible. Tested by tests/unit/server/export_file_test.cc and
// tests/fuzz/export_file_fuzzer.cc
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"
#include "server/cache/record_signer.h"

namespace fuseline::cache {

// Takes the next bytes of a file. An error ends the writing.
using ByteSink = std::function<absl::Status(std::string_view bytes)>;
// Gives the next bytes of a file, as many as it likes; none: the end. An error ends the reading.
using ByteSource = std::function<absl::StatusOr<std::string>()>;

class RunningDigest;

class ExportWriter {
 public:
  // The signer outlives it.
  ExportWriter(ByteSink sink, const RecordSigner& signer);
  ~ExportWriter();
  // Errors: the sink's.
  absl::Status Add(const Artifact& artifact);
  // Ends the file. A file that lacks this is known to be cut off.
  absl::Status Finish();

 private:
  absl::Status Write(std::string_view bytes);

  const ByteSink sink_;
  const RecordSigner& signer_;
  const std::unique_ptr<RunningDigest> digest_;
  bool begun_ = false;
  uint64_t entries_ = 0;
};

class ExportReader {
 public:
  struct Entry {
    Fingerprint key;
    ArtifactPtr artifact;  // null: refused
    std::string refusal;   // why: a damaged or unsigned entry. The next one may be good
  };

  // The signer outlives it.
  ExportReader(ByteSource source, const RecordSigner& signer);
  ~ExportReader();
  // The next entry; nothing at the end of the file. Errors: INVALID_ARGUMENT (kDataLoss) where the file is none of
  // these, of another version, damaged or cut off: says at which byte, and how many entries came before; the source's.
  absl::StatusOr<std::optional<Entry>> Next();

 private:
  // The next `size` bytes. They come in pieces, so that a size that is a lie takes no memory.
  absl::Status Read(size_t size, std::string& bytes);
  absl::Status ReadHeader();
  absl::StatusOr<std::optional<Entry>> ReadEnd();
  absl::Status Damaged(std::string_view what) const;

  const ByteSource source_;
  const RecordSigner& signer_;
  const std::unique_ptr<RunningDigest> digest_;
  std::string buffer_;
  size_t buffer_offset_ = 0;
  uint64_t offset_ = 0;  // in the file, of what comes next
  uint64_t entries_ = 0;
  bool begun_ = false;
  bool ended_ = false;
};

// Where an entry lies in a file.
struct ExportPlace {
  Fingerprint key;
  int64_t record_offset = 0;
  int64_t record_bytes = 0;
  int64_t body_bytes = 0;  // right behind the record
};
// Reads `size` bytes at `offset`, or fails.
using ByteReadAt = std::function<absl::StatusOr<std::string>(int64_t offset, size_t size)>;
// The entries of a file, without reading what is in them. Errors as of ExportReader::Next, but that the digest of the
// whole file is not checked: entries are, when they are read.
absl::StatusOr<std::vector<ExportPlace>> ListExportEntries(const ByteReadAt& read, int64_t file_bytes);
// The artifact of an entry. Errors: INVALID_ARGUMENT (kDataLoss) for a damaged or unsigned one; `is_unsigned` tells
// which, and may be null.
absl::StatusOr<ArtifactPtr> ReadExportEntry(const Fingerprint& key, std::string_view record, std::string_view body,
                                            const RecordSigner& signer, bool* is_unsigned);

}  // namespace fuseline::cache
