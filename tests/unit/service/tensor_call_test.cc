// Kept tensors and streamed runs over gRPC, with protobuf's own messages and a server on a fake engine.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "server/service/call_context.h"
#include "server/service/server.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

class TensorCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = Server::Start(engine_, options);
    ASSERT_OK(server);
    server_ = *std::move(server);
    stub_ = v1::ExecuteService::NewStub(grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  static v1::PutTensorRequest Header(const std::string& handle, int64_t size) {
    v1::PutTensorRequest request;
    request.mutable_header()->set_handle(handle);
    request.mutable_header()->set_dtype(v1::DATA_TYPE_U8);
    request.mutable_header()->add_shape(size);
    return request;
  }
  static v1::PutTensorRequest Chunk(int64_t offset, const std::string& data) {
    v1::PutTensorRequest request;
    request.mutable_chunk()->set_offset_bytes(offset);
    request.mutable_chunk()->set_data(data);
    return request;
  }
  grpc::Status Put(const std::string& handle, const std::string& data, const std::string& owner = "") {
    grpc::ClientContext context;
    if (!owner.empty()) context.AddMetadata(kOwnerKey, owner);
    v1::PutTensorResponse response;
    const auto writer = stub_->PutTensor(&context, &response);
    writer->Write(Header(handle, static_cast<int64_t>(data.size())));
    writer->Write(Chunk(0, data));
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (status.ok()) {
      EXPECT_EQ(response.handle(), handle);
    }
    return status;
  }
  // What the store has reserved, once that is `bytes`.
  int64_t ReservedOnce(int64_t bytes) {
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (engine_.tensors().stats().reserved_bytes != bytes && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
    return engine_.tensors().stats().reserved_bytes;
  }

  FakeEngine engine_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::ExecuteService::Stub> stub_;
};

TEST_F(TensorCallTest, TensorComesBackToItsOwnerAlone) {
  ASSERT_TRUE(Put("w", "abc", "ann").ok());
  for (const std::string owner : {"ann", "bob"}) {
    grpc::ClientContext context;
    context.AddMetadata(kOwnerKey, owner);
    v1::GetTensorRequest request;
    request.set_handle("w");
    const auto reader = stub_->GetTensor(&context, request);
    v1::GetTensorResponse response;
    if (owner == "bob") {
      EXPECT_FALSE(reader->Read(&response));
      const grpc::Status status = reader->Finish();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
      EXPECT_FALSE(status.error_details().empty());
      continue;
    }
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.header().dtype(), v1::DATA_TYPE_U8);
    EXPECT_EQ(response.header().shape(0), 3);
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.chunk().data(), "abc");
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(TensorCallTest, ClientThatStopsInMidUploadFreesItsRoom) {
  {
    grpc::ClientContext context;
    v1::PutTensorResponse response;
    const auto writer = stub_->PutTensor(&context, &response);
    ASSERT_TRUE(writer->Write(Header("w", 1000)));
    ASSERT_TRUE(writer->Write(Chunk(0, std::string(500, 'x'))));
    EXPECT_EQ(ReservedOnce(1000), 1000);
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(ReservedOnce(0), 0);
  EXPECT_TRUE(Put("w", "abc").ok());
}

TEST_F(TensorCallTest, DeadlineInMidUploadFreesItsRoom) {
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    v1::PutTensorResponse response;
    const auto writer = stub_->PutTensor(&context, &response);
    ASSERT_TRUE(writer->Write(Header("w", 1000)));
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_EQ(ReservedOnce(0), 0);
}

TEST_F(TensorCallTest, WrongChunkEndsTheUploadAtOnce) {
  grpc::ClientContext context;
  v1::PutTensorResponse response;
  const auto writer = stub_->PutTensor(&context, &response);
  ASSERT_TRUE(writer->Write(Header("w", 1000)));
  writer->Write(Chunk(7, "abc"));
  // Without WritesDone: the server does not wait for the rest.
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "tensor 'w': the chunk at offset 7 should start at 0"))
      << status.error_message();
}

TEST_F(TensorCallTest, StreamedRunAnswersWithHeaderAndChunks) {
  grpc::ClientContext context;
  const auto stream = stub_->ExecuteStream(&context);
  v1::ExecuteStreamRequest request;
  v1::ExecuteRequest* header = request.mutable_header();
  header->mutable_spec()->set_graph_text("graph g(a: u8[5]) {\n  %t = add(a, a)\n  return y = %t\n}\n");
  v1::InputTensor* input = header->add_inputs();
  input->set_name("a");
  input->mutable_tensor()->set_dtype(v1::DATA_TYPE_U8);
  input->mutable_tensor()->add_shape(5);
  ASSERT_TRUE(stream->Write(request));
  request.mutable_chunk()->set_name("a");
  request.mutable_chunk()->set_data("ab");
  ASSERT_TRUE(stream->Write(request));
  request.mutable_chunk()->set_offset_bytes(2);
  request.mutable_chunk()->set_data("cde");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->WritesDone());
  v1::ExecuteStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.header().outputs(0).name(), "y");
  EXPECT_EQ(response.header().outputs(0).tensor().shape(0), 5);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.chunk().name(), "y");
  EXPECT_EQ(response.chunk().data(), "abcde");
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(TensorCallTest, DrainRefusesNewUploads) {
  EXPECT_TRUE(server_->Drain(absl::Seconds(1)));
  EXPECT_EQ(Put("w", "abc").error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace fuseline::service
