#include "server/cache/redis_client.h"

#include <string.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

constexpr size_t kMostIdle = 16;       // connections kept for each server
constexpr int kMostOpen = 64;          // connections of each server that are in use
constexpr int kMostRedirects = 4;      // of one command, in a cluster whose slots move
constexpr size_t kMostMasters = 4096;  // of a cluster
// A breaker that has been closed for as long starts again with short waits.
constexpr int kCalmRetries = 3;

std::string_view Text(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

absl::Status Unavailable(std::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "shared_cache", StrCat("Redis: ", what));
}

absl::Status NotServed(std::string_view reason) {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "shared_cache", reason);
}

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Replies that say something about the server, and not about the command.
bool IsServerTrouble(const RespValue& reply) {
  if (!reply.is_error()) return false;
  for (const char* prefix : {"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "NOPERM"}) {
    if (StartsWith(reply.text, prefix)) return true;
  }
  return false;
}

}  // namespace

std::string_view BreakerStateName(BreakerState state) {
  switch (state) {
    case BreakerState::kClosed:
      return "closed";
    case BreakerState::kHalfOpen:
      return "half-open";
    case BreakerState::kOpen:
      return "open";
  }
  return "unknown";
}

// A command that has no reply yet, and where it is to go.
struct RedisClient::Pending {
  size_t index = 0;
  NodePtr node;
  bool asking = false;  // the slot is on its way to `node`
};

// The commands for one server, on a connection that goes back to it at the end, if all replies were read. A connection
// that has been idle may be dead without our knowing: then once more, on a fresh one.
class RedisClient::Batch {
 public:
  Batch(RedisClient& client, NodePtr node, std::vector<Pending> pending)
      : client_(client), node_(std::move(node)), pending_(std::move(pending)) {}
  Batch(Batch&&) = default;
  ~Batch() {
    if (connection_ != nullptr) client_.GiveBack(*node_, is_done_ ? std::move(connection_) : nullptr);
  }

  const NodePtr& node() const { return node_; }
  std::vector<Pending>& pending() { return pending_; }

  absl::Status Send(const std::vector<RoutedCommand>& commands, absl::Time deadline) {
    const absl::Status status = SendOn(commands, false, deadline);
    return status.ok() || !MayTryAgain(status) ? status : SendOn(commands, true, deadline);
  }
  absl::Status Receive(const std::vector<RoutedCommand>& commands, std::vector<RespValue>& replies,
                       absl::Time deadline) {
    absl::Status status = ReceiveAll(replies, deadline);
    if (status.ok() || !MayTryAgain(status)) return status;
    FUSELINE_RETURN_IF_ERROR(SendOn(commands, true, deadline));
    return ReceiveAll(replies, deadline);
  }

 private:
  bool MayTryAgain(const absl::Status& status) const { return is_reused_ && !absl::IsDeadlineExceeded(status); }

  absl::Status SendOn(const std::vector<RoutedCommand>& commands, bool fresh, absl::Time deadline) {
    if (connection_ != nullptr) {
      connection_.reset();
      client_.GiveBack(*node_, nullptr);
    }
    std::vector<RedisCommand> words;
    for (const Pending& command : pending_) {
      if (command.asking) words.push_back({"ASKING"});
      words.push_back(commands[command.index].words);
    }
    FUSELINE_ASSIGN_OR_RETURN(connection_, client_.Take(*node_, fresh, deadline, is_reused_));
    return connection_->Send(words, deadline);
  }

  absl::Status ReceiveAll(std::vector<RespValue>& replies, absl::Time deadline) {
    for (const Pending& command : pending_) {
      if (command.asking) FUSELINE_RETURN_IF_ERROR(connection_->Receive(deadline).status());
      FUSELINE_ASSIGN_OR_RETURN(replies[command.index], connection_->Receive(deadline));
    }
    is_done_ = true;
    return absl::OkStatus();
  }

  RedisClient& client_;
  NodePtr node_;
  std::vector<Pending> pending_;
  std::unique_ptr<RedisConnection> connection_;
  bool is_reused_ = false;
  bool is_done_ = false;
};

absl::StatusOr<std::unique_ptr<RedisClient>> RedisClient::Create(const RedisClientOptions& options) {
  std::unique_ptr<RedisClient> client(new RedisClient(options));
  if (options.address.tls) {
    FUSELINE_ASSIGN_OR_RETURN(client->connection_options_.tls, TlsContext::Create(options.tls));
  }
  client->connection_options_.user = options.user;
  client->connection_options_.password = options.password;
  client->connection_options_.database = options.address.database;
  try {
    client->thread_ = std::thread([c = client.get()] { c->Maintain(); });
  } catch (const std::system_error& e) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kInputOutput, "shared_cache",
                     StrCat("no thread for the shared cache: ", e.what()));
  }
  const auto tried = [c = client.get()]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return c->was_tried_; };
  absl::MutexLock lock(&client->mutex_);
  client->mutex_.AwaitWithTimeout(absl::Condition(&tried), std::max(absl::Seconds(1), 2 * options.timeout));
  return client;
}

RedisClient::~RedisClient() {
  Close();
  if (thread_.joinable()) thread_.join();
}

void RedisClient::Close() {
  absl::MutexLock lock(&mutex_);
  is_closing_ = true;
}

BreakerState RedisClient::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

std::string RedisClient::reason() const {
  absl::MutexLock lock(&mutex_);
  return reason_;
}

bool RedisClient::WaitUntilClosed(absl::Duration limit) {
  const auto settled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || state_ == BreakerState::kClosed;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&settled), limit);
  return !is_closing_ && state_ == BreakerState::kClosed;
}

std::shared_ptr<const RedisClient::Topology> RedisClient::topology() const {
  absl::MutexLock lock(&mutex_);
  return topology_;
}

// Keeps the breaker, until the client is closed.
void RedisClient::Maintain() {
  const auto is_urgent = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || refresh_wanted_ || state_ == BreakerState::kOpen;
  };
  const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
  while (true) {
    bool was_closed = false;
    bool wants_topology = false;
    {
      absl::MutexLock lock(&mutex_);
      if (state_ == BreakerState::kClosed)
        mutex_.AwaitWithTimeout(absl::Condition(&is_urgent), options_.health_interval);
      if (state_ == BreakerState::kOpen) {
        mutex_.AwaitWithDeadline(absl::Condition(&is_closing), retry_at_);
        state_ = BreakerState::kHalfOpen;
      }
      if (is_closing_) return;
      was_closed = state_ == BreakerState::kClosed;
      wants_topology = !was_closed || refresh_wanted_;
      refresh_wanted_ = false;
    }
    const absl::Status status = wants_topology ? Refresh(was_closed) : CheckHealth();
    if (was_closed) {
      if (!status.ok()) Failed(status);
      continue;
    }
    std::string news;
    {
      absl::MutexLock lock(&mutex_);
      was_tried_ = true;
      if (status.ok()) {
        state_ = BreakerState::kClosed;
        reason_.clear();
        closed_at_ = absl::Now();
        if (is_reported_) news = "serving with the shared cache again";
        is_reported_ = false;
      } else {
        state_ = BreakerState::kOpen;
        reason_ = std::string(Text(status));
        SetRetry();
        if (!is_reported_) {
          ++times_opened_;
          news = StrCat("serving without the shared cache: ", Text(status));
        }
        is_reported_ = true;
      }
    }
    if (!news.empty() && options_.report) options_.report(news);
  }
}

// The first try comes at once: one slow answer, or one lost connection, need not mean more.
void RedisClient::SetRetry() {
  retry_at_ = absl::Now() + retry_;
  retry_ = std::min(std::max(2 * retry_, options_.first_retry), options_.longest_retry);
}

// Opens the breaker, if it is closed.
void RedisClient::Failed(const absl::Status& status) {
  std::vector<NodePtr> nodes;
  {
    absl::MutexLock lock(&mutex_);
    if (state_ != BreakerState::kClosed) return;
    const absl::Time now = absl::Now();
    if (now - closed_at_ > kCalmRetries * options_.longest_retry) retry_ = absl::ZeroDuration();
    state_ = BreakerState::kOpen;
    reason_ = std::string(Text(status));
    SetRetry();
    ++times_opened_;
    is_reported_ = true;
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
  }
  std::vector<std::unique_ptr<RedisConnection>> dropped;
  for (const NodePtr& node : nodes) {
    absl::MutexLock lock(&node->mutex);
    for (auto& connection : node->idle) dropped.push_back(std::move(connection));
    node->idle.clear();
  }
  if (options_.report) options_.report(StrCat("serving without the shared cache: ", Text(status)));
}

RedisClient::NodePtr RedisClient::NodeAt(const SocketAddress& address) {
  absl::MutexLock lock(&mutex_);
  NodePtr& node = nodes_[address.endpoint.ToString()];
  // A name may stand for another address now.
  if (node == nullptr || node->address.length != address.length ||
      memcmp(&node->address.storage, &address.storage, address.length) != 0) {
    node = std::make_shared<Node>(address);
  }
  return node;
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisClient::OpenEndpoint(const RedisEndpoint& endpoint,
                                                                           bool is_sentinel, absl::Time deadline) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveEndpoint(endpoint, deadline));
  absl::Status last;
  for (const SocketAddress& address : addresses) {
    RedisConnection::Options options = connection_options_;
    if (is_sentinel) options.database = 0;
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection = RedisConnection::Open(address, options, deadline);
    if (!connection.ok() && is_sentinel && absl::IsPermissionDenied(connection.status())) {
      // A Sentinel often has no password of its own.
      options.user.clear();
      options.password.clear();
      connection = RedisConnection::Open(address, options, deadline);
    }
    if (connection.ok()) return connection;
    last = connection.status();
  }
  return last;
}

// Where the masters are. What was known and still holds keeps its connections.
absl::Status RedisClient::Refresh(bool keep_connections) {
  const absl::Time deadline = absl::Now() + std::max(absl::Seconds(1), 4 * options_.timeout);
  absl::StatusOr<Topology> found = Topology{};
  switch (options_.address.kind) {
    case RedisAddress::Kind::kSingle:
      found = FindSingle(deadline);
      break;
    case RedisAddress::Kind::kSentinel:
      found = FindBySentinel(deadline);
      break;
    case RedisAddress::Kind::kCluster:
      found = FindCluster(deadline);
      break;
  }
  if (!found.ok()) return found.status();
  absl::MutexLock lock(&mutex_);
  topology_ = std::make_shared<const Topology>(*std::move(found));
  // Connections of servers that are no masters any more are closed with their last user.
  std::set<std::string> masters;
  for (const NodePtr& master : topology_->masters) masters.insert(master->address.endpoint.ToString());
  if (!keep_connections) std::erase_if(nodes_, [&](const auto& entry) { return masters.count(entry.first) == 0; });
  return absl::OkStatus();
}

// Whether a server answers and is a master; its connection is kept.
absl::StatusOr<RedisClient::Topology> RedisClient::FindSingle(absl::Time deadline) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                            ResolveEndpoint(options_.address.endpoints.front(), deadline));
  absl::Status last;
  for (const SocketAddress& address : addresses) {
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection =
        RedisConnection::Open(address, connection_options_, deadline);
    last = connection.status();
    if (!last.ok()) continue;
    absl::StatusOr<RespValue> reply = (*connection)->Call({"PING"}, deadline);
    last = reply.status();
    if (!last.ok()) continue;
    if (reply->is_error()) {
      last = Unavailable(reply->text);
      continue;
    }
    Topology topology;
    topology.masters.push_back(NodeAt(address));
    Node& node = *topology.masters[0];
    absl::MutexLock lock(&node.mutex);
    node.idle.push_back(*std::move(connection));
    return topology;
  }
  return last;
}

absl::StatusOr<RedisClient::Topology> RedisClient::FindBySentinel(absl::Time deadline) {
  absl::Status last;
  const absl::Duration share =
      (deadline - absl::Now()) / static_cast<double>(std::max<size_t>(1, options_.address.endpoints.size()));
  for (const RedisEndpoint& endpoint : options_.address.endpoints) {
    // One Sentinel that does not answer must not take all the time.
    const absl::Time until = std::min(deadline, absl::Now() + std::max(share, options_.timeout));
    absl::StatusOr<std::unique_ptr<RedisConnection>> sentinel = OpenEndpoint(endpoint, true, until);
    last = sentinel.status();
    if (!last.ok()) continue;
    absl::StatusOr<RespValue> reply =
        (*sentinel)->Call({"SENTINEL", "get-master-addr-by-name", options_.address.master}, until);
    last = reply.status();
    if (!last.ok()) continue;
    if (reply->elements.size() != 2) {
      last = Unavailable(StrCat("the Sentinel at ", endpoint.ToString(), " knows no master '", options_.address.master,
                                reply->is_error() ? StrCat("': ", reply->text) : "'"));
      continue;
    }
    absl::StatusOr<RedisEndpoint> master =
        ParseRedisEndpoint(StrCat("[", reply->elements[0].text, "]:", reply->elements[1].text), 0);
    last = master.status();
    if (!last.ok()) continue;
    absl::StatusOr<std::vector<SocketAddress>> addresses = ResolveEndpoint(*master, until);
    last = addresses.status();
    if (!last.ok()) continue;
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection =
        RedisConnection::Open(addresses->front(), connection_options_, until);
    last = connection.status();
    if (!last.ok()) continue;
    // In the midst of a failover a Sentinel may still name the old one.
    absl::StatusOr<RespValue> role = (*connection)->Call({"ROLE"}, until);
    last = role.status();
    if (!last.ok()) continue;
    if (role->elements.empty() || role->elements[0].text != "master") {
      last = Unavailable(StrCat("the server at ", master->ToString(), " is no master",
                                role->is_error() ? StrCat(": ", role->text) : ""));
      continue;
    }
    Topology topology;
    topology.masters.push_back(NodeAt(addresses->front()));
    Node& node = *topology.masters[0];
    absl::MutexLock lock(&node.mutex);
    node.idle.push_back(*std::move(connection));
    return topology;
  }
  return last;
}

absl::StatusOr<RedisClient::Topology> RedisClient::FindCluster(absl::Time deadline) {
  // Nodes that were found before are asked too: the configured ones may be gone.
  std::vector<RedisEndpoint> asked = options_.address.endpoints;
  if (const auto known = topology(); known != nullptr) {
    for (const NodePtr& master : known->masters) asked.push_back(master->address.endpoint);
  }
  absl::Status last;
  const absl::Duration share = (deadline - absl::Now()) / static_cast<double>(asked.size());
  for (const RedisEndpoint& endpoint : asked) {
    const absl::Time until = std::min(deadline, absl::Now() + std::max(share, options_.timeout));
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection = OpenEndpoint(endpoint, false, until);
    last = connection.status();
    if (!last.ok()) continue;
    absl::StatusOr<RespValue> reply = (*connection)->Call({"CLUSTER", "SLOTS"}, until);
    last = reply.status();
    if (!last.ok()) continue;
    absl::StatusOr<Topology> topology = ReadSlots(endpoint, *reply, until);
    if (topology.ok()) return topology;
    last = topology.status();
  }
  return last;
}

// [[first slot, last slot, [host, port, …] of the master, replicas…], …]. Every slot must have a master that answers.
absl::StatusOr<RedisClient::Topology> RedisClient::ReadSlots(const RedisEndpoint& asked, const RespValue& reply,
                                                             absl::Time deadline) {
  if (reply.is_error()) return Unavailable(reply.text);
  constexpr uint16_t kNone = 0xffff;
  Topology topology;
  topology.master_of_slot.assign(kRedisHashSlots, kNone);
  for (const RespValue& range : reply.elements) {
    if (range.elements.size() < 3 || range.elements[2].elements.size() < 2) return Unavailable("bad CLUSTER SLOTS");
    const int64_t first = range.elements[0].integer;
    const int64_t last = range.elements[1].integer;
    if (first < 0 || first > last || last >= kRedisHashSlots) return Unavailable("bad CLUSTER SLOTS");
    RedisEndpoint endpoint;
    endpoint.host = range.elements[2].elements[0].text;
    endpoint.port = static_cast<int>(std::clamp<int64_t>(range.elements[2].elements[1].integer, 0, 65535));
    if (endpoint.host.empty()) endpoint.host = asked.host;  // a node that does not know its own address
    size_t at = 0;
    while (at < topology.masters.size() && topology.masters[at]->address.endpoint != endpoint) ++at;
    if (at == topology.masters.size()) {
      if (at == kMostMasters) return Unavailable("too many cluster nodes");
      FUSELINE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveEndpoint(endpoint, deadline));
      topology.masters.push_back(NodeAt(addresses.front()));
    }
    std::fill(topology.master_of_slot.begin() + first, topology.master_of_slot.begin() + last + 1,
              static_cast<uint16_t>(at));
  }
  const auto uncovered = std::find(topology.master_of_slot.begin(), topology.master_of_slot.end(), kNone);
  if (uncovered != topology.master_of_slot.end()) {
    return Unavailable(StrCat("no cluster node has slot ", uncovered - topology.master_of_slot.begin()));
  }
  for (const NodePtr& master : topology.masters) {
    bool reused = false;
    FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> connection, Take(*master, true, deadline, reused));
    absl::StatusOr<RespValue> pong = connection->Call({"PING"}, deadline);
    const absl::Status status = !pong.ok()         ? pong.status()
                                : pong->is_error() ? Unavailable(pong->text)
                                                   : absl::OkStatus();
    GiveBack(*master, status.ok() ? std::move(connection) : nullptr);
    if (!status.ok()) return status;
  }
  return topology;
}

absl::Status RedisClient::CheckHealth() {
  const std::shared_ptr<const Topology> known = topology();
  for (const NodePtr& master : known->masters) {
    const absl::Time deadline = absl::Now() + std::max(options_.timeout, absl::Milliseconds(250));
    bool reused = false;
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection = Take(*master, false, deadline, reused);
    if (absl::IsResourceExhausted(connection.status())) continue;  // those who use it see how it is
    if (!connection.ok()) return connection.status();
    absl::StatusOr<RespValue> pong = (*connection)->Call({"PING"}, deadline);
    GiveBack(*master, pong.ok() ? *std::move(connection) : nullptr);
    if (!pong.ok()) return pong.status();
    if (IsServerTrouble(*pong)) return Unavailable(pong->text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisClient::Take(Node& node, bool fresh, absl::Time deadline,
                                                                   bool& reused) {
  reused = false;
  const auto has_room = [&node]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return node.open < kMostOpen; };
  std::vector<std::unique_ptr<RedisConnection>> stale;
  {
    absl::MutexLock lock(&node.mutex);
    if (!node.mutex.AwaitWithDeadline(absl::Condition(&has_room), deadline)) {
      return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kInputOutput, "shared_cache",
                       "Redis: all connections are in use");
    }
    ++node.open;
    if (fresh) stale.swap(node.idle);
    while (!node.idle.empty()) {
      std::unique_ptr<RedisConnection> connection = std::move(node.idle.back());
      node.idle.pop_back();
      if (connection->IsQuiet()) {
        reused = true;
        return connection;
      }
      stale.push_back(std::move(connection));
    }
  }
  stale.clear();
  absl::StatusOr<std::unique_ptr<RedisConnection>> opened =
      RedisConnection::Open(node.address, connection_options_, deadline);
  if (!opened.ok()) GiveBack(node, nullptr);
  return opened;
}

void RedisClient::GiveBack(Node& node, std::unique_ptr<RedisConnection> connection) {
  absl::MutexLock lock(&node.mutex);
  --node.open;
  if (connection != nullptr && node.idle.size() < kMostIdle) node.idle.push_back(std::move(connection));
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisClient::Connect(absl::Duration limit) {
  const std::shared_ptr<const Topology> known = topology();
  if (known == nullptr || state() != BreakerState::kClosed) return NotServed(reason());
  return RedisConnection::Open(known->masters.front()->address, connection_options_, absl::Now() + limit);
}

absl::StatusOr<std::vector<RespValue>> RedisClient::Run(const std::vector<RoutedCommand>& commands,
                                                        absl::Duration limit) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_closing_) return Unavailable("the cache is closing");
    if (state_ != BreakerState::kClosed) return NotServed(reason_);
  }
  absl::StatusOr<std::vector<RespValue>> replies = TryRun(commands, absl::Now() + limit);
  if (!replies.ok()) {
    ++failures_;
    // Too many callers say nothing about the server.
    if (!absl::IsResourceExhausted(replies.status())) Failed(replies.status());
  }
  return replies;
}

absl::StatusOr<std::vector<RespValue>> RedisClient::TryRun(const std::vector<RoutedCommand>& commands,
                                                           absl::Time deadline) {
  const std::shared_ptr<const Topology> known = topology();
  std::vector<RespValue> replies(commands.size());
  std::vector<Pending> pending(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    pending[i].index = i;
    pending[i].node = known->masters[known->master_of_slot.empty()
                                         ? 0
                                         : known->master_of_slot[static_cast<size_t>(RedisHashSlot(commands[i].key))]];
  }
  for (int redirects = 0; !pending.empty(); ++redirects) {
    if (redirects > kMostRedirects) return Unavailable("the cluster sends commands round in circles");
    std::map<NodePtr, std::vector<Pending>> by_node;
    for (Pending& command : pending) by_node[command.node].push_back(std::move(command));
    pending.clear();
    std::vector<Batch> batches;
    batches.reserve(by_node.size());
    for (auto& [node, of_node] : by_node) batches.emplace_back(*this, node, std::move(of_node));
    // All are sent before the first reply is waited for: servers work at the same time.
    for (Batch& batch : batches) FUSELINE_RETURN_IF_ERROR(batch.Send(commands, deadline));
    for (Batch& batch : batches) {
      FUSELINE_RETURN_IF_ERROR(batch.Receive(commands, replies, deadline));
      const NodePtr& node = batch.node();
      for (Pending& command : batch.pending()) {
        const RespValue& reply = replies[command.index];
        if (IsServerTrouble(reply)) return Unavailable(reply.text);
        const bool moved = reply.is_error() && StartsWith(reply.text, "MOVED ");
        const bool ask = reply.is_error() && StartsWith(reply.text, "ASK ");
        if (!moved && !ask) continue;
        // "MOVED slot host:port"; without a host: that of the server that says so.
        std::string_view where = reply.text;
        where = where.substr(where.rfind(' ') + 1);
        const std::string full =
            StartsWith(where, ":") ? StrCat("[", node->address.endpoint.host, "]", where) : std::string(where);
        FUSELINE_ASSIGN_OR_RETURN(const RedisEndpoint endpoint, ParseRedisEndpoint(full, 0));
        if (moved) {
          absl::MutexLock lock(&mutex_);
          refresh_wanted_ = true;
        }
        const absl::StatusOr<SocketAddress> address = NumericAddress(endpoint);
        if (!address.ok()) return Unavailable(StrCat("a slot has moved to ", endpoint.ToString()));
        command.node = NodeAt(*address);
        command.asking = ask;
        pending.push_back(command);
      }
    }
  }
  return replies;
}

}  // namespace fuseline::cache
