// Level 2 of the cache: artifacts that all servers of a cluster share, in Redis. Index records (fingerprint -> digests
// of the parts) apart from the parts, which are kept by content; an entry is a hit only if all of it is there and
// right. Pipeline: Fingerprint -> index record -> parts, in one batch -> Artifact. Writes go through a bounded queue in
// the background. While Redis is away or slow everything is a miss, at once (redis_client.h). Thread-safety:
// thread-safe. Blocking: Get and Delete, until the time limit of one operation at most. Tested by
// tests/unit/server/shared_artifact_store_test.cc; docs/cache_format.md has the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cache/artifact_store.h"
#include "server/cache/build_coordinator.h"
#include "server/cache/record_signer.h"

namespace fuseline::cache {

struct SharedCacheOptions {
  std::string url;  // redis_address.h; empty: no shared level
  std::string user;
  std::string password_file;  // its first line
  std::string ca_file;        // TLS: certificates that are trusted; empty: the system's
  std::string cert_file;      // TLS: this server's own; empty: none
  std::string key_file;
  absl::Duration timeout = absl::Milliseconds(250);  // of one operation
  int64_t queue_bytes = 256ll << 20;                 // writes waiting
  absl::Duration ttl = absl::Hours(720);             // of entries, since they were last used; 0: none
  absl::Duration lease = absl::Seconds(10);
};

// Shares its connections with the coordinator.
struct SharedLevel {
  std::unique_ptr<ArtifactStore> store;
  std::shared_ptr<BuildCoordinator> coordinator;
};
// `signer` may be null. Goes on without Redis where that can't be reached. Errors: INVALID_ARGUMENT (kOptionInvalid)
// for the URL and the files, naming the flag; NOT_FOUND (kInputOutput) for a password file that can't be read.
absl::StatusOr<SharedLevel> OpenSharedLevel(const SharedCacheOptions& options, std::shared_ptr<RecordSigner> signer,
                                            const Report& report);

}  // namespace fuseline::cache
