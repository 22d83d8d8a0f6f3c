#include "server/service/admin_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "server/service/call_runner.h"

namespace fuseline::service {

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
  }
  response.set_build_count(stats.builds);
  response.set_join_count(stats.joins);
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
  grpc::ServerUnaryReactor* EvictCache(grpc::CallbackServerContext* context, const v1::EvictCacheRequest*,
                                       v1::EvictCacheResponse*) override {
    return runner_.Refuse<grpc::ServerUnaryReactor>(
        context, "AdminService/EvictCache", Later("EvictCache", "stop the server and empty its cache's folder"));
  }
  grpc::ServerWriteReactor<v1::ExportCacheResponse>* ExportCache(grpc::CallbackServerContext* context,
                                                                 const v1::ExportCacheRequest*) override {
    return runner_.Refuse<grpc::ServerWriteReactor<v1::ExportCacheResponse>>(
        context, "AdminService/ExportCache",
        Later("ExportCache", "copy the cache's folder while the server is stopped"));
  }
  grpc::ServerReadReactor<v1::ImportCacheRequest>* ImportCache(grpc::CallbackServerContext* context,
                                                               v1::ImportCacheResponse*) override {
    return runner_.Refuse<grpc::ServerReadReactor<v1::ImportCacheRequest>>(
        context, "AdminService/ImportCache", Later("ImportCache", "compile the graphs instead"));
  }

 private:
  static absl::Status Later(const std::string& method, const std::string& instead) {
    return Unimplemented(method, absl::StrCat("method '", method, "' comes in a later version: ", instead));
  }

  const AdminHandler handler_;
  CallRunner& runner_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(Engine& engine, CallRunner& runner, ServerFacts facts) {
  return std::make_unique<AdminServiceImpl>(engine, runner, std::move(facts));
}

}  // namespace fuseline::service
