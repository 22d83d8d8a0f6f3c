// Where the shared level of the cache is: a Redis server, a master that Sentinels watch, or a Redis Cluster.
// Pipeline: --shared_cache -> ParseRedisAddress -> RedisClient.
// Thread-safety: values and pure functions. Tested by tests/unit/server/redis_address_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace fuseline::cache {

struct RedisEndpoint {
  std::string host;
  int port = 0;
  std::string ToString() const;  // "host:port", "[::1]:port"
  friend bool operator==(const RedisEndpoint&, const RedisEndpoint&) = default;
};

struct RedisAddress {
  enum class Kind : uint8_t { kSingle, kSentinel, kCluster };
  Kind kind = Kind::kSingle;
  bool tls = false;
  std::vector<RedisEndpoint> endpoints;  // the server; Sentinels; nodes of the cluster that are asked for the others
  std::string master;                    // kSentinel: its name
  int database = 0;                      // 0 in a cluster
};

// redis://HOST[:PORT][/DB], rediss://… (TLS), redis+sentinel://HOST[:PORT][,…]/MASTER[/DB],
// redis+cluster://HOST[:PORT][,…]; rediss+sentinel and rediss+cluster for TLS. Errors: INVALID_ARGUMENT
// (kOptionInvalid), naming the flag.
absl::StatusOr<RedisAddress> ParseRedisAddress(std::string_view url);

// "HOST:PORT", "[V6]:PORT", or without a port where `default_port` is not 0. Errors: INVALID_ARGUMENT (kOptionInvalid).
absl::StatusOr<RedisEndpoint> ParseRedisEndpoint(std::string_view text, int default_port);

// Of 16,384: where a cluster keeps a key. What stands between the first braces, where there is something, is hashed
// alone.
int RedisHashSlot(std::string_view key);
inline constexpr int kRedisHashSlots = 16384;

}  // namespace fuseline::cache
