// fuseline.v1.AdminService: what the server is and has.
// Pipeline: message -> AdminHandler -> Engine -> message. proto/fuseline/v1/admin_service.proto has the codes of each
// method. Thread-safety: thread-safe, as the engine is. Blocking: what reads never does, so that it is answered while
// everything else waits; eviction, export and import use disks and streams, on threads of their own. Tested by
// tests/unit/service/admin_service_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fuseline/v1/admin_service.pb.h"
#include "server/engine/engine.h"
#include "server/service/call_context.h"
#include "server/service/message_stream.h"

namespace grpc {
class Service;
}

namespace fuseline::service {

class CallRunner;

// What the handler says of the server besides what the engine knows.
struct ServerFacts {
  std::string version;
  int64_t max_message_bytes = 0;
  absl::Time started;
  bool accepts_imports = true;  // of what nobody has to have signed, or with keys
};

class AdminHandler {
 public:
  // The engine outlives it.
  AdminHandler(Engine& engine, ServerFacts facts, std::function<bool()> is_draining)
      : engine_(engine), facts_(std::move(facts)), is_draining_(std::move(is_draining)) {}

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const v1::GetServerInfoRequest& request,
                                                          const CallContext& context) const;
  absl::StatusOr<v1::GetCacheStatsResponse> GetCacheStats(const v1::GetCacheStatsRequest& request,
                                                          const CallContext& context) const;
  absl::StatusOr<v1::EvictCacheResponse> EvictCache(const v1::EvictCacheRequest& request,
                                                    const CallContext& context) const;
  absl::Status ExportCache(const v1::ExportCacheRequest& request, MessageWriter<v1::ExportCacheResponse>& writer,
                           const CallContext& context) const;
  absl::StatusOr<v1::ImportCacheResponse> ImportCache(MessageReader<v1::ImportCacheRequest>& reader,
                                                      const CallContext& context) const;

 private:
  Engine& engine_;
  const ServerFacts facts_;
  const std::function<bool()> is_draining_;
};

// The service for grpc::ServerBuilder; engine and runner outlive it.
std::unique_ptr<grpc::Service> MakeAdminService(Engine& engine, CallRunner& runner, ServerFacts facts);

}  // namespace fuseline::service
