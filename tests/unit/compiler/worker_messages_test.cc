#include "server/compiler/worker_messages.h"

#include <string>

#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::StatusIs;

WorkerSetup TestSetup() {
  WorkerSetup setup;
  setup.compiler.kind = CompilerSpec::Kind::kHost;
  setup.compiler.nvrtc_search_paths = {"/a", ""};
  setup.compiler.host_compiler = "g++";
  setup.memory_limit_bytes = 5ll << 32;
  setup.scratch_folder = "/tmp/x";
  setup.identity = "g++ 12";
  return setup;
}

KernelSource Source() { return {"entry", "the text", Target::Cuda(90, true), true}; }

WorkerReply Reply() {
  WorkerReply reply;
  reply.status = MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, "entry", "it failed");
  reply.out_of_memory = true;
  reply.identity_changed = true;
  reply.text = "some ptx";
  reply.image = {ImageFormat::kCubin, "entry", std::string("\0\1\2", 3), "the text", {1, 2, 3, 4, 1ll << 40}};
  reply.resident_bytes = 6ll << 32;
  return reply;
}

TEST(WorkerMessagesTest, SetupComesBack) {
  WorkerSetup got;
  ASSERT_TRUE(DecodeSetup(EncodeSetup(TestSetup()), got));
  EXPECT_EQ(got.compiler.kind, CompilerSpec::Kind::kHost);
  EXPECT_EQ(got.compiler.nvrtc_search_paths, TestSetup().compiler.nvrtc_search_paths);
  EXPECT_EQ(got.compiler.host_compiler, "g++");
  EXPECT_EQ(got.memory_limit_bytes, 5ll << 32);
  EXPECT_EQ(got.scratch_folder, "/tmp/x");
  EXPECT_EQ(got.identity, "g++ 12");
}

TEST(WorkerMessagesTest, RequestComesBack) {
  for (const auto kind : {WorkerRequest::Kind::kCompile, WorkerRequest::Kind::kPtx}) {
    WorkerRequest got;
    ASSERT_TRUE(DecodeRequest(EncodeRequest({kind, Source()}), got));
    EXPECT_EQ(got.kind, kind);
    EXPECT_EQ(got.source.entry, "entry");
    EXPECT_EQ(got.source.text, "the text");
    EXPECT_EQ(got.source.target, Target::Cuda(90, true));
    EXPECT_TRUE(got.source.fast_math);
  }
  WorkerRequest got;
  ASSERT_TRUE(DecodeRequest(EncodeRequest({}), got));
  EXPECT_EQ(got.kind, WorkerRequest::Kind::kDescribe);
}

TEST(WorkerMessagesTest, ReplyComesBack) {
  const std::string bytes = EncodeReply(Reply(), Source());
  WorkerReply got;
  ASSERT_TRUE(DecodeReply(bytes, Source(), got));
  EXPECT_EQ(got.status, Reply().status);
  EXPECT_EQ(GetErrorReason(got.status), ErrorReason::kCompilerFailed);
  EXPECT_EQ(GetErrorSubject(got.status), "entry");
  EXPECT_TRUE(got.out_of_memory);
  EXPECT_TRUE(got.identity_changed);
  EXPECT_EQ(got.text, "some ptx");
  EXPECT_EQ(got.image.format, ImageFormat::kCubin);
  EXPECT_EQ(got.image.entry, "entry");
  EXPECT_EQ(got.image.source, "the text");
  EXPECT_EQ(got.image.bytes, std::string("\0\1\2", 3));
  EXPECT_EQ(got.image.resources.registers, 1);
  EXPECT_EQ(got.image.resources.stack_bytes, 1ll << 40);
  EXPECT_EQ(got.resident_bytes, 6ll << 32);
  // The source is not sent back.
  EXPECT_EQ(bytes.find("the text"), std::string::npos);
}

TEST(WorkerMessagesTest, WhatIsCutOffLongerOrOutOfRangeIsRefused) {
  const std::string setup = EncodeSetup(TestSetup());
  const std::string request = EncodeRequest({WorkerRequest::Kind::kCompile, Source()});
  const std::string reply = EncodeReply(Reply(), Source());
  WorkerSetup s;
  WorkerRequest q;
  WorkerReply r;
  for (size_t n = 0; n < setup.size(); ++n) EXPECT_FALSE(DecodeSetup(setup.substr(0, n), s)) << n;
  for (size_t n = 0; n < request.size(); ++n) EXPECT_FALSE(DecodeRequest(request.substr(0, n), q)) << n;
  for (size_t n = 0; n < reply.size(); ++n) EXPECT_FALSE(DecodeReply(reply.substr(0, n), Source(), r)) << n;
  EXPECT_FALSE(DecodeSetup(setup + "x", s));
  EXPECT_FALSE(DecodeRequest(request + "x", q));
  EXPECT_FALSE(DecodeReply(reply + "x", Source(), r));
  for (const char kind : {'\0', '\4', '\xff'}) {
    EXPECT_FALSE(DecodeSetup(kind + setup.substr(1), s));
    EXPECT_FALSE(DecodeRequest(kind + request.substr(1), q));
  }
}

TEST(WorkerMessagesTest, AnyByteThatIsChangedIsDecodedOrRefusedButNeverFatal) {
  const std::string reply = EncodeReply(Reply(), Source());
  int refused = 0;
  for (size_t i = 0; i < reply.size(); ++i) {
    std::string changed = reply;
    changed[i] = static_cast<char>(changed[i] ^ 0xff);
    WorkerReply got;
    if (!DecodeReply(changed, Source(), got)) ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST(WorkerMessagesTest, StatusOkHasNoReason) {
  WorkerReply reply = Reply();
  reply.status = absl::OkStatus();
  WorkerReply got;
  ASSERT_TRUE(DecodeReply(EncodeReply(reply, Source()), Source(), got));
  EXPECT_TRUE(got.status.ok());
  reply.status = absl::UnavailableError("no reason");
  ASSERT_TRUE(DecodeReply(EncodeReply(reply, Source()), Source(), got));
  EXPECT_THAT(got.status, StatusIs(absl::StatusCode::kUnavailable, "no reason"));
  EXPECT_EQ(GetErrorReason(got.status), ErrorReason::kUnspecified);
}

}  // namespace
}  // namespace fuseline::compiler
