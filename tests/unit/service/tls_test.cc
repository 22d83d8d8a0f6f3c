// TLS between a server and gRPC clients, with certificates made here.
#include "server/service/tls_credentials.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "server/service/server.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::RunProgram;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::TemporaryFolder;

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access("/usr/bin/openssl", X_OK) != 0) GTEST_SKIP() << "no openssl program here";
    MakeCertificate("ca", "", "basicConstraints=critical,CA:TRUE");
    MakeCertificate("server", "ca", "subjectAltName=IP:127.0.0.1");
    MakeCertificate("client", "ca", "subjectAltName=DNS:client");
    MakeCertificate("stranger", "", "subjectAltName=DNS:client");
  }

  // NAME.key and NAME.crt, signed by `ca`, or by itself where that is empty.
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

  void Start(bool ask_clients) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.tls = {File("server.crt"), File("server.key"), ask_clients ? File("ca.crt") : "", absl::Seconds(1)};
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(engine_, options);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }

  // The code of a call by a client that trusts `ca` and shows the certificate `identity`, if any.
  grpc::StatusCode Call(const std::string& ca, const std::string& identity = "") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = folder_.Read(ca + ".crt");
    if (!identity.empty()) {
      options.pem_cert_chain = folder_.Read(identity + ".crt");
      options.pem_private_key = folder_.Read(identity + ".key");
    }
    return CallWith(grpc::SslCredentials(options));
  }
  grpc::StatusCode CallWith(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    auto stub = v1::AdminService::NewStub(grpc::CreateChannel(server_->address(), credentials));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::GetServerInfoResponse response;
    return stub->GetServerInfo(&context, {}, &response).error_code();
  }

  const TemporaryFolder folder_;
  FakeEngine engine_;
  std::unique_ptr<Server> server_;
};

TEST_F(TlsTest, AClientThatTrustsTheAuthorityIsServed) {
  Start(false);
  EXPECT_EQ(Call("ca"), grpc::StatusCode::OK);
}

TEST_F(TlsTest, AClientThatTrustsAnotherAuthorityDoesNotCall) {
  Start(false);
  EXPECT_EQ(Call("stranger"), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, PlainTextIsNotServed) {
  Start(false);
  EXPECT_EQ(CallWith(grpc::InsecureChannelCredentials()), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, WhereClientsAreAskedOnlyThoseOfTheAuthorityAreServed) {
  Start(true);
  EXPECT_EQ(Call("ca", "client"), grpc::StatusCode::OK);
  EXPECT_EQ(Call("ca"), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call("ca", "stranger"), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, ACertificateThatIsReplacedIsUsedWithoutARestart) {
  Start(false);
  ASSERT_EQ(Call("ca"), grpc::StatusCode::OK);
  MakeCertificate("next_ca", "", "basicConstraints=critical,CA:TRUE");
  MakeCertificate("server", "next_ca", "subjectAltName=IP:127.0.0.1");
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (Call("next_ca") != grpc::StatusCode::OK) {
    ASSERT_LT(absl::Now(), limit);
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(Call("ca"), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, FilesThatCanNotServeAreErrors) {
  EXPECT_THAT(MakeServerCredentials({File("server.crt"), "", ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, "tls_key_file"));
  EXPECT_THAT(MakeServerCredentials({"", "", File("ca.crt")}),
              StatusIs(absl::StatusCode::kInvalidArgument, "tls_cert_file"));
  EXPECT_THAT(MakeServerCredentials({File("absent.crt"), File("server.key"), ""}),
              StatusIs(absl::StatusCode::kNotFound, "absent.crt"));
  EXPECT_THAT(MakeServerCredentials({File("server.crt"), File("server.crt"), ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, "PRIVATE KEY"));
  folder_.Write("empty.crt", "");
  EXPECT_THAT(MakeServerCredentials({File("server.crt"), File("server.key"), File("empty.crt")}),
              StatusIs(absl::StatusCode::kInvalidArgument, "tls_client_ca_file"));
}

TEST(PlainTextTest, NoFilesMeanPlainText) { EXPECT_OK(MakeServerCredentials({})); }

}  // namespace
}  // namespace fuseline::service
