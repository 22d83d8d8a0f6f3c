// A graph with a symbol, run at many sizes through the real server: sent once, compiled for few, right at each.
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/http_get.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

constexpr int64_t kWidth = 48;

class SymbolicSizesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Start();
    const auto info = client_->GetServerInfo();
    ASSERT_OK(info);
    for (const client::TargetInfo& target : info->targets) {
      if (target.target == "cpu" && !target.can_compile) GTEST_SKIP() << target.reason;
    }
    absl::StatusOr<Graph> graph = ParseGraphText(
        "graph g(x: f32[batch, 48], w: f32[48]) {\n  %m = mean(x) {dims = [1], keepdim = true}\n  %d = sub(x, %m)\n"
        "  %y = mul(%d, w)\n  return y = %y\n}\n");
    ASSERT_OK(graph);
    spec_.graph = std::make_shared<const Graph>(*std::move(graph));
    spec_.target = Target::Cpu();
  }

  void Start() {
    server_ = std::make_unique<ServerProcess>(
        folder_.path(), std::vector<std::string>{"--cache_dir", folder_.path() + "/cache", "--no-cuda",
                                                 "--metrics_listen", "127.0.0.1:0", "--log_level=info"});
    ASSERT_TRUE(server_->running()) << server_->log();
    auto client = client::Client::Connect(server_->address(), {});
    ASSERT_OK(client);
    client_ = *std::move(client);
  }

  // Whether the graph was sent. Each row is 1 to 48 and some, so that every element is known exactly.
  bool RunAt(int64_t batch) {
    Tensor x = Tensor::Allocate(DType::kF32, {batch, kWidth});
    Tensor w = Tensor::Allocate(DType::kF32, {kWidth});
    for (int64_t i = 0; i < batch * kWidth; ++i) x.SetDouble(i, static_cast<double>(i % kWidth + i / kWidth));
    for (int64_t i = 0; i < kWidth; ++i) w.SetDouble(i, 2);
    const auto result = client_->Execute(spec_, {{"x", x}, {"w", w}});
    EXPECT_OK(result) << batch;
    if (!result.ok()) return false;
    const Tensor& y = result->outputs[0].tensor;
    EXPECT_EQ(y.shape(), (Shape{batch, kWidth}));
    for (int64_t i = 0; i < y.element_count(); ++i) {
      EXPECT_EQ(y.GetDouble(i), static_cast<double>(2 * (i % kWidth) - (kWidth - 1))) << batch << " at " << i;
      if (HasFailure()) break;
    }
    return result->summary.graph_sent;
  }

  // A sample of the metrics.
  int KernelsCompiled() {
    const std::string log = server_->log();
    const size_t at = log.find("metrics_port=");
    EXPECT_NE(at, std::string::npos);
    const std::string text = HttpGet(std::atoi(log.c_str() + at + std::string("metrics_port=").size()), "/metrics");
    const std::string sample = "fuseline_kernels_total{origin=\"compiled\"} ";
    const size_t begin = text.find(sample);
    EXPECT_NE(begin, std::string::npos) << text;
    return begin == std::string::npos ? -1 : std::atoi(text.c_str() + begin + sample.size());
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
  client::CompileSpec spec_;
};

TEST_F(SymbolicSizesTest, GraphIsSentOnceAndAFewKernelsServeAllSizes) {
  bool first = true;
  for (const int64_t batch : {1, 2, 7, 8, 64, 1000}) {
    EXPECT_EQ(RunAt(batch), first) << batch;
    first = false;
  }
  // For one row, and for more.
  EXPECT_LE(KernelsCompiled(), 2);
}

TEST_F(SymbolicSizesTest, FingerprintOutlivesTheServer) {
  EXPECT_TRUE(RunAt(5));
  Tensor x = Tensor::Allocate(DType::kF32, {3, kWidth});
  Tensor w = Tensor::Allocate(DType::kF32, {kWidth});
  for (int64_t i = 0; i < 3 * kWidth; ++i) x.SetDouble(i, 1);
  for (int64_t i = 0; i < kWidth; ++i) w.SetDouble(i, 1);
  const auto before = client_->Execute(spec_, {{"x", x}, {"w", w}});
  ASSERT_OK(before);
  ASSERT_TRUE(before->summary.symbolic_fingerprint.has_value());
  EXPECT_EQ(server_->Stop(), 0);
  Start();
  // No graph at all: by fingerprint, at a size that was never compiled.
  client::CompileSpec by_fingerprint;
  by_fingerprint.fingerprint = before->summary.symbolic_fingerprint;
  Tensor wide = Tensor::Allocate(DType::kF32, {33, kWidth});
  for (int64_t i = 0; i < 33 * kWidth; ++i) wide.SetDouble(i, static_cast<double>(i % kWidth));
  const auto after = client_->Execute(by_fingerprint, {{"", wide}, {"", w}});
  ASSERT_OK(after);
  EXPECT_EQ(after->outputs[0].tensor.GetDouble(kWidth), -23.5);
  // A shape that does not fit is named.
  const auto wrong = client_->Execute(by_fingerprint, {{"", w}, {"", w}});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fuseline::testing
