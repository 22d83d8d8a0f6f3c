// The client's calls that change, write out and fill the server's cache. Tested by
// tests/unit/client/client_cache_test.cc
#include <algorithm>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/message_codec.h"
#include "common/status/status_macros.h"

namespace fuseline::client {
namespace {

// The contract's bound on a message of ImportCache.
constexpr size_t kMaxChunkBytes = size_t{4} << 20;

template <typename Request>
void AddFingerprints(const std::vector<Fingerprint>& fingerprints, Request& request) {
  for (const Fingerprint& fingerprint : fingerprints)
    request.add_fingerprints(fingerprint.bytes.data(), fingerprint.bytes.size());
}

}  // namespace

absl::StatusOr<EvictResult> Client::EvictCache(const EvictOptions& options) {
  v1::EvictCacheRequest request;
  AddFingerprints(options.fingerprints, request);
  request.set_all(options.all);
  if (options.unused_for != absl::ZeroDuration()) DurationToProto(options.unused_for, request.mutable_unused_for());
  v1::EvictCacheResponse response;
  FUSELINE_RETURN_IF_ERROR(impl_->Call(&v1::AdminService::Stub::EvictCache, request, response, Route()));
  return EvictResult{response.evicted_count(), response.evicted_bytes()};
}

absl::Status Client::ExportCache(const std::vector<Fingerprint>& fingerprints, const FileSink& sink) {
  v1::ExportCacheRequest request;
  AddFingerprints(fingerprints, request);
  absl::Status written;
  FUSELINE_RETURN_IF_ERROR(impl_->WithRetries(Route(), [&](PooledServer& server, grpc::ClientContext& context) {
    written = absl::OkStatus();
    int64_t offset = 0;
    const auto reader = server.stub<v1::AdminService::Stub>().ExportCache(&context, request);
    v1::ExportCacheResponse message;
    while (written.ok() && reader->Read(&message)) {
      written = sink(offset, message.chunk());
      offset += static_cast<int64_t>(message.chunk().size());
    }
    // What comes after that is of no use, and the call's status then says nothing.
    if (!written.ok()) context.TryCancel();
    const grpc::Status status = reader->Finish();
    return written.ok() ? status : grpc::Status::OK;
  }));
  return written;
}

absl::StatusOr<ImportResult> Client::ImportCache(const FileSource& source) {
  v1::ImportCacheResponse response;
  absl::Status read;
  FUSELINE_RETURN_IF_ERROR(impl_->WithRetries(Route(), [&](PooledServer& server, grpc::ClientContext& context) {
    read = absl::OkStatus();
    response.Clear();
    const auto writer = server.stub<v1::AdminService::Stub>().ImportCache(&context, &response);
    bool more = true;
    for (int64_t offset = 0; more;) {
      absl::StatusOr<std::string> bytes = source(offset);
      if (!bytes.ok()) {
        read = bytes.status();
        context.TryCancel();
        break;
      }
      offset += static_cast<int64_t>(bytes->size());
      more = !bytes->empty();
      for (size_t at = 0; more && at < bytes->size(); at += kMaxChunkBytes) {
        v1::ImportCacheRequest message;
        message.set_chunk(bytes->substr(at, kMaxChunkBytes));
        more = writer->Write(message);  // false: the server has answered already
      }
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return read.ok() ? status : grpc::Status::OK;
  }));
  FUSELINE_RETURN_IF_ERROR(read);
  return ImportResult{response.imported_count(), response.present_count(), response.refused_count(),
                      response.first_refusal()};
}

}  // namespace fuseline::client
