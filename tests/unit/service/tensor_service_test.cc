// Kept tensors and streams of chunks, without gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/stream/chunk_buffers.h"
#include "server/service/execute_service.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr char kText[] = "graph g(a: f32[n], b: f32[4]) {\n  %s = neg(a)\n  %d = neg(b)\n  return s = %s, d = %d\n}\n";

// What the client sends, then `end`.
class FakeReader : public BufferReader {
 public:
  template <typename Message>
  void Send(const Message& message) {
    messages_.push_back(ToByteBuffer(message));
  }
  void SendTensor(const std::string& name, const Tensor& tensor) {
    ChunkSplitter splitter(name, tensor);
    grpc::ByteBuffer chunk;
    while (splitter.Next(&chunk)) messages_.push_back(chunk);
  }
  absl::Status end;  // OK: the client has sent everything

  absl::StatusOr<bool> Read(grpc::ByteBuffer& message) override {
    if (messages_.empty()) return end.ok() ? absl::StatusOr<bool>(false) : end;
    message = messages_.front();
    messages_.pop_front();
    return true;
  }
  size_t unread() const { return messages_.size(); }

 private:
  std::deque<grpc::ByteBuffer> messages_;
};

class FakeWriter : public BufferWriter {
 public:
  absl::Status Write(grpc::ByteBuffer message) override {
    if (fail_at == messages.size())
      return MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "client is gone");
    messages.push_back(std::move(message));
    return absl::OkStatus();
  }
  template <typename Message>
  Message At(size_t i) {
    StreamMessage<Message> message;
    EXPECT_OK(ReadStreamMessage(messages.at(i), message));
    EXPECT_FALSE(message.is_chunk);
    return std::move(message.message);
  }
  ChunkView ChunkAt(size_t i) {
    EXPECT_OK(ReadStreamMessage(messages.at(i), chunk_));
    EXPECT_TRUE(chunk_.is_chunk);
    return chunk_.chunk;
  }
  std::vector<grpc::ByteBuffer> messages;
  std::optional<size_t> fail_at;

 private:
  StreamMessage<v1::ExecuteStreamResponse> chunk_;
};

std::string Data(const ChunkView& chunk) {
  std::string data;
  for (const std::string_view piece : chunk.pieces) data.append(piece);
  return data;
}

Tensor Vector(const std::vector<float>& values) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {static_cast<int64_t>(values.size())});
  if (!values.empty()) std::memcpy(tensor.data(), values.data(), values.size() * sizeof(float));
  return tensor;
}

v1::PutTensorRequest PutHeader(const std::string& handle, int64_t size) {
  v1::PutTensorRequest request;
  request.mutable_header()->set_handle(handle);
  request.mutable_header()->set_dtype(v1::DATA_TYPE_F32);
  request.mutable_header()->add_shape(size);
  return request;
}

CallContext Owner(const std::string& owner) {
  CallContext context;
  context.owner = owner;
  return context;
}

class TensorServiceTest : public ::testing::Test {
 protected:
  absl::StatusOr<v1::PutTensorResponse> Put(const std::string& handle, const Tensor& tensor,
                                            const CallContext& context = {}) {
    FakeReader reader;
    reader.Send(PutHeader(handle, tensor.shape()[0]));
    reader.SendTensor("", tensor);
    return handler_.PutTensor(reader, context);
  }
  absl::Status Get(const std::string& handle, FakeWriter& writer, const CallContext& context = {}) {
    v1::GetTensorRequest request;
    request.set_handle(handle);
    return handler_.GetTensor(request, writer, context);
  }
  std::string KeptData(const std::string& handle, const CallContext& context = {}) {
    const auto stored = engine_.tensors().Get(handle, context.owner);
    EXPECT_OK(stored);
    return stored.ok() ? std::string(engine_.FetchTensor(*stored)->bytes()) : "";
  }
  v1::ListTensorsResponse List(const CallContext& context = {}) { return *handler_.ListTensors({}, context); }

  static std::shared_ptr<v1::ExecuteRequest> Request() {
    auto request = std::make_shared<v1::ExecuteRequest>();
    request->mutable_spec()->set_graph_text(kText);
    return request;
  }
  static void AddHandle(v1::ExecuteRequest& request, const std::string& name, const std::string& handle) {
    v1::InputTensor* input = request.add_inputs();
    input->set_name(name);
    input->set_handle(handle);
  }
  static void AddTensor(v1::ExecuteRequest& request, const std::string& name, const Tensor& tensor, bool data = true) {
    v1::InputTensor* input = request.add_inputs();
    input->set_name(name);
    input->mutable_tensor()->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
    input->mutable_tensor()->mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
    if (data) input->mutable_tensor()->set_data(tensor.data(), static_cast<size_t>(tensor.size_bytes()));
  }
  static void Keep(v1::ExecuteRequest& request, const std::string& name, const std::string& handle) {
    request.add_kept_outputs()->set_name(name);
    request.mutable_kept_outputs(request.kept_outputs_size() - 1)->set_handle(handle);
  }

  FakeEngine engine_;
  ExecuteHandler handler_{engine_};
};

TEST_F(TensorServiceTest, PutTensorComesBackInChunks) {
  std::vector<float> values(700'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor tensor = Vector(values);
  const auto put = Put("w", tensor);
  ASSERT_OK(put);
  EXPECT_EQ(put->handle(), "w");
  EXPECT_EQ(put->size_bytes(), tensor.size_bytes());
  EXPECT_EQ(put->lease().seconds(), 3600);
  FakeWriter writer;
  ASSERT_OK(Get("w", writer));
  EXPECT_EQ(writer.At<v1::GetTensorResponse>(0).header().shape(0), 700'000);
  std::string data;
  for (size_t i = 1; i < writer.messages.size(); ++i) {
    const ChunkView chunk = writer.ChunkAt(i);
    EXPECT_EQ(chunk.offset_bytes, static_cast<int64_t>(data.size()));
    data += Data(chunk);
  }
  EXPECT_EQ(data, tensor.bytes());
  EXPECT_EQ(writer.messages.size(), 4u);
}

TEST_F(TensorServiceTest, HandleIsMadeUpWhereNoneIsGivenAndEmptyTensorsAreKept) {
  const auto put = Put("", Vector({}));
  ASSERT_OK(put);
  EXPECT_GE(put->handle().size(), 16u);
  FakeWriter writer;
  ASSERT_OK(Get(put->handle(), writer));
  EXPECT_EQ(writer.messages.size(), 1u);
}

TEST_F(TensorServiceTest, TakenHandleAndQuotaAreRefusedAtTheHeader) {
  ASSERT_OK(Put("w", Vector({1})));
  FakeReader reader;
  reader.Send(PutHeader("w", 2));
  reader.SendTensor("", Vector({1, 2}));
  absl::Status status = handler_.PutTensor(reader, {}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists, "'w'"));
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kHandleTaken);
  EXPECT_EQ(reader.unread(), 1u);
  FakeReader huge;
  huge.Send(PutHeader("h", int64_t{1} << 38));
  status = handler_.PutTensor(huge, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kQuota);
}

TEST_F(TensorServiceTest, UploadThatEndsEarlyOrBadlyKeepsNothingAndFreesItsRoom) {
  struct Case {
    std::function<void(FakeReader&)> send;
    absl::StatusCode code;
    std::string message;
  };
  const Case cases[] = {
      {[](FakeReader&) {}, kInvalid, "first message has no header"},
      {[](FakeReader& r) { r.SendTensor("", Vector({1})); }, kInvalid, "first message has no header"},
      {[](FakeReader& r) { r.Send(PutHeader("w", 2)); }, kInvalid, "tensor 'w': the stream ends at offset 0 of 8"},
      {[](FakeReader& r) {
         r.Send(PutHeader("w", 2));
         r.SendTensor("w", Vector({1, 2, 3}));
       },
       kInvalid, "tensor 'w': the chunk at offset 0 has 12 bytes where only 8 are missing"},
      {[](FakeReader& r) {
         r.Send(PutHeader("w", 2));
         r.Send(PutHeader("w", 2));
       },
       kInvalid, "after the first one, has no chunk"},
      {[](FakeReader& r) {
         r.Send(PutHeader("w", 2));
         r.SendTensor("", Vector({1}));
         r.end = MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "client is gone");
       },
       absl::StatusCode::kCancelled, "client is gone"},
      {[](FakeReader& r) { r.Send(PutHeader("w", -2)); }, kInvalid, "dim -2 is negative"},
      {[](FakeReader& r) { r.Send(PutHeader("w", int64_t{1} << 50)); }, kInvalid, "more elements than the limit"},
      {[](FakeReader& r) { r.Send(PutHeader("bad handle", 1)); }, kInvalid, "a handle consists of"},
  };
  for (const Case& c : cases) {
    FakeReader reader;
    c.send(reader);
    EXPECT_THAT(handler_.PutTensor(reader, {}).status(), StatusIs(c.code, c.message));
    EXPECT_EQ(engine_.tensors().stats().tensors, 0);
    EXPECT_EQ(engine_.tensors().stats().reserved_bytes, 0);
  }
}

TEST_F(TensorServiceTest, OwnersSeeTheirOwnTensors) {
  ASSERT_OK(Put("w", Vector({1}), Owner("ann")));
  ASSERT_OK(Put("w", Vector({2, 3}), Owner("bob")));
  FakeWriter writer;
  const absl::Status status = Get("w", writer);
  EXPECT_THAT(status, StatusIs(kNotFound, "'w'"));
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kHandleUnknown);
  const v1::ListTensorsResponse list = List(Owner("bob"));
  ASSERT_EQ(list.tensors_size(), 1);
  EXPECT_EQ(list.tensors(0).handle(), "w");
  EXPECT_EQ(list.tensors(0).shape(0), 2);
  EXPECT_EQ(list.tensors(0).size_bytes(), 8);
  EXPECT_LE(list.tensors(0).remaining().seconds(), 3600);
  EXPECT_GT(list.tensors(0).remaining().seconds(), 3500);
  EXPECT_EQ(list.size_bytes(), 8);
  EXPECT_EQ(list.quota_bytes(), engine_.tensors().options().owner_quota_bytes);
  v1::DeleteTensorRequest request;
  request.set_handle("w");
  EXPECT_THAT(handler_.DeleteTensor(request, {}), StatusIs(kNotFound, "'w'"));
  EXPECT_OK(handler_.DeleteTensor(request, Owner("ann")));
  EXPECT_THAT(handler_.DeleteTensor(request, Owner("ann")), StatusIs(kNotFound, "'w'"));
  EXPECT_EQ(List(Owner("bob")).tensors_size(), 1);
}

TEST_F(TensorServiceTest, RunTakesKeptTensorsAndKeepsOutputs) {
  ASSERT_OK(Put("weights", Vector({1, 2, 3, 4}), Owner("ann")));
  auto request = Request();
  AddHandle(*request, "b", "weights");
  AddTensor(*request, "a", Vector({5, 6}));
  Keep(*request, "s", "result");
  Keep(*request, "d", "");
  auto response = handler_.Execute(request, Owner("ann"));
  ASSERT_OK(response);
  EXPECT_EQ(response->outputs_size(), 0);
  ASSERT_EQ(response->kept_size(), 2);
  EXPECT_EQ(response->kept(0).name(), "s");
  EXPECT_EQ(response->kept(0).handle(), "result");
  EXPECT_EQ(response->kept(0).size_bytes(), 8);
  EXPECT_EQ(response->kept(0).lease().seconds(), 3600);
  EXPECT_EQ(response->kept(1).name(), "d");
  EXPECT_EQ(KeptData("result", Owner("ann")), Vector({5, 6}).bytes());
  EXPECT_EQ(KeptData(response->kept(1).handle(), Owner("ann")), Vector({1, 2, 3, 4}).bytes());
  EXPECT_EQ(engine_.last_options().keep, (std::vector<bool>{true, true}));
  // The result of one run is an input of the next, by fingerprint, whose outputs are returned too where they are named.
  auto next = std::make_shared<v1::ExecuteRequest>();
  next->mutable_spec()->set_fingerprint(response->summary().fingerprint());
  AddHandle(*next, "", "weights");
  AddHandle(*next, "", response->kept(1).handle());
  next->add_output_names("out1");
  Keep(*next, "out1", "again");
  FakeReader reader;
  response = handler_.Execute(next, Owner("ann"));
  EXPECT_THAT(response.status(), StatusIs(kInvalid, "input 'in0' is f32[2], the tensor of handle 'weights' is f32[4]"));
  next->mutable_inputs(0)->set_handle("result");
  response = handler_.Execute(next, Owner("ann"));
  ASSERT_OK(response);
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_THAT(response->outputs(0).tensor().shape(), ::testing::ElementsAre(4));
  EXPECT_EQ(response->outputs(0).tensor().data(), Vector({1, 2, 3, 4}).bytes());
  EXPECT_EQ(response->kept(0).handle(), "again");
}

TEST_F(TensorServiceTest, WhatCanNotBeKeptOrFoundIsSaidBeforeTheRun) {
  ASSERT_OK(Put("taken", Vector({1, 2, 3, 4})));
  engine_.on_execute = [](const executor::ExecuteOptions&) { return Internal("must not run"); };
  struct Case {
    std::function<void(v1::ExecuteRequest&)> edit;
    absl::StatusCode code;
    ErrorReason reason;
    std::string message;
  };
  const Case cases[] = {
      {[](v1::ExecuteRequest& r) { Keep(r, "s", "taken"); }, absl::StatusCode::kAlreadyExists,
       ErrorReason::kHandleTaken, "output 's': "},
      {[](v1::ExecuteRequest& r) { Keep(r, "s", "bad handle"); }, kInvalid, ErrorReason::kOptionInvalid,
       "output 's': a handle"},
      {[](v1::ExecuteRequest& r) { Keep(r, "q", ""); }, kInvalid, ErrorReason::kOptionInvalid, "no output 'q'"},
      {[](v1::ExecuteRequest& r) {
         Keep(r, "s", "one");
         Keep(r, "s", "two");
       },
       kInvalid, ErrorReason::kOptionInvalid, "output 's' is to be kept twice"},
      {[](v1::ExecuteRequest& r) {
         Keep(r, "s", "one");
         Keep(r, "d", "one");
       },
       absl::StatusCode::kAlreadyExists, ErrorReason::kHandleTaken, "output 'd': "},
      {[](v1::ExecuteRequest& r) { r.mutable_inputs(0)->set_handle("unknown"); }, kNotFound,
       ErrorReason::kHandleUnknown, "'unknown'"},
      {[](v1::ExecuteRequest& r) { r.mutable_inputs(1)->set_handle("none"); }, kNotFound, ErrorReason::kHandleUnknown,
       "input 'b': "},
      {[](v1::ExecuteRequest& r) { r.mutable_inputs(1)->mutable_tensor()->set_shape(0, 3); }, kInvalid,
       ErrorReason::kTensorMismatch, "16 bytes of data, not 12"},
  };
  for (const Case& c : cases) {
    auto request = Request();
    AddTensor(*request, "a", Vector({5, 6}));
    AddTensor(*request, "b", Vector({1, 2, 3, 4}));
    c.edit(*request);
    const absl::Status status = handler_.Execute(request, {}).status();
    EXPECT_THAT(status, StatusIs(c.code, c.message));
    EXPECT_EQ(GetErrorReason(status), c.reason) << c.message;
    EXPECT_EQ(List().tensors_size(), 1);
    EXPECT_EQ(engine_.tensors().stats().reserved_bytes, 0);
  }
}

TEST_F(TensorServiceTest, RunThatFailsOrIsCancelledKeepsNothing) {
  auto request = Request();
  AddTensor(*request, "a", Vector({5, 6}));
  AddTensor(*request, "b", Vector({1, 2, 3, 4}));
  Keep(*request, "s", "result");
  engine_.on_execute = [](const executor::ExecuteOptions&) { return Internal("broken"); };
  EXPECT_THAT(handler_.Execute(request, {}), StatusIs(absl::StatusCode::kInternal, "broken"));
  bool cancelled = false;
  engine_.on_execute = [&](const executor::ExecuteOptions&) {
    cancelled = true;
    return absl::OkStatus();
  };
  CallContext context;
  context.is_cancelled = [&] { return cancelled; };
  EXPECT_THAT(handler_.Execute(request, context), StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  EXPECT_EQ(List().tensors_size(), 0);
  EXPECT_EQ(engine_.tensors().stats().reserved_bytes, 0);
}

v1::ExecuteStreamRequest Header(const v1::ExecuteRequest& request) {
  v1::ExecuteStreamRequest message;
  *message.mutable_header() = request;
  return message;
}

TEST_F(TensorServiceTest, StreamedRunTakesChunksAndAnswersWithChunks) {
  std::vector<float> values(600'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor a = Vector(values);
  auto request = Request();
  AddTensor(*request, "b", Vector({1, 2, 3, 4}));  // with the header
  AddTensor(*request, "a", a, /*data=*/false);
  FakeReader reader;
  reader.Send(Header(*request));
  reader.SendTensor("a", a);
  FakeWriter writer;
  ASSERT_OK(handler_.ExecuteStream(reader, writer, {}));
  const v1::ExecuteResponse header = writer.At<v1::ExecuteStreamResponse>(0).header();
  ASSERT_EQ(header.outputs_size(), 2);
  EXPECT_EQ(header.outputs(0).name(), "s");
  EXPECT_EQ(header.outputs(0).tensor().shape(0), 600'000);
  EXPECT_TRUE(header.outputs(0).tensor().data().empty());
  EXPECT_EQ(header.timings().run_time().seconds(), 2);
  std::string data;
  ASSERT_EQ(writer.messages.size(), 5u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(writer.ChunkAt(i).name, "s");
    data += Data(writer.ChunkAt(i));
  }
  EXPECT_EQ(data, a.bytes());
  EXPECT_EQ(writer.ChunkAt(4).name, "d");
  EXPECT_EQ(Data(writer.ChunkAt(4)), Vector({1, 2, 3, 4}).bytes());
}

TEST_F(TensorServiceTest, UnnamedStreamedInputsComeInTheRequestsOrder) {
  auto request = Request();
  AddTensor(*request, "", Vector({5, 6}), false);
  AddTensor(*request, "", Vector({1, 2, 3, 4}), false);
  FakeReader reader;
  reader.Send(Header(*request));
  reader.SendTensor("", Vector({5, 6}));
  reader.SendTensor("", Vector({1, 2, 3, 4}));
  FakeWriter writer;
  ASSERT_OK(handler_.ExecuteStream(reader, writer, {}));
  EXPECT_EQ(Data(writer.ChunkAt(1)), Vector({5, 6}).bytes());
  EXPECT_EQ(Data(writer.ChunkAt(2)), Vector({1, 2, 3, 4}).bytes());
}

TEST_F(TensorServiceTest, StreamThatDoesNotFitIsRefusedBeforeTheRun) {
  engine_.on_execute = [](const executor::ExecuteOptions&) { return Internal("must not run"); };
  struct Case {
    std::function<void(FakeReader&, v1::ExecuteRequest&)> send;
    std::string message;
  };
  const Case cases[] = {
      {[](FakeReader& r, v1::ExecuteRequest& request) { r.Send(Header(request)); },
       "input 'a': the stream ends at offset 0 of 8 bytes"},
      {[](FakeReader& r, v1::ExecuteRequest& request) {
         request.mutable_inputs(1)->mutable_tensor()->set_shape(0, 5);
         r.Send(Header(request));
       },
       "input 'b' is f32[4], the tensor given is f32[5]"},
      {[](FakeReader& r, v1::ExecuteRequest& request) {
         r.Send(Header(request));
         r.SendTensor("c", Vector({1}));
       },
       "input 'c', which the header did not announce"},
      {[](FakeReader& r, v1::ExecuteRequest& request) {
         r.Send(Header(request));
         r.SendTensor("a", Vector({1, 2}));
         r.SendTensor("b", Vector({1, 2, 3, 4}));
         r.SendTensor("a", Vector({1, 2}));
       },
       "input 'a': the chunk at offset 0 should start at 8"},
  };
  for (const Case& c : cases) {
    auto request = Request();
    AddTensor(*request, "a", Vector({5, 6}), false);
    AddTensor(*request, "b", Vector({1, 2, 3, 4}), false);
    FakeReader reader;
    c.send(reader, *request);
    FakeWriter writer;
    EXPECT_THAT(handler_.ExecuteStream(reader, writer, {}), StatusIs(kInvalid, c.message));
    EXPECT_TRUE(writer.messages.empty());
  }
}

TEST_F(TensorServiceTest, MemoryForStreamedInputsIsAskedForBeforeItIsTaken) {
  std::vector<int64_t> asked;
  const ExecuteHandler handler(engine_, [&](int64_t bytes) -> absl::StatusOr<InflightBytes::Hold> {
    asked.push_back(bytes);
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "", "too many bytes");
  });
  auto request = Request();
  v1::InputTensor* a = request->add_inputs();
  a->mutable_tensor()->set_dtype(v1::DATA_TYPE_F32);
  a->mutable_tensor()->add_shape(int64_t{1} << 38);  // a terabyte
  AddTensor(*request, "", Vector({1, 2, 3, 4}), false);
  FakeReader reader;
  reader.Send(Header(*request));
  FakeWriter writer;
  EXPECT_THAT(handler.ExecuteStream(reader, writer, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "too many bytes"));
  EXPECT_THAT(asked, ::testing::ElementsAre((int64_t{1} << 40) + 16));
}

TEST_F(TensorServiceTest, ClientThatLeavesEndsTheStream) {
  ASSERT_OK(Put("w", Vector(std::vector<float>(600'000))));
  FakeWriter writer;
  writer.fail_at = 2;
  EXPECT_THAT(Get("w", writer), StatusIs(absl::StatusCode::kCancelled, "client is gone"));
  EXPECT_EQ(writer.messages.size(), 2u);
}

}  // namespace
}  // namespace fuseline::service
