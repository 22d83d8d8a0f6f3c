// Signs what a level of the cache keeps, and tells what is signed from what is not: HMAC-SHA-256 over namespace, key,
// builder and payload, so that a record can't be made without a key, nor moved to another entry or namespace.
// Pipeline: index record -> Sign -> bytes in a level -> Verify -> index record. The index record holds the digests of
// the entry's parts, so what is signed covers all of the entry.
// Without keys, records go in unsigned; what comes out signed is taken apart and not checked. docs/cache_format.md has
// the form of a signed record and that of the key file.
// Thread-safety: thread-safe. Blocking: Reload reads a file, the rest takes microseconds.
// Tested by tests/unit/server/record_signer_test.cc
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

class RecordSigner {
 public:
  struct Options {
    // Lines `ID KEY`: the first key signs, all verify. Empty: no keys.
    std::string key_file;
    // Salt: what was signed in another namespace does not verify here.
    std::string name_space;
    // Who signs: goes into the record and is covered by the signature. At most 255 bytes.
    std::string builder;
  };
  // Errors: INVALID_ARGUMENT (kOptionInvalid) for a malformed file, naming the line; FAILED_PRECONDITION (kInputOutput)
  // for one that others may read or change; NOT_FOUND (kInputOutput) for one that can't be read.
  static absl::StatusOr<std::shared_ptr<RecordSigner>> Create(const Options& options);

  // Reads the key file again. On an error the keys stay as they are; errors as of Create.
  // `lost_key`, which may be null: a key that was there is gone, so what it signed is to be believed no more.
  absl::Status Reload(bool* lost_key = nullptr);

  bool has_keys() const;
  const std::string& name_space() const { return options_.name_space; }

  // The record of `key` that holds `payload`: the payload itself where there are no keys.
  std::string Sign(const Fingerprint& key, std::string_view payload) const;
  // The payload. Errors: INVALID_ARGUMENT (kDataLoss) where keys are configured and the record is unsigned, signed with
  // an unknown key, or signed wrongly; where its form is damaged.
  absl::StatusOr<std::string> Verify(const Fingerprint& key, std::string_view record) const;
  // The payload, whoever signed it, to find out what a record is about before it is trusted. Errors as of Verify where
  // the form is damaged.
  static absl::StatusOr<std::string_view> UnverifiedPayload(std::string_view record);

  // What stands for `key` in a level that namespaces share: another one in each, `key` itself where there is no
  // namespace.
  Fingerprint StoredKey(const Fingerprint& key) const;

 private:
  struct SigningKey {
    std::string id;
    std::string bytes;
  };
  // Wiped when they go.
  struct Keys {
    ~Keys();
    std::vector<SigningKey> list;
  };

  explicit RecordSigner(Options options) : options_(std::move(options)) {}
  static absl::Status ReadKeys(const std::string& path, Keys& keys);
  std::shared_ptr<const Keys> keys() const;
  std::string Signature(const SigningKey& signing, const Fingerprint& key, std::string_view builder,
                        std::string_view payload) const;

  const Options options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Keys> keys_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const Keys>();
};

}  // namespace fuseline::cache
