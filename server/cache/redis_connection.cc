#include "server/cache/redis_connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// A few bytes on the wire can announce a huge array: elements of one reply, all levels together.
constexpr size_t kMostElements = size_t{1} << 17;
constexpr size_t kMostIdleReaderBytes = size_t{1} << 20;

absl::Status Unreachable(const std::string& peer, std::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "shared_cache",
                   StrCat("Redis at ", peer, ": ", what));
}

absl::Status BadFile(const char* flag, const std::string& file) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return InvalidArgument(ErrorReason::kOptionInvalid, flag, StrCat(flag, " '", file, "': ", text));
}

std::string SystemError(int error) { return std::system_category().message(error); }

// The reader's callbacks build a RespValue: a child where its parent has room for it, the root on the heap.

RespValue* NewValue(const redisReadTask* task, RespValue::Kind kind) {
  RespValue* value = nullptr;
  if (task->parent == nullptr) {
    value = new (std::nothrow) RespValue;
    if (value == nullptr) return nullptr;
  } else {
    auto* parent = static_cast<RespValue*>(task->parent->obj);
    value = &parent->elements[static_cast<size_t>(task->idx)];
  }
  value->kind = kind;
  return value;
}

void FreeIfRoot(const redisReadTask* task, RespValue* value) {
  if (task->parent == nullptr) delete value;
}

void* CreateString(const redisReadTask* task, char* text, size_t size) {
  const RespValue::Kind kind = task->type == REDIS_REPLY_ERROR    ? RespValue::Kind::kError
                               : task->type == REDIS_REPLY_STATUS ? RespValue::Kind::kStatus
                                                                  : RespValue::Kind::kString;
  RespValue* value = NewValue(task, kind);
  if (value == nullptr) return nullptr;
  try {
    value->text.assign(text, size);
  } catch (const std::exception&) {
    FreeIfRoot(task, value);
    return nullptr;
  }
  return value;
}

void* CreateArray(const redisReadTask* task, int elements) {
  auto* counted = static_cast<size_t*>(task->privdata);
  if (elements < 0 || static_cast<size_t>(elements) > kMostElements - *counted) return nullptr;
  *counted += static_cast<size_t>(elements);
  RespValue* value = NewValue(task, RespValue::Kind::kArray);
  if (value == nullptr) return nullptr;
  try {
    value->elements.resize(static_cast<size_t>(elements));
  } catch (const std::exception&) {
    FreeIfRoot(task, value);
    return nullptr;
  }
  return value;
}

void* CreateInteger(const redisReadTask* task, long long integer) {
  RespValue* value = NewValue(task, RespValue::Kind::kInteger);
  if (value != nullptr) value->integer = integer;
  return value;
}

void* CreateNil(const redisReadTask* task) { return NewValue(task, RespValue::Kind::kNil); }

// Only ever called on a root.
void FreeValue(void* value) { delete static_cast<RespValue*>(value); }

redisReplyObjectFunctions kReaderFunctions = {CreateString, CreateArray, CreateInteger, CreateNil, FreeValue};

bool IsNumericHost(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

std::vector<SocketAddress> LookUp(const RedisEndpoint& endpoint, int flags, int& error) {
  std::vector<SocketAddress> found;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  error = getaddrinfo(endpoint.host.c_str(), StrCat(endpoint.port).c_str(), &hints, &list);
  if (error != 0) return found;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress& address = found.emplace_back();
    address.endpoint = endpoint;
    memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
  }
  freeaddrinfo(list);
  return found;
}

}  // namespace

absl::StatusOr<SocketAddress> NumericAddress(const RedisEndpoint& endpoint) {
  int error = 0;
  std::vector<SocketAddress> found = LookUp(endpoint, AI_NUMERICHOST, error);
  if (found.empty()) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache",
                           StrCat("'", endpoint.ToString(), "' is no IP address"));
  }
  return std::move(found.front());
}

absl::StatusOr<std::vector<SocketAddress>> ResolveEndpoint(const RedisEndpoint& endpoint, absl::Time deadline) {
  if (IsNumericHost(endpoint.host)) {
    FUSELINE_ASSIGN_OR_RETURN(SocketAddress address, NumericAddress(endpoint));
    return std::vector<SocketAddress>{std::move(address)};
  }
  // Shared with the thread, which is left behind where the resolver takes too long.
  struct Answer {
    absl::Notification done;
    std::vector<SocketAddress> found;
    int error = 0;
  };
  const auto answer = std::make_shared<Answer>();
  try {
    std::thread([endpoint, answer] {
      answer->found = LookUp(endpoint, 0, answer->error);
      answer->done.Notify();
    }).detach();
  } catch (const std::system_error& e) {
    return Unreachable(endpoint.ToString(), e.what());
  }
  if (!answer->done.WaitForNotificationWithTimeout(deadline - absl::Now())) {
    return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kInputOutput, "shared_cache",
                     StrCat("Redis at ", endpoint.ToString(), ": looking up the name takes too long"));
  }
  if (answer->found.empty()) return Unreachable(endpoint.ToString(), gai_strerror(answer->error));
  return std::move(answer->found);
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Create(const TlsFiles& files) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) return Internal("OpenSSL gives no TLS context");
  std::shared_ptr<const TlsContext> made(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (files.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr) != 1) {
    return BadFile("shared_cache_ca_file", files.ca);
  }
  if (files.cert.empty() != files.key.empty()) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache_cert_file",
                           "shared_cache_cert_file and shared_cache_key_file go together");
  }
  if (files.cert.empty()) return made;
  if (SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) != 1) {
    return BadFile("shared_cache_cert_file", files.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return BadFile("shared_cache_key_file", files.key);
  }
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

// TLS over buffers in memory, so that the socket is read and written in one place, with our time limits and no SIGPIPE.
struct RedisConnection::Tls {
  explicit Tls(SSL_CTX* context) : ssl(SSL_new(context)), in(BIO_new(BIO_s_mem())), out(BIO_new(BIO_s_mem())) {
    BIO_set_mem_eof_return(in, -1);
    BIO_set_mem_eof_return(out, -1);
    if (ssl != nullptr) SSL_set_bio(ssl, in, out);
  }
  ~Tls() { SSL_free(ssl); }  // and the buffers
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  SSL* const ssl;
  BIO* const in;
  BIO* const out;
};

RedisConnection::RedisConnection(int fd, std::string peer, size_t max_reply_bytes)
    : fd_(fd), peer_(std::move(peer)), max_reply_bytes_(max_reply_bytes) {}

RedisConnection::~RedisConnection() {
  if (reader_ != nullptr) redisReaderFree(reader_);
  close(fd_);
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Open(const SocketAddress& address,
                                                                       const Options& options, absl::Time deadline) {
  const std::string peer = address.endpoint.ToString();
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unreachable(peer, SystemError(errno));
  std::unique_ptr<RedisConnection> connection(new RedisConnection(fd, peer, options.max_reply_bytes));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    if (errno != EINPROGRESS) return Unreachable(peer, SystemError(errno));
    FUSELINE_RETURN_IF_ERROR(connection->WaitFor(POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Unreachable(peer, SystemError(error));
  }
  connection->reader_ = redisReaderCreateWithFunctions(&kReaderFunctions);
  if (connection->reader_ == nullptr) return Unreachable(peer, "out of memory");
  connection->reader_->maxbuf = kMostIdleReaderBytes;
  connection->reader_->privdata = &connection->reply_elements_;
  if (options.tls != nullptr) {
    FUSELINE_RETURN_IF_ERROR(connection->StartTls(*options.tls, address.endpoint.host, deadline));
  }
  FUSELINE_RETURN_IF_ERROR(connection->Login(options, deadline));
  return connection;
}

absl::Status RedisConnection::StartTls(const TlsContext& context, const std::string& host, absl::Time deadline) {
  tls_ = std::make_unique<Tls>(context.get());
  if (tls_->ssl == nullptr) return Lost("OpenSSL gives no connection");
  X509_VERIFY_PARAM* checks = SSL_get0_param(tls_->ssl);
  if (IsNumericHost(host)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(checks, host.c_str()) != 1) return Lost("the address can't be checked");
  } else {
    if (SSL_set1_host(tls_->ssl, host.c_str()) != 1) return Lost("the host name can't be checked");
    SSL_set_tlsext_host_name(tls_->ssl, host.c_str());
  }
  SSL_set_connect_state(tls_->ssl);
  while (true) {
    ERR_clear_error();
    const int done = SSL_do_handshake(tls_->ssl);
    const int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls_->ssl, done);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) {
      const long verified = SSL_get_verify_result(tls_->ssl);
      char text[256] = "";
      ERR_error_string_n(ERR_get_error(), text, sizeof(text));
      FlushTls(deadline).IgnoreError();  // tells the server why
      return Lost(StrCat("TLS: ", verified != X509_V_OK ? X509_verify_cert_error_string(verified) : text));
    }
    FUSELINE_RETURN_IF_ERROR(FlushTls(deadline));
    if (done == 1) return absl::OkStatus();
    char buffer[kReadBytes / 4];
    FUSELINE_ASSIGN_OR_RETURN(const size_t size, ReceiveRaw(buffer, sizeof(buffer), deadline));
    BIO_write(tls_->in, buffer, static_cast<int>(size));
  }
}

absl::Status RedisConnection::Login(const Options& options, absl::Time deadline) {
  std::vector<RedisCommand> commands;
  if (!options.password.empty()) {
    commands.push_back(options.user.empty() ? RedisCommand{"AUTH", options.password}
                                            : RedisCommand{"AUTH", options.user, options.password});
  }
  if (options.database != 0) commands.push_back({"SELECT", StrCat(options.database)});
  if (commands.empty()) return absl::OkStatus();
  FUSELINE_RETURN_IF_ERROR(Send(commands, deadline));
  for (size_t i = 0; i < commands.size(); ++i) {
    FUSELINE_ASSIGN_OR_RETURN(const RespValue reply, Receive(deadline));
    if (!reply.is_error()) continue;
    const bool refused = commands[i][0] == "AUTH";
    return MakeError(refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
                     ErrorReason::kInputOutput, "shared_cache",
                     StrCat("Redis at ", peer_, ": ", commands[i][0], ": ", reply.text));
  }
  return absl::OkStatus();
}

absl::Status RedisConnection::Send(const std::vector<RedisCommand>& commands, absl::Time deadline) {
  std::string batch;
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  for (const RedisCommand& command : commands) {
    words.clear();
    sizes.clear();
    for (const std::string& word : command) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
    char* text = nullptr;
    const int size = redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), sizes.data());
    if (size < 0) return Lost("out of memory");
    batch.append(text, static_cast<size_t>(size));
    redisFreeCommand(text);
  }
  return SendBytes(batch, deadline);
}

absl::StatusOr<RespValue> RedisConnection::Receive(absl::Time deadline) {
  while (true) {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_, &reply) != REDIS_OK) return Lost(reader_->errstr);
    if (reply != nullptr) {
      const std::unique_ptr<RespValue> value(static_cast<RespValue*>(reply));
      reply_bytes_ = 0;
      reply_elements_ = 0;
      return std::move(*value);
    }
    char buffer[kReadBytes];
    FUSELINE_ASSIGN_OR_RETURN(const size_t size, ReceiveBytes(buffer, sizeof(buffer), deadline));
    reply_bytes_ += size;
    if (reply_bytes_ > max_reply_bytes_) return Lost("a reply is too large");
    if (redisReaderFeed(reader_, buffer, size) != REDIS_OK) return Lost(reader_->errstr);
  }
}

absl::StatusOr<RespValue> RedisConnection::Call(const RedisCommand& command, absl::Time deadline) {
  FUSELINE_RETURN_IF_ERROR(Send({command}, deadline));
  return Receive(deadline);
}

bool RedisConnection::IsQuiet() const {
  char byte;
  return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void RedisConnection::Shutdown() { shutdown(fd_, SHUT_RDWR); }

absl::Status RedisConnection::SendBytes(std::string_view bytes, absl::Time deadline) {
  if (tls_ == nullptr) return SendRaw(bytes, deadline);
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kReadBytes);
    ERR_clear_error();
    const int written = SSL_write(tls_->ssl, bytes.data(), static_cast<int>(size));
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
    FUSELINE_RETURN_IF_ERROR(FlushTls(deadline));
    if (written > 0) continue;
    if (SSL_get_error(tls_->ssl, written) != SSL_ERROR_WANT_READ) return Lost("TLS failed");
    char buffer[kReadBytes / 4];
    FUSELINE_ASSIGN_OR_RETURN(const size_t received, ReceiveRaw(buffer, sizeof(buffer), deadline));
    BIO_write(tls_->in, buffer, static_cast<int>(received));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisConnection::ReceiveBytes(char* buffer, size_t size, absl::Time deadline) {
  if (tls_ == nullptr) return ReceiveRaw(buffer, size, deadline);
  while (true) {
    ERR_clear_error();
    const int read = SSL_read(tls_->ssl, buffer, static_cast<int>(std::min<size_t>(size, INT_MAX)));
    if (read > 0) return static_cast<size_t>(read);
    const int error = SSL_get_error(tls_->ssl, read);
    if (error == SSL_ERROR_ZERO_RETURN) return Lost("it closed the connection");
    if (error != SSL_ERROR_WANT_READ) return Lost("TLS failed");
    FUSELINE_RETURN_IF_ERROR(FlushTls(deadline));
    char encrypted[kReadBytes / 4];
    FUSELINE_ASSIGN_OR_RETURN(const size_t received, ReceiveRaw(encrypted, sizeof(encrypted), deadline));
    BIO_write(tls_->in, encrypted, static_cast<int>(received));
  }
}

absl::Status RedisConnection::FlushTls(absl::Time deadline) {
  char buffer[kReadBytes / 4];
  while (true) {
    const int size = BIO_read(tls_->out, buffer, sizeof(buffer));
    if (size <= 0) return absl::OkStatus();
    FUSELINE_RETURN_IF_ERROR(SendRaw({buffer, static_cast<size_t>(size)}, deadline));
  }
}

absl::Status RedisConnection::SendRaw(std::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FUSELINE_RETURN_IF_ERROR(WaitFor(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Lost(SystemError(errno));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisConnection::ReceiveRaw(char* buffer, size_t size, absl::Time deadline) {
  while (true) {
    const ssize_t received = recv(fd_, buffer, size, 0);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return Lost("it closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FUSELINE_RETURN_IF_ERROR(WaitFor(POLLIN, deadline));
    } else if (errno != EINTR) {
      return Lost(SystemError(errno));
    }
  }
}

absl::Status RedisConnection::WaitFor(short events, absl::Time deadline) const {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    // Rounded up, so that the last wait does not spin.
    const int64_t millis = left <= absl::ZeroDuration() ? 0 : absl::ToInt64Milliseconds(left) + 1;
    pollfd polled = {fd_, events, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::min<int64_t>(millis, 1 << 30)));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kInputOutput, "shared_cache",
                       StrCat("Redis at ", peer_, ": no answer in time"));
    }
    if (errno != EINTR) return Lost(SystemError(errno));
  }
}

absl::Status RedisConnection::Lost(std::string_view what) const { return Unreachable(peer_, what); }

}  // namespace fuseline::cache
