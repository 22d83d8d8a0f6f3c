#include "server/service/encoded_artifacts.h"

#include <string>
#include <utility>

#include "common/artifact/codec/artifact_codec.h"
#include "server/service/message_codec.h"

namespace fuseline::service {
namespace {

grpc::Slice Serialized(const v1::CompileResponse& part) { return grpc::Slice(part.SerializeAsString()); }

void EncodeArtifact(const Artifact& artifact, bool include_source, v1::Artifact* proto) {
  ArtifactToProto(artifact, proto);
  proto->clear_report();  // it is in the response already
  if (include_source) return;
  for (v1::KernelImage& kernel : *proto->mutable_kernels()) kernel.clear_source();
}

}  // namespace

void EncodeCompileResponse(const CompileResult& result, const ArtifactParts& parts, v1::CompileResponse* proto) {
  EncodeSummary(result, proto->mutable_summary());
  ReportToProto(result.artifact->report, proto->mutable_report());
  if (!parts.omit_artifact) EncodeArtifact(*result.artifact, parts.include_source, proto->mutable_artifact());
}

// A message's encoding is its fields' encodings one after the other, so that parts of it can be kept.
grpc::ByteBuffer EncodedArtifacts::Response(const CompileResult& result, const ArtifactParts& parts) {
  const Fingerprint& fingerprint = result.artifact->fingerprint;
  v1::CompileResponse summary;
  EncodeSummary(result, summary.mutable_summary());
  grpc::Slice slices[3] = {Serialized(summary)};
  // With source is for people, and not worth keeping.
  const bool keep_image = !parts.omit_artifact && !parts.include_source;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = index_.find(fingerprint);
    if (it != index_.end() && it->second->artifact.lock() == result.artifact) {
      entries_.splice(entries_.begin(), entries_, it->second);
      slices[1] = it->second->report;
      if (keep_image) slices[2] = it->second->image;
    }
  }
  if (slices[1].size() == 0 || (keep_image && slices[2].size() == 0)) {
    v1::CompileResponse part;
    ReportToProto(result.artifact->report, part.mutable_report());
    slices[1] = Serialized(part);
    part.Clear();
    if (keep_image) {
      EncodeArtifact(*result.artifact, /*include_source=*/false, part.mutable_artifact());
      slices[2] = Serialized(part);
    }
    Entry entry = {fingerprint, result.artifact, slices[1], slices[2]};
    std::list<Entry> dropped;  // freed after the lock is given back
    absl::MutexLock lock(&mutex_);
    if (const auto it = index_.find(fingerprint); it != index_.end()) {
      size_bytes_ -= it->second->size_bytes();
      dropped.splice(dropped.begin(), entries_, it->second);
      index_.erase(it);
    }
    if (entry.size_bytes() <= capacity_bytes_) {
      size_bytes_ += entry.size_bytes();
      entries_.push_front(std::move(entry));
      index_[fingerprint] = entries_.begin();
    }
    while (size_bytes_ > capacity_bytes_) {
      size_bytes_ -= entries_.back().size_bytes();
      index_.erase(entries_.back().fingerprint);
      dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
    }
  }
  if (parts.include_source && !parts.omit_artifact) {
    v1::CompileResponse part;
    EncodeArtifact(*result.artifact, /*include_source=*/true, part.mutable_artifact());
    slices[2] = Serialized(part);
  }
  return grpc::ByteBuffer(slices, 3);
}

int64_t EncodedArtifacts::size_bytes() const {
  absl::MutexLock lock(&mutex_);
  return size_bytes_;
}

}  // namespace fuseline::service
