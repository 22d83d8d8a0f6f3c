// Bad inputs over real gRPC: each is refused with the right code and reason, naming what is wrong, and the same server
// answers a good request rightly after each.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/error_details.h"
#include "fuseline/v1/compile_service.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/service/server.h"
#include "tests/conformance/bad_inputs.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

// Sends the messages to the method, whatever its kind, and reads what comes back.
absl::Status Send(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  const std::vector<std::string>& messages, std::vector<std::string>* answers = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  // "fuseline.v1.CompileService.Compile" -> "/fuseline.v1.CompileService/Compile".
  const size_t dot = method.rfind('.');
  const auto call =
      stub.PrepareCall(&context, absl::StrCat("/", method.substr(0, dot), "/", method.substr(dot + 1)), &queue);
  call->StartCall(nullptr);
  bool open = done();
  for (size_t i = 0; open && i < messages.size(); ++i) {
    const grpc::Slice slice(messages[i]);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    open = done();
  }
  if (open) {
    call->WritesDone(nullptr);
    done();
  }
  while (true) {
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    if (!done()) break;
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (answer.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    if (answers != nullptr) answers->push_back(std::move(bytes));
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  done();
  if (status.ok()) return absl::OkStatus();
  return client::DecodeError(status.error_code(), status.error_message(), status.error_details());
}

class BadInputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.executor.cpu_devices = 1;
    options.executor.cpu_threads = 1;
    options.executor.use_cuda = false;
    options.compile_threads = 1;
    options.limits = {.max_nodes = kMaxNodes,
                      .max_rank = kMaxRank,
                      .max_elements = kMaxElements,
                      .max_constant_bytes = kMaxConstantBytes,
                      .max_text_bytes = kMaxTextBytes};
    options.tensors.owner_quota_bytes = kTensorQuotaBytes;
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
    ASSERT_OK(engine);
    engine_ = *std::move(engine);
    for (const TargetInfo& target : engine_->Info().targets) {
      if (target.target == Target::Cpu() && !target.can_compile) GTEST_SKIP() << target.reason;
    }
    service::ServerOptions server_options;
    server_options.listen = "127.0.0.1:0";
    server_options.max_message_bytes = kMaxMessageBytes;
    absl::StatusOr<std::unique_ptr<service::Server>> server = service::Server::Start(*engine_, server_options);
    ASSERT_OK(server);
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
  }

  // y = 2 x + 1, by the same server.
  ::testing::AssertionResult AnswersRightly() {
    static constexpr float kIn[] = {1, -2, 0.5, 1000};
    static constexpr float kOut[] = {3, -3, 2, 2001};
    v1::ExecuteRequest request;
    request.mutable_spec()->set_target("cpu");
    const BadInput good = Request("good", "CompileService.Compile", {absl::StrCat("spec { ", GoodText(), " }")},
                                  ErrorReason::kUnspecified, "");
    v1::CompileRequest compile;
    if (!compile.ParseFromString(good.messages[0])) return ::testing::AssertionFailure() << "the good request is bad";
    *request.mutable_spec() = compile.spec();
    v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->add_shape(4);
    tensor->set_data(kIn, sizeof(kIn));
    std::vector<std::string> answers;
    const absl::Status status =
        Send(channel_, "fuseline.v1.ExecuteService.Execute", {request.SerializeAsString()}, &answers);
    if (!status.ok()) return ::testing::AssertionFailure() << status;
    v1::ExecuteResponse response;
    if (answers.size() != 1 || !response.ParseFromString(answers[0]) || response.outputs_size() != 1)
      return ::testing::AssertionFailure() << "no output";
    const std::string& data = response.outputs(0).tensor().data();
    if (data.size() != sizeof(kOut) || std::memcmp(data.data(), kOut, sizeof(kOut)) != 0)
      return ::testing::AssertionFailure() << "wrong numbers";
    return ::testing::AssertionSuccess();
  }

  void Check(const std::vector<BadInput>& inputs) {
    std::set<std::string> names;
    for (const BadInput& input : inputs) {
      SCOPED_TRACE(input.name);
      EXPECT_TRUE(names.insert(input.name).second) << "two rows of this name";
      const absl::Status status = Send(channel_, input.method, input.messages);
      EXPECT_EQ(status.code(), CodeOf(input.reason)) << status;
      EXPECT_EQ(ErrorReasonName(GetErrorReason(status)), ErrorReasonName(input.reason)) << status;
      EXPECT_NE(input.text, "") << "say what the message must name";
      EXPECT_TRUE(absl::StrContains(status.message(), input.text)) << status << "\nwithout: " << input.text;
      EXPECT_LT(status.message().size(), 5000u) << "over what gRPC's metadata hold";
      EXPECT_TRUE(AnswersRightly());
    }
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<service::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(BadInputsTest, MalformedTextsAreRefused) { Check(BadGraphSyntax()); }
TEST_F(BadInputsTest, GraphsOfWrongStructureAreRefused) { Check(BadGraphStructure()); }
TEST_F(BadInputsTest, GraphsOfWrongTypesAreRefused) { Check(BadTypes()); }
TEST_F(BadInputsTest, MalformedMessagesAreRefused) { Check(BadGraphMessages()); }
TEST_F(BadInputsTest, WrongRequestsAreRefused) { Check(BadRequests()); }
TEST_F(BadInputsTest, WrongTensorsAreRefused) { Check(BadTensors()); }
TEST_F(BadInputsTest, WrongStreamsAreRefused) {
  const BadInput put = Request("taken", "ExecuteService.PutTensor",
                               {absl::StrCat("header { handle: '", kTakenHandle, "' dtype: DATA_TYPE_I32 shape: 2 }"),
                                "chunk { data: '01234567' }"},
                               ErrorReason::kUnspecified, "");
  ASSERT_OK(Send(channel_, put.method, put.messages));
  Check(BadStreams());
  // None has left anything behind.
  EXPECT_EQ(engine_->tensors().stats().tensors, 1);
  EXPECT_EQ(engine_->tensors().stats().size_bytes, 8);
}

TEST_F(BadInputsTest, MessagesOverTheLimitAreRefused) {
  v1::ExecuteRequest request;
  v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_data(std::string(static_cast<size_t>(kMaxMessageBytes), 'x'));
  for (const char* method : {"fuseline.v1.ExecuteService.Execute", "fuseline.v1.CompileService.Verify",
                             "fuseline.v1.CompileService.BatchCompile", "fuseline.v1.ExecuteService.PutTensor"}) {
    const absl::Status status = Send(channel_, method, {request.SerializeAsString()});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << method << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "larger than max")) << method << ": " << status;
    EXPECT_TRUE(AnswersRightly()) << method;
  }
}

TEST_F(BadInputsTest, BytesThatAreNoMessageAreRefused) {
  for (const char* method :
       {"CompileService.Compile", "CompileService.CompileStream", "CompileService.BatchCompile",
        "CompileService.Explain", "CompileService.Verify", "ExecuteService.Execute", "ExecuteService.Benchmark",
        "ExecuteService.GetTensor", "ExecuteService.DeleteTensor", "AdminService.EvictCache"}) {
    for (const std::string& garbage : {std::string("\x0a\xff\xff\xff\xff\x0f"), std::string("\x0a\x05xy"),
                                       std::string(1000, '\xff'), std::string(999, '\x08')}) {
      const absl::Status status = Send(channel_, absl::StrCat("fuseline.v1.", method), {garbage});
      // gRPC itself says UNIMPLEMENTED where it decodes the message.
      EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
                  status.code() == absl::StatusCode::kUnimplemented)
          << method << ": " << status;
    }
    EXPECT_TRUE(AnswersRightly()) << method;
  }
}

TEST_F(BadInputsTest, MethodsThatAreNotThereAreRefused) {
  for (const char* method : {"fuseline.v1.CompileService.Decompile", "fuseline.v2.CompileService.Compile", "a.b"}) {
    EXPECT_THAT(Send(channel_, method, {""}), StatusIs(absl::StatusCode::kUnimplemented, "")) << method;
    EXPECT_TRUE(AnswersRightly()) << method;
  }
}

TEST_F(BadInputsTest, BadGraphsOfABatchCostTheirOwnAnswersAlone) {
  // Good and bad ones in turn.
  const std::vector<BadInput> bad = BadTypes();
  v1::BatchCompileRequest batch;
  for (const BadInput& input : bad) {
    ASSERT_TRUE(batch.add_requests()->ParseFromString(input.messages[0]));
    v1::CompileRequest* good = batch.add_requests();
    good->mutable_spec()->set_graph_text(GraphText("x: f32[4]", "%a = neg(x)"));
    good->mutable_spec()->set_target("cpu");
    good->set_omit_artifact(true);
  }
  std::vector<std::string> answers;
  ASSERT_OK(Send(channel_, "fuseline.v1.CompileService.BatchCompile", {batch.SerializeAsString()}, &answers));
  std::set<int> answered;
  for (const std::string& bytes : answers) {
    v1::BatchCompileResponse answer;
    ASSERT_TRUE(answer.ParseFromString(bytes));
    EXPECT_TRUE(answered.insert(answer.index()).second) << "two answers to " << answer.index();
    if (answer.index() % 2 == 1) {
      EXPECT_EQ(answer.result_case(), v1::BatchCompileResponse::kResponse) << answer.ShortDebugString();
      continue;
    }
    const BadInput& input = bad[static_cast<size_t>(answer.index()) / 2];
    EXPECT_EQ(answer.failure().code(), static_cast<int>(CodeOf(input.reason))) << input.name;
    EXPECT_EQ(answer.failure().reason(), std::string(ErrorReasonName(input.reason))) << input.name;
    EXPECT_TRUE(absl::StrContains(answer.failure().message(), input.text)) << answer.failure().message();
    EXPECT_NE(answer.failure().subject(), "") << input.name;
  }
  EXPECT_EQ(answered.size(), 2 * bad.size());
  EXPECT_TRUE(AnswersRightly());
}

}  // namespace
}  // namespace fuseline::testing
