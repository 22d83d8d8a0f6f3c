// One connection to a Redis server: plain or TLS, its protocol (RESP2, read and formatted by hiredis), and a time limit
// for every operation. Pipeline: RedisCommand -> RedisConnection -> RespValue. Ownership: the connection owns its
// socket. Thread-safety: thread-compatible. Blocking: every function, until its deadline at most.
// Errors: UNAVAILABLE (kInputOutput) where the server can't be reached, closed the connection or broke the protocol;
// DEADLINE_EXCEEDED (kInputOutput) at the deadline; PERMISSION_DENIED (kInputOutput) where it refuses user or password.
// After any of them the connection is useless, but that Receive may be tried again after its deadline. Error replies to
// commands are values. Tested by
// tests/unit/server/redis_client_test.cc
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cache/redis_address.h"

struct redisReader;
struct ssl_ctx_st;

namespace fuseline::cache {

// Words of a command, which may hold any bytes.
using RedisCommand = std::vector<std::string>;

struct RespValue {
  enum class Kind : uint8_t { kNil, kString, kStatus, kError, kInteger, kArray };
  Kind kind = Kind::kNil;
  std::string text;  // kString, kStatus, kError
  int64_t integer = 0;
  std::vector<RespValue> elements;
  bool is_nil() const { return kind == Kind::kNil; }
  bool is_error() const { return kind == Kind::kError; }
  bool is_string() const { return kind == Kind::kString; }
};

// An endpoint whose name has been looked up.
struct SocketAddress {
  RedisEndpoint endpoint;
  sockaddr_storage storage{};
  socklen_t length = 0;
};
// The name is looked up on a thread of its own, since that can't be given a time limit. In the resolver's order, not
// empty. Errors: UNAVAILABLE, DEADLINE_EXCEEDED (kInputOutput).
absl::StatusOr<std::vector<SocketAddress>> ResolveEndpoint(const RedisEndpoint& endpoint, absl::Time deadline);
// Of an endpoint that is an IP address: asks nobody. Errors: INVALID_ARGUMENT (kOptionInvalid) for others.
absl::StatusOr<SocketAddress> NumericAddress(const RedisEndpoint& endpoint);

struct TlsFiles {
  std::string ca;    // certificates that are trusted, PEM; empty: the system's
  std::string cert;  // this client's; empty: none
  std::string key;
};
// Immutable.
class TlsContext {
 public:
  // Errors: INVALID_ARGUMENT (kOptionInvalid) for a file that can't be used, naming the flag.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Create(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class RedisConnection {
 public:
  struct Options {
    std::shared_ptr<const TlsContext> tls;  // null: plain
    std::string user;                       // empty: the default one
    std::string password;                   // empty: none is sent
    int database = 0;
    // The most that one reply may take.
    size_t max_reply_bytes = size_t{256} << 20;
  };
  // Connects, checks the server's certificate against the endpoint's host name, says who we are, chooses the database.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Open(const SocketAddress& address, const Options& options,
                                                               absl::Time deadline);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  // Sends a batch; as many replies come, in order.
  absl::Status Send(const std::vector<RedisCommand>& commands, absl::Time deadline);
  absl::StatusOr<RespValue> Receive(absl::Time deadline);
  absl::StatusOr<RespValue> Call(const RedisCommand& command, absl::Time deadline);
  // True where nothing has come in that nobody asked for, and the server has not closed the connection.
  bool IsQuiet() const;
  // Ends what another thread waits for, and the connection. The one function that any thread may call.
  void Shutdown();

 private:
  struct Tls;

  RedisConnection(int fd, std::string peer, size_t max_reply_bytes);
  absl::Status StartTls(const TlsContext& context, const std::string& host, absl::Time deadline);
  absl::Status Login(const Options& options, absl::Time deadline);
  // Bytes of the socket, and of what is in it.
  absl::Status SendRaw(std::string_view bytes, absl::Time deadline);
  absl::StatusOr<size_t> ReceiveRaw(char* buffer, size_t size, absl::Time deadline);
  absl::Status SendBytes(std::string_view bytes, absl::Time deadline);
  absl::StatusOr<size_t> ReceiveBytes(char* buffer, size_t size, absl::Time deadline);
  absl::Status FlushTls(absl::Time deadline);
  absl::Status WaitFor(short events, absl::Time deadline) const;
  absl::Status Lost(std::string_view what) const;

  const int fd_;
  const std::string peer_;  // for messages
  const size_t max_reply_bytes_;
  size_t reply_bytes_ = 0;     // fed to the reader for the reply that is coming in
  size_t reply_elements_ = 0;  // as above; the reader counts
  redisReader* reader_ = nullptr;
  std::unique_ptr<Tls> tls_;
};

}  // namespace fuseline::cache
