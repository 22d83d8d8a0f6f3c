#include "client/cpp/health.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr absl::Duration kTimeout = absl::Seconds(10);

// A gRPC server whose only working service is the standard health service.
class HealthTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    // gRPC starts no server without one.
    builder.RegisterService(&admin_);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void SetServing(const std::string& service, bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }

  v1::AdminService::Service admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(HealthTest, ServingIsOk) {
  SetServing("", true);
  EXPECT_THAT(CheckHealth(address_, "", kTimeout), IsOk());
}

TEST_F(HealthTest, DrainingIsUnavailable) {
  SetServing("", false);
  EXPECT_THAT(CheckHealth(address_, "", kTimeout), StatusIs(absl::StatusCode::kUnavailable, "drains"));
}

TEST_F(HealthTest, AsksForTheServiceThatIsNamed) {
  SetServing("", true);
  SetServing("fuseline.v1.CompileService", false);
  SetServing("fuseline.v1.AdminService", true);
  EXPECT_THAT(CheckHealth(address_, "fuseline.v1.AdminService", kTimeout), IsOk());
  EXPECT_THAT(CheckHealth(address_, "fuseline.v1.CompileService", kTimeout),
              StatusIs(absl::StatusCode::kUnavailable, "drains"));
  EXPECT_THAT(CheckHealth(address_, "fuseline.v1.NoService", kTimeout), StatusIs(absl::StatusCode::kNotFound, ""));
}

TEST_F(HealthTest, NoServerIsUnavailable) {
  server_->Shutdown();
  server_.reset();
  EXPECT_THAT(CheckHealth(address_, "", kTimeout), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(HealthTest, AnEmptyAddressIsAnError) {
  EXPECT_THAT(CheckHealth("", "", kTimeout), StatusIs(absl::StatusCode::kInvalidArgument, "address"));
}

}  // namespace
}  // namespace fuseline::client
