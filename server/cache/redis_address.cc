#include "server/cache/redis_address.h"

#include <charconv>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::cache {
namespace {

constexpr int kRedisPort = 6379;
constexpr int kSentinelPort = 26379;
constexpr size_t kMostEndpoints = 64;
constexpr size_t kMostHostBytes = 253;  // of a DNS name

absl::Status Bad(std::string_view url, std::string_view what) {
  return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache",
                         StrCat("shared_cache '", url, "': ", what,
                                "; expected redis://HOST:PORT[/DB], redis+sentinel://HOST:PORT,…/MASTER or "
                                "redis+cluster://HOST:PORT,… (rediss for TLS)"));
}

bool ParseInteger(std::string_view text, int least, int most, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= least && out <= most;
}

// What stands before the first `separator`, which is taken off `text` with it.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return taken;
}

// CRC16-CCITT (XMODEM), as the specification of Redis Cluster has it.
uint16_t Crc16(std::string_view bytes) {
  uint32_t crc = 0;
  for (const char byte : bytes) {
    crc ^= static_cast<uint32_t>(static_cast<uint8_t>(byte)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = ((crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
  }
  return static_cast<uint16_t>(crc);
}

}  // namespace

std::string RedisEndpoint::ToString() const {
  return host.find(':') == std::string::npos ? StrCat(host, ":", port) : StrCat("[", host, "]:", port);
}

absl::StatusOr<RedisEndpoint> ParseRedisEndpoint(std::string_view text, int default_port) {
  RedisEndpoint endpoint;
  endpoint.port = default_port;
  std::string_view host = text;
  std::string_view port;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache", StrCat("'", text, "' lacks a ']'"));
    }
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
  } else if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (!port.empty() && (port[0] != ':' || !ParseInteger(port.substr(1), 1, 65535, endpoint.port))) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache", StrCat("'", text, "' has no valid port"));
  }
  if (host.empty() || host.size() > kMostHostBytes || endpoint.port == 0) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "shared_cache", StrCat("'", text, "' is no HOST:PORT"));
  }
  endpoint.host = std::string(host);
  return endpoint;
}

absl::StatusOr<RedisAddress> ParseRedisAddress(std::string_view url) {
  const size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return Bad(url, "it has no scheme");
  RedisAddress address;
  std::string_view scheme = url.substr(0, scheme_end);
  std::string_view rest = url.substr(scheme_end + 3);
  const std::string_view transport = TakeUntil(scheme, '+');
  if (transport != "redis" && transport != "rediss") return Bad(url, "the scheme is unknown");
  address.tls = transport == "rediss";
  if (scheme == "sentinel") {
    address.kind = RedisAddress::Kind::kSentinel;
  } else if (scheme == "cluster") {
    address.kind = RedisAddress::Kind::kCluster;
  } else if (!scheme.empty()) {
    return Bad(url, "the scheme is unknown");
  }
  // Everybody on the machine may read a command line.
  if (rest.find('@') != std::string_view::npos) {
    return Bad("redis://…@…", "user and password belong into --shared_cache_user and --shared_cache_password_file");
  }
  std::string_view hosts = TakeUntil(rest, '/');
  const int default_port = address.kind == RedisAddress::Kind::kSentinel ? kSentinelPort : kRedisPort;
  while (!hosts.empty()) {
    absl::StatusOr<RedisEndpoint> endpoint = ParseRedisEndpoint(TakeUntil(hosts, ','), default_port);
    if (!endpoint.ok())
      return Bad(url, std::string_view(endpoint.status().message().data(), endpoint.status().message().size()));
    address.endpoints.push_back(*std::move(endpoint));
  }
  if (address.endpoints.empty() || address.endpoints.size() > kMostEndpoints)
    return Bad(url, "1 to 64 hosts are needed");
  if (address.kind == RedisAddress::Kind::kSingle && address.endpoints.size() > 1) {
    return Bad(url, "several hosts are Sentinels or a cluster");
  }
  if (address.kind == RedisAddress::Kind::kSentinel) {
    address.master = std::string(TakeUntil(rest, '/'));
    if (address.master.empty()) return Bad(url, "the master's name is missing");
  }
  if (rest.empty()) return address;
  if (address.kind == RedisAddress::Kind::kCluster) return Bad(url, "a cluster has no database numbers");
  if (!ParseInteger(rest, 0, 1 << 20, address.database)) return Bad(url, "the database is no number");
  return address;
}

int RedisHashSlot(std::string_view key) {
  const size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return Crc16(key) % kRedisHashSlots;
}

}  // namespace fuseline::cache
