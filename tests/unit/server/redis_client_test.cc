// Topologies, TLS and misbehaving servers. Real servers but where one has to misbehave.
#include "server/cache/redis_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/cache/shared_artifact_store.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/redis_process.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::FreePort;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::RedisProcess;
using ::fuseline::testing::RunProgram;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;
using ::fuseline::testing::TemporaryFolder;
using ::testing::HasSubstr;

RedisClientOptions OptionsFor(const std::string& url) {
  RedisClientOptions options;
  auto address = ParseRedisAddress(url);
  EXPECT_OK(address);
  if (address.ok()) options.address = *std::move(address);
  options.timeout = absl::Seconds(2);  // for a loaded machine
  options.first_retry = absl::Milliseconds(50);
  options.longest_retry = absl::Milliseconds(500);
  return options;
}

// Tried, well or not.
std::unique_ptr<RedisClient> TryToConnect(const RedisClientOptions& options) {
  auto client = RedisClient::Create(options);
  EXPECT_OK(client);
  if (!client.ok()) return nullptr;
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while ((*client)->reason() == "not connected yet" && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
  return *std::move(client);
}

std::unique_ptr<RedisClient> Connect(const RedisClientOptions& options) {
  auto client = TryToConnect(options);
  EXPECT_TRUE(client != nullptr && client->WaitUntilClosed(absl::Seconds(30)));
  return client;
}

// The reply's text, or the error's.
std::string Ask(RedisClient& client, const RedisCommand& words) {
  const auto replies = client.Run({{words, words[1]}});
  return replies.ok() ? (*replies)[0].text : std::string(replies.status().message());
}

template <typename Claimed>
bool Eventually(Claimed claimed, absl::Duration limit = absl::Seconds(30)) {
  const absl::Time deadline = absl::Now() + limit;
  while (!claimed() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  return claimed();
}

// Accepts connections and answers each with the same bytes, whatever it is asked.
class RudeServer {
 public:
  explicit RudeServer(std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~RudeServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (const int fd : accepted_) close(fd);
  }
  std::string url() const { return absl::StrCat("redis://127.0.0.1:", port_); }

 private:
  void Serve() {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      accepted_.push_back(fd);
      if (!answer_.empty()) send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
  }

  const std::string answer_;
  int listener_ = -1;
  int port_ = 0;
  std::vector<int> accepted_;
  std::thread thread_;
};

class RedisClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisProcess::IsInstalled()) GTEST_SKIP() << "no redis-server here";
  }
};

TEST_F(RedisClientTest, BatchesOfAnyBytesKeepTheirOrder) {
  RedisProcess redis;
  const auto client = Connect(OptionsFor(redis.url()));
  std::string bytes;
  for (int i = 0; i < 200'000; ++i) bytes += static_cast<char>(i * 7);
  std::vector<RoutedCommand> commands;
  for (int i = 0; i < 50; ++i) {
    const std::string key = absl::StrCat("k", i);
    commands.push_back({{"SET", key, absl::StrCat(i, bytes)}, key});
    commands.push_back({{"GET", key}, key});
    commands.push_back({{"GET", key, "too", "many"}, key});
  }
  const auto replies = client->Run(commands);
  ASSERT_OK(replies);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ((*replies)[3 * i].text, "OK");
    EXPECT_EQ((*replies)[3 * i + 1].text, absl::StrCat(i, bytes));
    EXPECT_TRUE((*replies)[3 * i + 2].is_error());
  }
}

TEST_F(RedisClientTest, ManyThreadsShareTheConnections) {
  RedisProcess redis;
  const auto client = Connect(OptionsFor(redis.url()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = absl::StrCat(t, "-", i);
        EXPECT_EQ(Ask(*client, {"SET", key, key}), "OK");
        EXPECT_EQ(Ask(*client, {"GET", key}), key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client->failures(), 0);
}

TEST_F(RedisClientTest, ConnectionsThatDiedInTheMeantimeAreReplaced) {
  RedisProcess redis;
  RedisClientOptions options = OptionsFor(redis.url());
  options.health_interval = absl::Hours(1);
  const auto client = Connect(options);
  ASSERT_EQ(Ask(*client, {"SET", "a", "1"}), "OK");
  redis.Kill();
  redis.Start();
  EXPECT_EQ(Ask(*client, {"SET", "a", "2"}), "OK");
  EXPECT_EQ(client->times_opened(), 0);
}

TEST_F(RedisClientTest, OutageIsSeenWithoutARequestAndReported) {
  RedisProcess redis;
  absl::Mutex mutex;
  std::vector<std::string> lines;
  RedisClientOptions options = OptionsFor(redis.url());
  options.health_interval = absl::Milliseconds(20);
  options.report = [&](const std::string& line) {
    absl::MutexLock lock(&mutex);
    lines.push_back(line);
  };
  const auto client = Connect(options);
  EXPECT_EQ(client->state(), BreakerState::kClosed);
  redis.Kill();
  EXPECT_TRUE(Eventually([&] { return client->state() != BreakerState::kClosed; }));
  EXPECT_THAT(client->reason(), HasSubstr(absl::StrCat("127.0.0.1:", redis.port())));
  redis.Start();
  EXPECT_TRUE(Eventually([&] { return client->state() == BreakerState::kClosed; }));
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mutex);
    return lines.size() == 2;
  }));
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(lines, ::testing::ElementsAre(HasSubstr("serving without the shared cache"),
                                            HasSubstr("serving with the shared cache again")));
}

TEST_F(RedisClientTest, OneSlowAnswerIsForgivenAtOnce) {
  RedisProcess redis;
  RedisClientOptions options = OptionsFor(redis.url());
  options.timeout = absl::Milliseconds(50);
  options.health_interval = options.first_retry = options.longest_retry = absl::Hours(1);
  const auto client = Connect(options);
  ASSERT_EQ(client->state(), BreakerState::kClosed) << client->reason();
  redis.Pause();
  EXPECT_FALSE(client->Run({{{"GET", "a"}, "a"}}).ok());
  EXPECT_NE(client->state(), BreakerState::kClosed);
  redis.Resume();
  EXPECT_TRUE(client->WaitUntilClosed(absl::Seconds(20)));
}

TEST_F(RedisClientTest, MasterIsFoundAndFollowedBySentinel) {
  RedisProcess master;
  RedisProcess replica({"--replicaof", absl::StrCat("127.0.0.1 ", master.port())});
  ASSERT_TRUE(Eventually([&] {
    return replica.Cli({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
  }));
  const TemporaryFolder folder;
  const std::string config = folder.Write(
      "sentinel.conf", absl::StrCat("dir ", folder.path(), "\nsentinel monitor main 127.0.0.1 ", master.port(),
                                    " 1\nsentinel down-after-milliseconds main 300\n"
                                    "sentinel failover-timeout main 2000\n"));
  RedisProcess sentinel({config, "--sentinel"});
  ASSERT_TRUE(sentinel.running()) << sentinel.log();
  ASSERT_TRUE(Eventually([&] {
    return sentinel.Cli({"SENTINEL", "replicas", "main"}).find(std::to_string(replica.port())) != std::string::npos;
  })) << sentinel.log();
  const auto client = Connect(OptionsFor(absl::StrCat("redis+sentinel://127.0.0.1:", sentinel.port(), "/main")));
  ASSERT_EQ(Ask(*client, {"SET", "a", "1"}), "OK") << client->reason();
  EXPECT_EQ(master.Cli({"GET", "a"}), "1");
  ASSERT_TRUE(Eventually([&] { return replica.Cli({"GET", "a"}) == "1"; }));
  master.Kill();
  EXPECT_TRUE(Eventually([&] {
    return Ask(*client, {"SET", "a", "2"}) == "OK";
  })) << client->reason()
      << sentinel.log();
  EXPECT_EQ(replica.Cli({"GET", "a"}), "2");
  EXPECT_GE(client->times_opened(), 1);
}

TEST_F(RedisClientTest, UnknownMasterIsNamed) {
  const TemporaryFolder folder;
  RedisProcess sentinel({folder.Write("sentinel.conf", ""), "--sentinel"});
  ASSERT_TRUE(sentinel.running()) << sentinel.log();
  const auto client = TryToConnect(OptionsFor(absl::StrCat("redis+sentinel://127.0.0.1:", sentinel.port(), "/main")));
  EXPECT_NE(client->state(), BreakerState::kClosed);
  EXPECT_THAT(client->reason(), HasSubstr("knows no master 'main'"));
}

class RedisClusterTest : public RedisClientTest {
 protected:
  void SetUp() override {
    RedisClientTest::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 3; ++i) {
      // A node's second port, for the others, is its own and 10,000 unless it is told.
      nodes_.push_back(std::make_unique<RedisProcess>(std::vector<std::string>{
          "--cluster-enabled", "yes", "--cluster-port", std::to_string(FreePort()), "--cluster-node-timeout", "1000"}));
      ASSERT_TRUE(nodes_.back()->running()) << nodes_.back()->log();
    }
    const int bounds[] = {0, 5000, 11'000, kRedisHashSlots};
    for (int i = 0; i < 3; ++i) {
      nodes_[i]->Cli({"CLUSTER", "ADDSLOTSRANGE", std::to_string(bounds[i]), std::to_string(bounds[i + 1] - 1)});
      nodes_[i]->Cli({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    }
    for (int i = 1; i < 3; ++i) {
      const std::string info = nodes_[i]->Cli({"CLUSTER", "NODES"});
      const size_t at = info.find('@');
      nodes_[0]->Cli({"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[i]->port()),
                      info.substr(at + 1, info.find_first_of(", ", at) - at - 1)});
    }
    for (const auto& node : nodes_) {
      ASSERT_TRUE(Eventually([&] {
        const std::string info = node->Cli({"CLUSTER", "INFO"});
        return info.find("cluster_state:ok") != std::string::npos &&
               info.find("cluster_slots_ok:16384") != std::string::npos;
      })) << node->Cli({"CLUSTER", "NODES"});
    }
  }
  bool IsSkipped() const { return ::testing::Test::IsSkipped(); }
  // By one node; the others are found through it.
  std::string url() const { return absl::StrCat("redis+cluster://127.0.0.1:", nodes_[1]->port()); }
  std::string IdOf(int node) const { return nodes_[node]->Cli({"CLUSTER", "MYID"}); }

  std::vector<std::unique_ptr<RedisProcess>> nodes_;
};

TEST_F(RedisClusterTest, BatchIsSpreadOverTheNodes) {
  const auto client = Connect(OptionsFor(url()));
  ASSERT_EQ(client->state(), BreakerState::kClosed) << client->reason();
  std::vector<RoutedCommand> commands;
  for (int i = 0; i < 100; ++i)
    commands.push_back({{"SET", absl::StrCat("k", i), absl::StrCat(i)}, absl::StrCat("k", i)});
  for (int i = 0; i < 100; ++i) commands.push_back({{"GET", absl::StrCat("k", i)}, absl::StrCat("k", i)});
  const auto replies = client->Run(commands);
  ASSERT_OK(replies);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ((*replies)[100 + i].text, absl::StrCat(i));
  for (const auto& node : nodes_) EXPECT_GT(std::stoi(node->Cli({"DBSIZE"})), 10);
}

TEST_F(RedisClusterTest, ArtifactsAndLeasesAreSharedThroughACluster) {
  SharedCacheOptions options;
  options.url = url();
  options.timeout = absl::Seconds(2);
  auto one = OpenSharedLevel(options, nullptr, nullptr);
  ASSERT_OK(one);
  options.url = absl::StrCat("redis+cluster://127.0.0.1:", nodes_[2]->port());
  auto other = OpenSharedLevel(options, nullptr, nullptr);
  ASSERT_OK(other);
  absl::Mutex mutex;
  std::set<Fingerprint> woken;
  other->coordinator->OnWake([&](const Fingerprint& key) {
    absl::MutexLock lock(&mutex);
    woken.insert(key);
  });
  for (int n = 0; n < 20; ++n) {
    ASSERT_EQ(one->coordinator->TryClaim(KeyOf(n)), Claim::kMine);
    ASSERT_EQ(other->coordinator->TryClaim(KeyOf(n)), Claim::kOthers);
    ASSERT_OK(one->store->Put(KeyOf(n), StoredArtifact(KeyOf(n), absl::StrCat("kernel ", n))));
    one->coordinator->Release(KeyOf(n));
  }
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mutex);
    return woken.size() == 20;
  }));
  for (int n = 0; n < 20; ++n) {
    EXPECT_EQ(other->coordinator->TryClaim(KeyOf(n)), Claim::kPublished);
    const auto found = other->store->Get(KeyOf(n));
    ASSERT_OK(found);
    ASSERT_NE(found->artifact, nullptr);
    EXPECT_EQ(found->artifact->kernels[0].bytes, absl::StrCat("kernel ", n));
  }
  for (const auto& node : nodes_) EXPECT_GT(std::stoi(node->Cli({"DBSIZE"})), 5);
  other->coordinator->Stop();
}

TEST_F(RedisClusterTest, SlotsThatMoveAreFollowed) {
  const auto client = Connect(OptionsFor(url()));
  const std::string key = "foo";  // slot 12182, of the last node
  ASSERT_EQ(Ask(*client, {"SET", key, "1"}), "OK") << client->reason();
  // On its way: new keys are asked of the new node.
  ASSERT_EQ(nodes_[0]->Cli({"CLUSTER", "SETSLOT", "12182", "IMPORTING", IdOf(2)}), "OK");
  ASSERT_EQ(nodes_[2]->Cli({"CLUSTER", "SETSLOT", "12182", "MIGRATING", IdOf(0)}), "OK");
  EXPECT_EQ(Ask(*client, {"SET", "{foo}new", "2"}), "OK");
  EXPECT_EQ(Ask(*client, {"GET", key}), "1");
  // There.
  nodes_[2]->Cli({"MIGRATE", "127.0.0.1", std::to_string(nodes_[0]->port()), key, "0", "1000"});
  for (const int node : {0, 2, 1}) nodes_[node]->Cli({"CLUSTER", "SETSLOT", "12182", "NODE", IdOf(0)});
  EXPECT_EQ(Ask(*client, {"GET", key}), "1");
  EXPECT_EQ(Ask(*client, {"GET", "{foo}new"}), "2");
  EXPECT_EQ(client->times_opened(), 0);
}

TEST_F(RedisClusterTest, NodeThatIsGoneTakesTheLevelOutOfServiceUntilItIsBack) {
  const auto client = Connect(OptionsFor(url()));
  ASSERT_EQ(Ask(*client, {"SET", "foo", "1"}), "OK") << client->reason();
  nodes_[2]->Pause();
  EXPECT_TRUE(Eventually([&] { return client->state() != BreakerState::kClosed; }));
  nodes_[2]->Resume();
  EXPECT_TRUE(Eventually([&] { return Ask(*client, {"GET", "foo"}) == "1"; })) << client->reason();
}

class RedisTlsTest : public RedisClientTest {
 protected:
  void SetUp() override {
    RedisClientTest::SetUp();
    if (::testing::Test::IsSkipped()) return;
    if (access("/usr/bin/openssl", X_OK) != 0) GTEST_SKIP() << "no openssl program here";
    MakeCertificate("ca", "", "basicConstraints=critical,CA:TRUE");
    MakeCertificate("server", "ca", "subjectAltName=IP:127.0.0.1");
    MakeCertificate("elsewhere", "ca", "subjectAltName=DNS:elsewhere.example");
    MakeCertificate("client", "ca", "subjectAltName=DNS:client");
    MakeCertificate("other_ca", "", "basicConstraints=critical,CA:TRUE");
  }
  void MakeCertificate(const std::string& name, const std::string& ca, const std::string& extension) {
    std::vector<std::string> argv = {"/usr/bin/openssl",
                                     "req",
                                     "-x509",
                                     "-newkey",
                                     "ec",
                                     "-pkeyopt",
                                     "ec_paramgen_curve:P-256",
                                     "-nodes",
                                     "-days",
                                     "2",
                                     "-subj",
                                     "/CN=" + name,
                                     "-addext",
                                     extension,
                                     "-keyout",
                                     File(name + ".key"),
                                     "-out",
                                     File(name + ".crt")};
    if (!ca.empty()) argv.insert(argv.end(), {"-CA", File(ca + ".crt"), "-CAkey", File(ca + ".key")});
    const auto made = RunProgram(argv);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  std::string File(const std::string& name) const { return folder_.path(name); }
  std::unique_ptr<RedisProcess> Start(const std::string& certificate, const std::string& clients) {
    const int port = FreePort();
    return std::make_unique<RedisProcess>(
        std::vector<std::string>{"--port", "0", "--tls-port", std::to_string(port), "--tls-cert-file",
                                 File(certificate + ".crt"), "--tls-key-file", File(certificate + ".key"),
                                 "--tls-ca-cert-file", File("ca.crt"), "--tls-auth-clients", clients},
        port);
  }
  RedisClientOptions OptionsFor(const RedisProcess& redis) const {
    RedisClientOptions options = cache::OptionsFor(absl::StrCat("rediss://127.0.0.1:", redis.port()));
    options.tls.ca = File("ca.crt");
    return options;
  }

  const TemporaryFolder folder_;
};

TEST_F(RedisTlsTest, LargeValuesTravelBothWaysWithAClientCertificate) {
  const auto redis = Start("server", "yes");
  ASSERT_TRUE(redis->running()) << redis->log();
  RedisClientOptions options = OptionsFor(*redis);
  options.tls.cert = File("client.crt");
  options.tls.key = File("client.key");
  const auto client = Connect(options);
  const std::string value(3'000'000, 'v');
  ASSERT_EQ(Ask(*client, {"SET", "a", value}), "OK") << client->reason();
  EXPECT_EQ(Ask(*client, {"GET", "a"}), value);
  // Without the certificate it is not let in.
  const auto stranger = TryToConnect(OptionsFor(*redis));
  EXPECT_NE(stranger->state(), BreakerState::kClosed);
}

TEST_F(RedisTlsTest, ServerThatIsNotTrustedOrHasAnotherNameIsNotTalkedTo) {
  const auto elsewhere = Start("elsewhere", "no");
  ASSERT_TRUE(elsewhere->running()) << elsewhere->log();
  const auto misnamed = TryToConnect(OptionsFor(*elsewhere));
  EXPECT_THAT(misnamed->reason(), HasSubstr("IP address mismatch"));
  const auto redis = Start("server", "no");
  ASSERT_TRUE(redis->running()) << redis->log();
  RedisClientOptions options = OptionsFor(*redis);
  options.tls.ca = File("other_ca.crt");
  const auto distrusting = TryToConnect(options);
  EXPECT_THAT(distrusting->reason(), HasSubstr("certificate"));
  EXPECT_NE(distrusting->state(), BreakerState::kClosed);
}

TEST(RudeRedisTest, WhatIsNoRedisIsLeftAloneWithAReason) {
  struct Case {
    std::string answer;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {"", "no answer in time"},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error"},
      {"*1000000000\r\n", ""},                    // an array that would not fit into memory
      {"*100000\r\n*100000\r\n*100000\r\n", ""},  // nor one inside the other
      {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n+x\r\n", ""},  // nested too deeply
      {"$9223372036854775807\r\n", ""},
      {"-ERR go away\r\n", "go away"},
  };
  for (const Case& c : cases) {
    const RudeServer server(c.answer);
    RedisClientOptions options = OptionsFor(server.url());
    options.timeout = absl::Milliseconds(50);
    const auto client = TryToConnect(options);
    ASSERT_NE(client, nullptr);
    EXPECT_TRUE(Eventually([&] { return client->state() == BreakerState::kOpen; })) << c.answer;
    EXPECT_THAT(client->reason(), HasSubstr(c.reason)) << c.answer;
    const absl::Time start = absl::Now();
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(client->Run({{{"GET", "a"}, "a"}}).ok());
    EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "nobody waits for what is out of service";
  }
}

TEST(RudeRedisTest, NamesThatNobodyKnowsAreAReason) {
  RedisClientOptions options = OptionsFor("redis://no-such-host.invalid");
  options.timeout = absl::Milliseconds(50);
  const auto client = TryToConnect(options);
  EXPECT_NE(client->state(), BreakerState::kClosed);
  EXPECT_THAT(client->Run({{{"GET", "a"}, "a"}}).status(), StatusIs(absl::StatusCode::kUnavailable, ""));
}

}  // namespace
}  // namespace fuseline::cache
