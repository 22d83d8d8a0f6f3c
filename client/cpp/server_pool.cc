#include "client/cpp/server_pool.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cpp/channel_credentials.h"
#include "client/cpp/error_details.h"
#include "client/cpp/message_codec.h"
#include "common/fingerprint/fingerprint.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::client {
namespace {

constexpr size_t kMaxServers = 1024;
constexpr absl::Duration kFirstPenalty = absl::Seconds(1);
constexpr absl::Duration kMostPenalty = absl::Seconds(30);
constexpr absl::Duration kInfoAge = absl::Seconds(30);
// For a server to say what it can do.
constexpr absl::Duration kInfoTime = absl::Seconds(3);
constexpr absl::Duration kResolveEvery = absl::Seconds(30);
// Once a server has failed, its name may have other addresses by now.
constexpr absl::Duration kResolveSoon = absl::Seconds(1);
constexpr char kDns[] = "dns:///";

absl::Status BadAddress(const std::string& address, const std::string& why) {
  return InvalidArgument(ErrorReason::kOptionInvalid, "address",
                         absl::StrCat("the server's address '", address, "' ", why));
}

absl::Status NotAvailable(const std::string& target, const std::string& why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable,
                   target.empty() ? "target" : target, why);
}

// The addresses that the name has now, "1.2.3.4:80" or "[::1]:80"; none where it can't be resolved.
std::set<std::string> Resolve(const std::string& name) {
  const size_t colon = name.rfind(':');
  std::string host = name.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::set<std::string> addresses;
  if (getaddrinfo(host.c_str(), name.c_str() + colon + 1, &hints, &found) != 0) return addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    char ip[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, ip, sizeof(ip), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) !=
        0)
      continue;
    addresses.insert(a->ai_family == AF_INET6 ? absl::StrCat("[", ip, "]:", port) : absl::StrCat(ip, ":", port));
  }
  freeaddrinfo(found);
  return addresses;
}

grpc::ChannelArguments MakeArguments(const ClientOptions& options, bool single) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // The retries are ours: they know RetryInfo, and the other servers.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // gRPC waits a second before it connects again; a server that restarts is back sooner.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This one is also how long an attempt to connect may take: a distant or busy server needs more than the backoff.
  // Where there are other servers, they are asked instead.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, single ? 10000 : 3000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  // A server that is cut off sends no word of it. While a call waits, silence is noticed within 15 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  // gRPC would ask twice and then no more until it sends data: a compilation may take longer.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

uint64_t RendezvousScore(uint64_t key, uint64_t server) {
  // The finalizer of SplitMix64.
  uint64_t x = key ^ (server * 0x9e3779b97f4a7c15ull);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t StableHash(std::string_view bytes) {
  const Digest digest = ComputeDigest(bytes);
  uint64_t hash = 0;
  for (size_t i = 0; i < 8; ++i) hash = (hash << 8) | digest.sha256[i];
  return hash;
}

PooledServer::PooledServer(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                           const grpc::ChannelArguments& arguments)
    : address_(std::move(address)),
      hash_(StableHash(address_)),
      channel_(grpc::CreateCustomChannel(address_, credentials, arguments)),
      compile_(v1::CompileService::NewStub(channel_)),
      execute_(v1::ExecuteService::NewStub(channel_)),
      admin_(v1::AdminService::NewStub(channel_)) {}

ServerPool::ServerPool(const ClientOptions& options) : balance_(options.balance) {}

absl::StatusOr<std::unique_ptr<ServerPool>> ServerPool::Create(const std::string& addresses,
                                                               const ClientOptions& options) {
  if (addresses.empty())
    return InvalidArgument(ErrorReason::kOptionInvalid, "address", "the server's address is empty");
  std::unique_ptr<ServerPool> pool(new ServerPool(options));
  FUSELINE_ASSIGN_OR_RETURN(pool->credentials_, MakeChannelCredentials(options.tls));
  std::vector<std::string> fixed;
  for (const absl::string_view part : absl::StrSplit(addresses, ',')) {
    const std::string address(absl::StripAsciiWhitespace(part));
    if (address.empty()) return BadAddress(addresses, "has an empty part");
    if (!absl::StartsWith(address, kDns)) {
      if (std::find(fixed.begin(), fixed.end(), address) == fixed.end()) fixed.push_back(address);
      continue;
    }
    const std::string name = address.substr(sizeof(kDns) - 1);
    const size_t colon = name.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == name.size())
      return BadAddress(address, "is not of the form dns:///HOST:PORT");
    pool->names_.push_back(name);
  }
  if (fixed.size() + pool->names_.size() > kMaxServers)
    return BadAddress(absl::StrCat(addresses.substr(0, 40), "…"), absl::StrCat("names more than ", kMaxServers));
  pool->arguments_ = MakeArguments(options, pool->names_.empty() && fixed.size() == 1);
  for (const std::string& address : fixed)
    pool->fixed_.push_back(std::make_shared<PooledServer>(address, pool->credentials_, pool->arguments_));
  return pool;
}

void ServerPool::ResolveNames() {
  {
    absl::MutexLock lock(&mutex_);
    if (names_.empty() || absl::Now() < resolve_at_) return;
    resolve_at_ = absl::Now() + kResolveEvery;  // others go on with what there is
  }
  // With the host that each was found by, which is the one that its certificate names.
  std::map<std::string, std::string> addresses;
  for (const std::string& name : names_) {
    for (const std::string& address : Resolve(name)) addresses.emplace(address, name.substr(0, name.rfind(':')));
  }
  absl::MutexLock lock(&mutex_);
  if (addresses.empty()) {
    resolve_at_ = absl::Now() + kResolveSoon;
    return;
  }
  std::vector<PooledServerPtr> servers;
  for (const auto& [address, host] : addresses) {
    if (servers.size() == kMaxServers) break;
    const auto known = std::find_if(resolved_.begin(), resolved_.end(),
                                    [&a = address](const PooledServerPtr& server) { return server->address_ == a; });
    if (known != resolved_.end()) {
      servers.push_back(*known);
      continue;
    }
    grpc::ChannelArguments arguments = arguments_;
    arguments.SetSslTargetNameOverride(host);
    servers.push_back(std::make_shared<PooledServer>(address, credentials_, arguments));
  }
  resolved_ = std::move(servers);
}

absl::StatusOr<std::vector<PooledServerPtr>> ServerPool::Servers() {
  ResolveNames();
  std::vector<PooledServerPtr> servers = fixed_;
  absl::MutexLock lock(&mutex_);
  servers.insert(servers.end(), resolved_.begin(), resolved_.end());
  if (servers.empty()) {
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "address",
                     absl::StrCat("can't resolve the server's name '", names_.front(), "'"));
  }
  return servers;
}

bool ServerPool::IsAvoided(const PooledServer& server) const { return absl::Now() < server.avoided_until_; }

std::vector<PooledServerPtr> ServerPool::ByKey(std::vector<PooledServerPtr> servers, uint64_t key) const {
  std::stable_sort(servers.begin(), servers.end(), [key](const PooledServerPtr& a, const PooledServerPtr& b) {
    return RendezvousScore(key, a->hash_) > RendezvousScore(key, b->hash_);
  });
  return servers;
}

absl::StatusOr<std::vector<PooledServerPtr>> ServerPool::Order(const Route& route, absl::Time deadline) {
  if (is_single()) return fixed_;
  FUSELINE_ASSIGN_OR_RETURN(std::vector<PooledServerPtr> servers, Servers());
  if (servers.size() == 1) return servers;
  if (route.need == Route::Need::kTensors) {
    FUSELINE_ASSIGN_OR_RETURN(PooledServerPtr keeper,
                              KeeperOfTensors(ByKey(std::move(servers), route.key.value_or(0)), deadline));
    return std::vector<PooledServerPtr>{std::move(keeper)};
  }
  if (balance_ == Balance::kAffinity && route.key.has_value()) servers = ByKey(std::move(servers), *route.key);
  absl::MutexLock lock(&mutex_);
  if (balance_ == Balance::kRoundRobin && route.need != Route::Need::kNothing) {
    const auto first = static_cast<std::ptrdiff_t>(calls_++ % servers.size());
    std::rotate(servers.begin(), servers.begin() + first, servers.end());
  }
  std::stable_partition(servers.begin(), servers.end(),
                        [this](const PooledServerPtr& server) { return !IsAvoided(*server); });
  return servers;
}

absl::StatusOr<PooledServerPtr> ServerPool::KeeperOfTensors(const std::vector<PooledServerPtr>& by_key,
                                                            absl::Time deadline) {
  PooledServerPtr fallback;
  for (const PooledServerPtr& server : by_key) {
    absl::StatusOr<ServerInfo> info = Info(*server, deadline);
    if (!info.ok()) {
      absl::MutexLock lock(&mutex_);
      if (server->info_.has_value()) info = *server->info_;
    }
    if (!info.ok()) {
      // For all that is known, it is the one that keeps them.
      if (fallback == nullptr) return server;
      continue;
    }
    const auto is_cuda = [](const DeviceInfo& device) { return absl::StartsWith(device.target, "cuda"); };
    if (std::any_of(info->devices.begin(), info->devices.end(), is_cuda)) return server;
    if (!info->devices.empty() && fallback == nullptr) fallback = server;
  }
  if (fallback == nullptr)
    return NotAvailable("", absl::StrCat("none of the ", by_key.size(), " servers has a device to keep tensors for"));
  return fallback;
}

absl::StatusOr<ServerInfo> ServerPool::Info(PooledServer& server, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (server.info_.has_value() && absl::Now() < server.info_until_) return *server.info_;
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kInfoTime)));
  v1::GetServerInfoResponse response;
  const grpc::Status status = server.admin_->GetServerInfo(&context, v1::GetServerInfoRequest(), &response);
  if (!status.ok())
    return DecodeError(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
  ServerInfo info = ServerInfoFromProto(response);
  absl::MutexLock lock(&mutex_);
  server.info_ = info;
  server.info_until_ = absl::Now() + kInfoAge;
  return info;
}

absl::Status ServerPool::Check(PooledServer& server, const Route& route, absl::Time deadline) {
  if (is_single() || (route.need != Route::Need::kCompile && route.need != Route::Need::kExecute))
    return absl::OkStatus();
  const absl::StatusOr<ServerInfo> info = Info(server, deadline);
  if (!info.ok()) {
    if (absl::IsUnimplemented(info.status())) return absl::OkStatus();  // the call itself will show
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kUnspecified, "",
                     absl::StrCat(server.address(), ": ", std::string(info.status().message())));
  }
  std::string why;
  for (const TargetInfo& target : info->targets) {
    const bool can = route.need == Route::Need::kCompile ? target.can_compile : target.can_execute;
    // NVRTC compiles for any architecture: what holds for one of them holds for all.
    const bool same_compiler = route.need == Route::Need::kCompile && absl::StartsWith(route.target, "cuda") &&
                               absl::StartsWith(target.target, "cuda");
    if (!route.target.empty() && target.target != route.target && !same_compiler) continue;
    if (can) return absl::OkStatus();
    absl::StrAppend(&why, why.empty() ? "" : "; ", target.reason);
  }
  return NotAvailable(route.target, why.empty() ? "it has no device for it" : why);
}

void ServerPool::Succeeded(PooledServer& server) {
  if (is_single()) return;
  absl::MutexLock lock(&mutex_);
  server.avoided_until_ = absl::InfinitePast();
  server.penalty_ = absl::ZeroDuration();
}

void ServerPool::Failed(PooledServer& server, absl::Duration least) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  resolve_at_ = std::min(resolve_at_, now + kResolveSoon);
  // Calls that were on their way together count once.
  if (now >= server.avoided_until_) server.penalty_ = std::clamp(server.penalty_ * 2, kFirstPenalty, kMostPenalty);
  server.avoided_until_ =
      std::max(server.avoided_until_, now + std::max(server.penalty_, std::min(least, kMostPenalty)));
  server.info_until_ = absl::InfinitePast();  // it may come back as another
}

void ServerPool::ForgetInfo(PooledServer& server) {
  absl::MutexLock lock(&mutex_);
  server.info_until_ = absl::InfinitePast();
}

}  // namespace fuseline::client
