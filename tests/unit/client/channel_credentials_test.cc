// Clients that speak TLS, with certificates made here.
#include "client/cpp/channel_credentials.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/health.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "gtest/gtest.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::RunProgram;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::TemporaryFolder;

class FakeAdmin : public v1::AdminService::Service {
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    return grpc::Status::OK;
  }
};

// A server that speaks TLS and asks clients for a certificate; its own names `localhost` and no address.
class ChannelCredentialsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access("/usr/bin/openssl", X_OK) != 0) GTEST_SKIP() << "no openssl program here";
    MakeCertificate("ca", "", "basicConstraints=critical,CA:TRUE");
    MakeCertificate("server", "ca", "subjectAltName=DNS:localhost");
    MakeCertificate("client", "ca", "subjectAltName=DNS:client");
    grpc::EnableDefaultHealthCheckService(true);
    grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    ssl.pem_root_certs = folder_.Read("ca.crt");
    ssl.pem_key_cert_pairs.push_back({folder_.Read("server.key"), folder_.Read("server.crt")});
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(ssl), &port_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    server_->GetHealthCheckService()->SetServingStatus("", true);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown();
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
  std::string Address(const std::string& host) const { return absl::StrCat(host, ":", port_); }

  TlsOptions Tls() const { return {true, File("ca.crt"), File("client.crt"), File("client.key")}; }
  absl::Status Ask(const std::string& address, const TlsOptions& tls) {
    ClientOptions options;
    options.max_attempts = 1;
    options.deadline = absl::Seconds(20);
    options.tls = tls;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(address, options);
    if (!client.ok()) return client.status();
    return (*client)->GetServerInfo().status();
  }

  const TemporaryFolder folder_;
  FakeAdmin admin_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ChannelCredentialsTest, AClientOfTheAuthorityIsServedByName) {
  EXPECT_THAT(Ask(Address("localhost"), Tls()), IsOk());
  EXPECT_THAT(CheckHealth(Address("localhost"), "", absl::Seconds(20), Tls()), IsOk());
}

TEST_F(ChannelCredentialsTest, AServerFoundByDnsIsKnownByThatName) {
  EXPECT_THAT(Ask(absl::StrCat("dns:///", Address("localhost")), Tls()), IsOk());
}

TEST_F(ChannelCredentialsTest, AServerThatIsReachedByAnotherNameIsNotTrusted) {
  EXPECT_THAT(Ask(Address("127.0.0.1"), Tls()), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(ChannelCredentialsTest, WithoutACertificateOrInPlainTextNobodyIsServed) {
  EXPECT_THAT(Ask(Address("localhost"), {true, File("ca.crt"), "", ""}), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(Ask(Address("localhost"), {}), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(CheckHealth(Address("localhost"), "", absl::Seconds(20)), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(ChannelCredentialsTest, OptionsThatDoNotGoTogetherAreErrors) {
  EXPECT_THAT(MakeChannelCredentials({true, File("absent.crt"), "", ""}),
              StatusIs(absl::StatusCode::kNotFound, "absent.crt"));
  EXPECT_THAT(MakeChannelCredentials({true, "", File("client.crt"), ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, "key"));
  EXPECT_THAT(MakeChannelCredentials({false, File("ca.crt"), "", ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, "TLS is off"));
}

}  // namespace
}  // namespace fuseline::client
