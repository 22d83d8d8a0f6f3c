// The client's calls that evict, export and import, and the artifacts that it accepts, against a server that answers
// what each test says.
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/pinned_artifacts.h"
#include "common/status/error.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

class FakeAdmin : public v1::AdminService::Service {
 public:
  std::atomic<int> fail_first{0};  // calls to answer with UNAVAILABLE half way
  v1::EvictCacheRequest evicted;
  std::string imported;

  grpc::Status EvictCache(grpc::ServerContext*, const v1::EvictCacheRequest* request,
                          v1::EvictCacheResponse* response) override {
    evicted = *request;
    response->set_evicted_count(3);
    response->set_evicted_bytes(40);
    return grpc::Status::OK;
  }
  grpc::Status ExportCache(grpc::ServerContext*, const v1::ExportCacheRequest* request,
                           grpc::ServerWriter<v1::ExportCacheResponse>* writer) override {
    v1::ExportCacheResponse response;
    response.set_chunk("one");
    writer->Write(response);
    if (fail_first-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    response.set_chunk(std::to_string(request->fingerprints_size()));
    writer->Write(response);
    return grpc::Status::OK;
  }
  grpc::Status ImportCache(grpc::ServerContext*, grpc::ServerReader<v1::ImportCacheRequest>* reader,
                           v1::ImportCacheResponse* response) override {
    imported.clear();
    v1::ImportCacheRequest request;
    while (reader->Read(&request)) {
      EXPECT_LE(request.chunk().size(), size_t{4} << 20);
      imported += request.chunk();
    }
    if (fail_first-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    response->set_imported_count(1);
    response->set_present_count(2);
    response->set_refused_count(3);
    response->set_first_refusal("why");
    return grpc::Status::OK;
  }
};

class ClientCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&admin_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ClientOptions options;
    options.initial_backoff = absl::Milliseconds(1);
    auto client = Client::Connect("127.0.0.1:" + std::to_string(port), options);
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
  }
  void TearDown() override { server_->Shutdown(); }

  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientCacheTest, EvictionSaysWhatAndHearsHowMuch) {
  Fingerprint key;
  key.bytes[0] = 1;
  const auto result = client_->EvictCache({.fingerprints = {key}});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->entries, 3);
  EXPECT_EQ(result->size_bytes, 40);
  EXPECT_EQ(admin_.evicted.fingerprints_size(), 1);
  EXPECT_FALSE(admin_.evicted.has_unused_for());
  ASSERT_THAT(client_->EvictCache({.unused_for = absl::Hours(2)}), IsOk());
  EXPECT_EQ(admin_.evicted.unused_for().seconds(), 7200);
}

TEST_F(ClientCacheTest, ExportBeginsAnewWhereTheCallBreaks) {
  admin_.fail_first = 1;
  std::string file;
  int begun = 0;
  const absl::Status status = client_->ExportCache({Fingerprint()}, [&](int64_t offset, std::string_view bytes) {
    begun += offset == 0 ? 1 : 0;
    file.resize(static_cast<size_t>(offset));
    file.append(bytes);
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(file, "one1");
}

TEST_F(ClientCacheTest, ExportEndsWithTheSinksError) {
  const absl::Status full =
      MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, "file", "the disk is full");
  EXPECT_EQ(client_->ExportCache({}, [&](int64_t, std::string_view) { return full; }), full);
}

TEST_F(ClientCacheTest, ImportSendsTheFileInPiecesAndAnewWhereTheCallBreaks) {
  admin_.fail_first = 1;
  const std::string file((size_t{9} << 20) + 7, 'x');
  const auto result = client_->ImportCache([&](int64_t offset) -> absl::StatusOr<std::string> {
    return file.substr(static_cast<size_t>(offset), size_t{5} << 20);
  });
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(admin_.imported, file);
  EXPECT_EQ(result->imported, 1);
  EXPECT_EQ(result->present, 2);
  EXPECT_EQ(result->refused, 3);
  EXPECT_EQ(result->first_refusal, "why");
}

TEST_F(ClientCacheTest, ImportEndsWithTheSourcesError) {
  const absl::Status lost = MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, "file", "it is gone");
  const auto result = client_->ImportCache([&](int64_t) -> absl::StatusOr<std::string> { return lost; });
  EXPECT_EQ(result.status(), lost);
}

Artifact ArtifactWith(uint8_t key, const std::string& bytes) {
  Artifact artifact;
  artifact.fingerprint.bytes[0] = key;
  artifact.kernels.push_back({ImageFormat::kSharedObject, "k", bytes, "source", {}});
  return artifact;
}

TEST(PinnedArtifactsTest, PinnedArtifactAloneIsAccepted) {
  const Artifact artifact = ArtifactWith(1, "code");
  PinnedArtifacts pinned({{artifact.fingerprint, ArtifactDigest(artifact)}});
  EXPECT_FALSE(pinned.WasAccepted(artifact.fingerprint));
  EXPECT_THAT(pinned.Check(artifact), IsOk());
  EXPECT_TRUE(pinned.WasAccepted(artifact.fingerprint));
  Artifact without_source = artifact;
  without_source.kernels[0].source.clear();
  without_source.report.intermediates_removed = 5;
  EXPECT_THAT(pinned.Check(without_source), IsOk());
  EXPECT_THAT(pinned.Check(ArtifactWith(1, "other code")),
              StatusIs(absl::StatusCode::kDataLoss, "the lock file has the artifact"));
  EXPECT_THAT(pinned.Check(ArtifactWith(2, "code")),
              StatusIs(absl::StatusCode::kDataLoss, "the lock file has no graph with the key 02"));
}

TEST(PinnedArtifactsTest, WithoutPinsEverythingIsAccepted) {
  PinnedArtifacts pinned({});
  EXPECT_TRUE(pinned.empty());
  EXPECT_THAT(pinned.Check(ArtifactWith(1, "code")), IsOk());
}

}  // namespace
}  // namespace fuseline::client
