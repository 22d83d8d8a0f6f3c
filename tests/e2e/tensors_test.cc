// Kept tensors and large tensors through the real server, the real command line and the client library.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/tensor/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kGraph[] =
    "graph g(x: f32[n], w: f32[n]) {\n  %t = mul(x, w)\n  %u = neg(%t)\n  return y = %t, z = %u\n}\n";

Tensor Filled(int64_t size, float value) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {size});
  float* const data = static_cast<float*>(tensor.data());
  for (int64_t i = 0; i < size; ++i) data[i] = value + static_cast<float>(i % 1000);
  return tensor;
}

class TensorsTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--cache_dir", folder_.path("cache")});
    server_ = std::make_unique<ServerProcess>(folder_.path(), flags);
    ASSERT_TRUE(server_->running()) << server_->log();
  }
  std::unique_ptr<client::Client> Connect(client::ClientOptions options = {}) {
    auto client = client::Client::Connect(server_->address(), options);
    EXPECT_OK(client);
    return *std::move(client);
  }
  static client::CompileSpec Spec() {
    auto graph = ParseGraphText(kGraph);
    EXPECT_OK(graph);
    return {.graph = std::make_shared<const Graph>(*std::move(graph)), .target = Target::Cpu()};
  }
  ProgramResult Fuseline(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", server_->address()});
    return RunProgram(arguments, input);
  }
  Json FuselineJson(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), "--json");
    const ProgramResult result = Fuseline(arguments, input);
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(json.is_structured()) << result.out << result.err << server_->log();
    return json;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(TensorsTest, CommandLinePutsRunsKeepsGetsAndDeletes) {
  Start();
  ASSERT_OK(WriteNpyFile(folder_.path("w.npy"), Filled(4, 1)));
  EXPECT_EQ(FuselineJson({"tensors", "put", folder_.path("w.npy"), "--handle", "w", "--lease", "60"})["size_bytes"],
            16);
  const ProgramResult taken = Fuseline({"tensors", "put", folder_.path("w.npy"), "--handle", "w"});
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_THAT(taken.err, HasSubstr("ALREADY_EXISTS (HANDLE_TAKEN)"));
  const Json run = FuselineJson({"run", "-", "--input", "x=@w", "--input", "w=@w", "--keep", "y=squares"}, kGraph);
  ASSERT_TRUE(run.contains("kept")) << run;
  EXPECT_EQ(run["kept"][0]["handle"], "squares");
  EXPECT_EQ(run["kept"][0]["name"], "y");
  ASSERT_EQ(run["outputs"].size(), 1u);
  EXPECT_EQ(run["outputs"][0]["name"], "z");
  EXPECT_EQ(run["outputs"][0]["first_values"], (Json{-1, -4, -9, -16}));
  const ProgramResult get = Fuseline({"tensors", "get", "squares", folder_.path("squares.npy")});
  EXPECT_EQ(get.exit_code, 0) << get.err;
  EXPECT_THAT(get.out, HasSubstr("squares: f32[4] = 1, 4, 9, 16"));
  const auto saved = ReadNpyFile(folder_.path("squares.npy"));
  ASSERT_OK(saved);
  EXPECT_EQ(saved->GetDouble(3), 16);
  EXPECT_EQ(FuselineJson({"tensors", "list"})["tensors"].size(), 2u);
  EXPECT_EQ(FuselineJson({"--owner", "someone", "tensors", "list"})["tensors"].size(), 0u);
  EXPECT_EQ(Fuseline({"tensors", "delete", "squares", "w"}).exit_code, 0);
  const ProgramResult gone = Fuseline({"tensors", "get", "w"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("NOT_FOUND (HANDLE_UNKNOWN)"));
  EXPECT_THAT(gone.err, HasSubstr("'w'"));
}

TEST_F(TensorsTest, ChainOfRunsOnHandlesByGraphAndByFingerprint) {
  Start();
  const auto client = Connect({.owner = "ann"});
  ASSERT_OK(client->PutTensor(Filled(8, 1), {.handle = "w"}));
  const auto first = client->Execute(Spec(), {{"x", {}, "w"}, {"w", {}, "w"}}, {.keep = {{"z", {"h1"}}}});
  ASSERT_OK(first);
  EXPECT_TRUE(first->summary.graph_sent);
  ASSERT_EQ(first->outputs.size(), 1u);
  EXPECT_EQ(first->outputs[0].name, "y");
  const auto second = client->Execute(Spec(), {{"x", {}, "w"}, {"w", {}, "w"}},
                                      {.outputs = {"z"}, .keep = {{"z", {"h2", absl::Minutes(2)}}}});
  ASSERT_OK(second);
  EXPECT_FALSE(second->summary.graph_sent);
  ASSERT_EQ(second->kept.size(), 1u);
  EXPECT_EQ(second->kept[0].name, "z");
  EXPECT_EQ(second->kept[0].lease, absl::Minutes(2));
  ASSERT_EQ(second->outputs.size(), 1u);
  EXPECT_EQ(second->outputs[0].name, "z");
  const auto got = client->GetTensor("h2");
  ASSERT_OK(got);
  EXPECT_EQ(got->bytes(), second->outputs[0].tensor.bytes());
  EXPECT_EQ(got->GetDouble(7), -64);
  // Another shape under the handle: the remembered fingerprint no longer fits.
  ASSERT_OK(client->DeleteTensor("w"));
  ASSERT_OK(client->PutTensor(Filled(2, 1), {.handle = "w"}));
  const auto third = client->Execute(Spec(), {{"x", {}, "w"}, {"w", {}, "w"}});
  ASSERT_OK(third);
  EXPECT_TRUE(third->summary.graph_sent);
  EXPECT_EQ(third->outputs[0].tensor.element_count(), 2);
  const auto unknown = client->Execute(Spec(), {{"x", {}, "w"}, {"w", {}, "nothing"}});
  EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kNotFound, "input 'w': "));
  EXPECT_EQ(GetErrorReason(unknown.status()), ErrorReason::kHandleUnknown);
  const auto list = client->ListTensors();
  ASSERT_OK(list);
  ASSERT_EQ(list->tensors.size(), 3u);
  EXPECT_EQ(list->tensors[0].handle, "h1");
  EXPECT_EQ(list->size_bytes, 32 + 32 + 8);
}

TEST_F(TensorsTest, LargeTensorsTravelInChunksBeyondTheMessageBound) {
  Start({"--max_message_mb", "16"});
  const auto client = Connect();
  constexpr int64_t kSize = int64_t{75} << 20;  // 300 MiB
  const Tensor x = Filled(kSize, 1);
  const Tensor w = Filled(kSize, 0);
  const absl::Time start = absl::Now();
  const auto result = client->Execute(Spec(), {{"x", x}, {"w", w}}, {.outputs = {"y"}});
  ASSERT_OK(result) << server_->log();
  EXPECT_LT(absl::Now() - start, absl::Seconds(60));
  ASSERT_EQ(result->outputs.size(), 1u);
  const Tensor& y = result->outputs[0].tensor;
  ASSERT_EQ(y.shape(), (Shape{kSize}));
  const float* const got = static_cast<const float*>(y.data());
  int64_t wrong = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    const float k = static_cast<float>(i % 1000);
    wrong += got[i] != (1 + k) * k;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(server_->log(), HasSubstr("ExecuteService/ExecuteStream"));
  const auto kept = client->PutTensor(y);
  ASSERT_OK(kept);
  const auto back = client->GetTensor(kept->handle);
  ASSERT_OK(back);
  EXPECT_TRUE(std::memcmp(back->data(), y.data(), static_cast<size_t>(y.size_bytes())) == 0);
}

TEST_F(TensorsTest, LargeOutputOfSmallInputsComesAsAStream) {
  Start({"--max_message_mb", "1"});
  const auto client = Connect();
  ASSERT_OK(client->PutTensor(Filled(1 << 20, 1), {.handle = "w"}));
  const auto result = client->Execute(Spec(), {{"x", {}, "w"}, {"w", {}, "w"}});
  ASSERT_OK(result) << server_->log();
  EXPECT_EQ(result->outputs[1].tensor.GetDouble(999), -1e6);
}

TEST_F(TensorsTest, QuotaIsSaidAndFreedByDeleting) {
  Start({"--tensor_quota_mb", "1"});
  const auto client = Connect();
  ASSERT_OK(client->PutTensor(Filled(200'000, 1), {.handle = "a"}));
  const auto refused = client->PutTensor(Filled(200'000, 1), {.handle = "b"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorReason(refused.status()), ErrorReason::kQuota);
  ASSERT_OK(client->DeleteTensor("a"));
  EXPECT_OK(client->PutTensor(Filled(200'000, 1), {.handle = "b"}));
}

}  // namespace
}  // namespace fuseline::testing
