// The responses of hits, encoded once: what is sent for an artifact does not change, and for a small graph encoding it
// costs more than looking it up.
// Pipeline: CompileResult -> EncodedArtifacts -> the bytes of a v1::CompileResponse.
// Units: bytes. Ownership: shares encoded bytes with the messages that are on their way; artifacts are not kept alive.
// Thread-safety: thread-safe. Tested by tests/unit/service/compile_stream_test.cc
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "fuseline/v1/compile_service.pb.h"
#include "server/engine/engine.h"

namespace fuseline::service {

// What of an artifact goes into a response.
struct ArtifactParts {
  bool omit_artifact = false;
  bool include_source = false;
};
void EncodeCompileResponse(const CompileResult& result, const ArtifactParts& parts, v1::CompileResponse* proto);

class EncodedArtifacts {
 public:
  // Least recently used artifacts go first.
  explicit EncodedArtifacts(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // The bytes of EncodeCompileResponse's message.
  grpc::ByteBuffer Response(const CompileResult& result, const ArtifactParts& parts) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t size_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    Fingerprint fingerprint;
    std::weak_ptr<const Artifact> artifact;  // of which these are: another build may differ
    grpc::Slice report;                      // the fields of CompileResponse with their tags
    grpc::Slice image;                       // the artifact without source; empty: not asked for yet
    int64_t size_bytes() const { return static_cast<int64_t>(sizeof(Entry) + report.size() + image.size()); }
  };

  const int64_t capacity_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Fingerprint, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fuseline::service
