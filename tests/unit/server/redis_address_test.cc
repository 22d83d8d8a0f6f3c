#include "server/cache/redis_address.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::StatusIs;
using Kind = RedisAddress::Kind;

TEST(RedisAddressTest, EachFormIsRead) {
  struct Case {
    std::string url;
    Kind kind;
    bool tls;
    std::string endpoints;
    std::string master;
    int database;
  };
  const std::vector<Case> cases = {
      {"redis://cache.example:6380", Kind::kSingle, false, "cache.example:6380 ", "", 0},
      {"redis://cache.example", Kind::kSingle, false, "cache.example:6379 ", "", 0},
      {"rediss://10.0.0.1/3", Kind::kSingle, true, "10.0.0.1:6379 ", "", 3},
      {"redis://[::1]:7000", Kind::kSingle, false, "[::1]:7000 ", "", 0},
      {"redis+sentinel://a,b:1/main", Kind::kSentinel, false, "a:26379 b:1 ", "main", 0},
      {"rediss+sentinel://a/main/2", Kind::kSentinel, true, "a:26379 ", "main", 2},
      {"redis+cluster://a:1,b:2,c:3", Kind::kCluster, false, "a:1 b:2 c:3 ", "", 0},
      {"rediss+cluster://a", Kind::kCluster, true, "a:6379 ", "", 0},
  };
  for (const Case& c : cases) {
    const auto address = ParseRedisAddress(c.url);
    ASSERT_OK(address) << c.url;
    EXPECT_EQ(address->kind, c.kind) << c.url;
    EXPECT_EQ(address->tls, c.tls) << c.url;
    EXPECT_EQ(address->master, c.master) << c.url;
    EXPECT_EQ(address->database, c.database) << c.url;
    std::string endpoints;
    for (const RedisEndpoint& endpoint : address->endpoints) endpoints += endpoint.ToString() + " ";
    EXPECT_EQ(endpoints, c.endpoints) << c.url;
  }
}

TEST(RedisAddressTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"cache:6379", "no scheme"},
      {"http://cache", "scheme is unknown"},
      {"redis+ring://cache", "scheme is unknown"},
      {"redis://", "1 to 64 hosts"},
      {"redis://:6379", "is no HOST:PORT"},
      {"redis://cache:0", "no valid port"},
      {"redis://cache:port", "no valid port"},
      {"redis://[::1", "lacks a ']'"},
      {"redis://a,b", "several hosts"},
      {"redis://a/x", "the database is no number"},
      {"redis+cluster://a/1", "no database numbers"},
      {"redis+sentinel://a", "master's name is missing"},
      {"redis://" + std::string(300, 'h'), "is no HOST:PORT"},
  };
  for (const auto& [url, what] : cases) {
    EXPECT_THAT(ParseRedisAddress(url), StatusIs(absl::StatusCode::kInvalidArgument, what)) << url;
  }
}

TEST(RedisAddressTest, PasswordsInTheUrlAreRefusedAndNotRepeated) {
  const auto refused = ParseRedisAddress("redis://user:secret@cache");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, "--shared_cache_password_file"));
  EXPECT_EQ(refused.status().message().find("secret"), absl::string_view::npos);
}

// The values of the specification, and of CLUSTER KEYSLOT.
TEST(RedisAddressTest, HashSlotsAreThoseOfTheSpecification) {
  EXPECT_EQ(RedisHashSlot("123456789"), 0x31c3 % kRedisHashSlots);
  EXPECT_EQ(RedisHashSlot("foo"), 12182);
  EXPECT_EQ(RedisHashSlot("{foo}bar"), 12182);
  EXPECT_EQ(RedisHashSlot("a{foo}{bar}"), 12182);
  EXPECT_NE(RedisHashSlot("{}foo"), 12182);
  EXPECT_EQ(RedisHashSlot(""), 0);
}

}  // namespace
}  // namespace fuseline::cache
