#include "server/service/admin_service.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "server/service/call_runner.h"

namespace fuseline::service {
namespace {

// Of a message of ExportCache: at most 4 MiB by its contract, which a client's default limit takes just so.
constexpr size_t kChunkBytes = size_t{1} << 20;

absl::StatusOr<std::vector<Fingerprint>> DecodeFingerprints(
    const google::protobuf::RepeatedPtrField<std::string>& list) {
  std::vector<Fingerprint> keys;
  for (const std::string& bytes : list) {
    Fingerprint& key = keys.emplace_back();
    if (bytes.size() != key.bytes.size()) {
      return InvalidArgument(
          ErrorReason::kOptionInvalid, "fingerprints",
          absl::StrCat("a fingerprint has 32 bytes, 'fingerprints[", keys.size() - 1, "]' has ", bytes.size()));
    }
    std::copy(bytes.begin(), bytes.end(), key.bytes.begin());
  }
  return keys;
}

}  // namespace

absl::StatusOr<v1::GetServerInfoResponse> AdminHandler::GetServerInfo(const v1::GetServerInfoRequest& request,
                                                                      const CallContext& context) const {
  v1::GetServerInfoResponse response;
  response.set_version(facts_.version);
  const EngineInfo info = engine_.Info();
  response.set_compiler_identity(info.compiler_identity);
  for (const TargetInfo& target : info.targets) {
    v1::TargetInfo* out = response.add_targets();
    out->set_target(target.target.ToString());
    out->set_can_compile(target.can_compile);
    out->set_can_execute(target.can_execute);
    out->set_reason(target.reason);
  }
  for (const executor::DeviceInfo& device : info.devices) {
    v1::DeviceInfo* out = response.add_devices();
    out->set_ordinal(device.ordinal);
    out->set_name(device.name);
    out->set_target(device.target.ToString());
    out->set_memory_bytes(device.memory_bytes);
    out->set_healthy(device.healthy);
    out->set_execution_count(device.executions);
    out->set_queue_depth_count(device.queue_depth);
    out->set_unhealthy_reason(device.unhealthy_reason);
    out->set_reset_count(device.resets);
  }
  response.mutable_warnings()->Add(info.warnings.begin(), info.warnings.end());
  const GraphLimits& limits = engine_.limits();
  v1::Limits* out = response.mutable_limits();
  out->set_max_node_count(limits.max_nodes);
  out->set_max_rank_count(limits.max_rank);
  out->set_max_element_count(limits.max_elements);
  out->set_max_constant_bytes(limits.max_constant_bytes);
  out->set_max_text_bytes(limits.max_text_bytes);
  out->set_max_message_bytes(facts_.max_message_bytes);
  const absl::Duration uptime = absl::Now() - facts_.started;
  response.mutable_uptime()->set_seconds(absl::ToInt64Seconds(uptime));
  response.mutable_uptime()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(uptime) % 1'000'000'000));
  response.set_state(is_draining_() ? v1::SERVER_STATE_DRAINING : v1::SERVER_STATE_SERVING);
  return response;
}

absl::StatusOr<v1::GetCacheStatsResponse> AdminHandler::GetCacheStats(const v1::GetCacheStatsRequest& request,
                                                                      const CallContext& context) const {
  const cache::StoreStats stats = engine_.CacheStats();
  v1::GetCacheStatsResponse response;
  for (const cache::LevelStats& level : stats.levels) {
    v1::CacheLevelStats* out = response.add_levels();
    out->set_level(level.level);
    out->set_entry_count(level.entries);
    out->set_size_bytes(level.size_bytes);
    out->set_hit_count(level.hits);
    out->set_miss_count(level.misses);
    out->set_corrupt_count(level.corrupt);
    out->set_eviction_count(level.evictions);
    out->set_error_count(level.errors);
    out->set_available(level.available);
    out->set_reason(level.reason);
    out->set_unsigned_count(level.unsigned_entries);
  }
  response.set_build_count(stats.builds);
  response.set_join_count(stats.joins);
  response.set_known_error_count(stats.known_errors);
  return response;
}

absl::StatusOr<v1::EvictCacheResponse> AdminHandler::EvictCache(const v1::EvictCacheRequest& request,
                                                                const CallContext& context) const {
  cache::EvictRequest evict;
  FUSELINE_ASSIGN_OR_RETURN(evict.keys, DecodeFingerprints(request.fingerprints()));
  evict.all = request.all();
  if (request.has_unused_for()) {
    evict.unused_for = absl::Seconds(request.unused_for().seconds()) + absl::Nanoseconds(request.unused_for().nanos());
    if (evict.unused_for <= absl::ZeroDuration())
      return InvalidArgument(ErrorReason::kOptionInvalid, "unused_for", "'unused_for' must be above zero");
  }
  if ((evict.keys.empty() ? 0 : 1) + (evict.all ? 1 : 0) + (request.has_unused_for() ? 1 : 0) != 1) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "all",
                           "exactly one of 'fingerprints', 'all' and 'unused_for' says what to drop");
  }
  const cache::EvictResult evicted = engine_.EvictCache(evict);
  v1::EvictCacheResponse response;
  response.set_evicted_count(evicted.entries);
  response.set_evicted_bytes(evicted.size_bytes);
  return response;
}

absl::Status AdminHandler::ExportCache(const v1::ExportCacheRequest& request,
                                       MessageWriter<v1::ExportCacheResponse>& writer,
                                       const CallContext& context) const {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Fingerprint> keys, DecodeFingerprints(request.fingerprints()));
  // Small pieces are gathered: a message costs more than its bytes.
  std::string chunk;
  const auto send = [&]() -> absl::Status {
    v1::ExportCacheResponse message;
    message.set_chunk(std::move(chunk));
    chunk.clear();
    return writer.Write(std::move(message));
  };
  FUSELINE_RETURN_IF_ERROR(engine_.ExportCache(keys, [&](std::string_view bytes) -> absl::Status {
    FUSELINE_RETURN_IF_ERROR(context.CheckAlive());
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kChunkBytes))) {
      const std::string_view piece = bytes.substr(0, kChunkBytes);
      if (!chunk.empty() && chunk.size() + piece.size() > kChunkBytes) FUSELINE_RETURN_IF_ERROR(send());
      chunk.append(piece);
    }
    return absl::OkStatus();
  }));
  return chunk.empty() ? absl::OkStatus() : send();
}

absl::StatusOr<v1::ImportCacheResponse> AdminHandler::ImportCache(MessageReader<v1::ImportCacheRequest>& reader,
                                                                  const CallContext& context) const {
  if (!facts_.accepts_imports) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, ErrorReason::kOptionInvalid, "cache_key_file",
        "this server takes no imports: it has no keys to check them with, and what it imports it runs; start "
        "it with --cache_key_file, or with --accept_unsigned_imports where all its clients are trusted");
  }
  v1::ImportCacheRequest message;
  FUSELINE_ASSIGN_OR_RETURN(const ImportResult imported, engine_.ImportCache([&]() -> absl::StatusOr<std::string> {
    FUSELINE_RETURN_IF_ERROR(context.CheckAlive());
    do {
      FUSELINE_ASSIGN_OR_RETURN(const bool more, reader.Read(message));
      if (!more) return std::string();
    } while (message.chunk().empty());
    return std::move(*message.mutable_chunk());
  }));
  v1::ImportCacheResponse response;
  response.set_imported_count(imported.imported);
  response.set_present_count(imported.present);
  response.set_refused_count(imported.refused);
  response.set_first_refusal(imported.first_refusal);
  return response;
}

namespace {

class AdminServiceImpl final : public v1::AdminService::CallbackService {
 public:
  AdminServiceImpl(Engine& engine, CallRunner& runner, ServerFacts facts)
      : handler_(engine, std::move(facts), [&runner] { return runner.draining(); }), runner_(runner) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override {
    return runner_.Run<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
        context, "AdminService/GetServerInfo", Lane::kInline, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.GetServerInfo(*owned, call); });
  }
  grpc::ServerUnaryReactor* GetCacheStats(grpc::CallbackServerContext* context, const v1::GetCacheStatsRequest* request,
                                          v1::GetCacheStatsResponse* response) override {
    return runner_.Run<v1::GetCacheStatsRequest, v1::GetCacheStatsResponse>(
        context, "AdminService/GetCacheStats", Lane::kInline, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.GetCacheStats(*owned, call); });
  }
  grpc::ServerUnaryReactor* EvictCache(grpc::CallbackServerContext* context, const v1::EvictCacheRequest* request,
                                       v1::EvictCacheResponse* response) override {
    return runner_.Run<v1::EvictCacheRequest, v1::EvictCacheResponse>(
        context, "AdminService/EvictCache", Lane::kCompile, request, response,
        [this](const auto& owned, const CallContext& call) { return handler_.EvictCache(*owned, call); });
  }
  grpc::ServerWriteReactor<v1::ExportCacheResponse>* ExportCache(grpc::CallbackServerContext* context,
                                                                 const v1::ExportCacheRequest* request) override {
    return runner_.RunServerStream<v1::ExportCacheRequest, v1::ExportCacheResponse>(
        context, "AdminService/ExportCache", Lane::kStream, request,
        [this](const auto& owned, MessageWriter<v1::ExportCacheResponse>& writer, const CallContext& call) {
          return handler_.ExportCache(*owned, writer, call);
        });
  }
  grpc::ServerReadReactor<v1::ImportCacheRequest>* ImportCache(grpc::CallbackServerContext* context,
                                                               v1::ImportCacheResponse* response) override {
    return runner_.RunClientStream<v1::ImportCacheRequest, v1::ImportCacheResponse>(
        context, "AdminService/ImportCache", Lane::kStream, response,
        [this](MessageReader<v1::ImportCacheRequest>& reader, const CallContext& call) {
          return handler_.ImportCache(reader, call);
        });
  }

 private:
  const AdminHandler handler_;
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(Engine& engine, CallRunner& runner, ServerFacts facts) {
  return std::make_unique<AdminServiceImpl>(engine, runner, std::move(facts));
}

}  // namespace fuseline::service
