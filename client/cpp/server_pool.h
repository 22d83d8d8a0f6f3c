// The servers that a client may ask: which one a call goes to first, which ones after it, and which are left alone for
// a while because they did not answer. Pipeline: Client's methods -> Impl::WithRetries -> ServerPool -> PooledServer
// (channel, stubs).
//
// Order of a call's servers: with affinity by rendezvous hashing of its key, so that equal graphs of all clients meet
// on one server and a server that goes takes only its own share with it; with round robin each call begins one further.
// Those that failed of late come last. A pool of one address is that server, always, and is asked nothing about itself.
//
// What a server can do (GetServerInfo: targets, devices) is asked when a call first needs to know, and again after half
// a minute. Thread-safety: thread-safe. Blocking: Order where a DNS name must be resolved, Check where a server must be
// asked. Tested by tests/unit/client/server_pool_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace fuseline::client {

// What decides which servers a call may go to, and in which order.
struct Route {
  enum class Need : uint8_t {
    kNothing,  // any server answers
    kCompile,  // one that compiles for the target
    kExecute,  // one that runs the target
    kTensors,  // the one that keeps the owner's tensors, and no other
  };
  Need need = Need::kNothing;
  std::string target;           // "cuda:sm_90"; empty: whatever the server chooses
  std::optional<uint64_t> key;  // calls of equal keys meet; of kTensors: the owner's
  bool ask_all = false;         // NOT_FOUND of one server says nothing of the others: a fingerprint without its graph
};

// One server. Its state is the pool's.
class PooledServer {
 public:
  PooledServer(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
               const grpc::ChannelArguments& arguments);

  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  template <typename Stub>
  Stub& stub() {
    if constexpr (std::is_same_v<Stub, v1::CompileService::Stub>) return *compile_;
    if constexpr (std::is_same_v<Stub, v1::ExecuteService::Stub>) return *execute_;
    if constexpr (std::is_same_v<Stub, v1::AdminService::Stub>) return *admin_;
  }

 private:
  friend class ServerPool;

  // Fixed after construction.
  const std::string address_;
  const uint64_t hash_;  // of the address
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CompileService::Stub> compile_;
  std::unique_ptr<v1::ExecuteService::Stub> execute_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  // Guarded by the pool's mutex.
  absl::Time avoided_until_ = absl::InfinitePast();
  absl::Duration penalty_ = absl::ZeroDuration();  // the last one
  std::optional<ServerInfo> info_;
  absl::Time info_until_ = absl::InfinitePast();
};
using PooledServerPtr = std::shared_ptr<PooledServer>;

class ServerPool {
 public:
  // `addresses`: as Client::Connect's. Errors: INVALID_ARGUMENT (kOptionInvalid) for an empty or malformed one.
  static absl::StatusOr<std::unique_ptr<ServerPool>> Create(const std::string& addresses, const ClientOptions& options);

  // Whether it can only ever have one server.
  bool is_single() const { return names_.empty() && fixed_.size() == 1; }
  // All servers. Errors: UNAVAILABLE where no DNS name could be resolved and there is nothing else.
  absl::StatusOr<std::vector<PooledServerPtr>> Servers();
  // The servers that a call tries, the first first; of kTensors the one. Errors: as Servers.
  absl::StatusOr<std::vector<PooledServerPtr>> Order(const Route& route, absl::Time deadline);
  // Whether the server can do what the call needs. Errors: FAILED_PRECONDITION (kTargetNotAvailable) saying why not;
  // UNAVAILABLE where it does not say.
  absl::Status Check(PooledServer& server, const Route& route, absl::Time deadline);

  // What became of a call.
  void Succeeded(PooledServer& server);
  // It did not answer, or asked to be left alone for `least`: it is avoided for a second at first, for half a minute at
  // most while that goes on.
  void Failed(PooledServer& server, absl::Duration least);
  // It answered that it can't: what is known of it is out of date.
  void ForgetInfo(PooledServer& server);

 private:
  ServerPool(const ClientOptions& options);

  bool IsAvoided(const PooledServer& server) const;
  // What the server says of itself, at most half a minute ago.
  absl::StatusOr<ServerInfo> Info(PooledServer& server, absl::Time deadline);
  std::vector<PooledServerPtr> ByKey(std::vector<PooledServerPtr> servers, uint64_t key) const;
  // Of those with devices, GPUs before others, the first by key.
  absl::StatusOr<PooledServerPtr> KeeperOfTensors(const std::vector<PooledServerPtr>& by_key, absl::Time deadline);
  void ResolveNames();

  // Fixed after construction.
  const Balance balance_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  grpc::ChannelArguments arguments_;
  std::vector<PooledServerPtr> fixed_;
  std::vector<std::string> names_;  // HOST:PORT of "dns:///HOST:PORT"

  mutable absl::Mutex mutex_;
  std::vector<PooledServerPtr> resolved_ ABSL_GUARDED_BY(mutex_);  // of names_, by address
  absl::Time resolve_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // for round robin
};

// A score of rendezvous hashing: uniform, and independent for each pair.
uint64_t RendezvousScore(uint64_t key, uint64_t server);
// The first 64 bits of SHA-256.
uint64_t StableHash(std::string_view bytes);

}  // namespace fuseline::client
