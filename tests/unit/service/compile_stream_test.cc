// CompileStream and BatchCompile without gRPC.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/service/compile_service.h"
#include "server/service/encoded_artifacts.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
constexpr char kText[] = "graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}\n";

// Keeps what is written; fails after `failing_after` messages.
template <typename Message>
class KeepingWriter final : public MessageWriter<Message> {
 public:
  absl::Status Write(Message message) override {
    if (static_cast<int>(messages.size()) == failing_after) return absl::CancelledError("gone");
    messages.push_back(std::move(message));
    return absl::OkStatus();
  }
  std::vector<Message> messages;
  int failing_after = -1;
};

// Runs each task on a thread of its own, or refuses it.
class Threads {
 public:
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  CompileHandler::Submit Submit() {
    return [this](std::function<void()> task) -> absl::Status {
      if (submitted == most) {
        return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "", "full");
      }
      ++submitted;
      if (answered) most_unanswered = std::max(most_unanswered, submitted - answered());
      threads_.emplace_back(std::move(task));
      return absl::OkStatus();
    };
  }
  int submitted = 0;
  int most = -1;
  std::function<int()> answered;  // how many answers have been written; asked where it submits, which writes too
  int most_unanswered = 0;

 private:
  std::vector<std::thread> threads_;
};

v1::BatchCompileRequest BatchOf(int count) {
  v1::BatchCompileRequest batch;
  for (int i = 0; i < count; ++i) batch.add_requests()->mutable_spec()->set_graph_text(kText);
  return batch;
}

class CompileStreamTest : public ::testing::Test {
 protected:
  FakeEngine engine_;
  CompileHandler handler_{engine_};
};

TEST_F(CompileStreamTest, FingerprintGoesFromCacheCheckToDone) {
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  const absl::StatusOr<v1::CompileResponse> compiled = handler_.Compile(request, {});
  ASSERT_OK(compiled);
  request.mutable_spec()->set_fingerprint(compiled->summary().fingerprint());
  request.set_omit_artifact(true);
  KeepingWriter<v1::CompileStreamResponse> writer;
  ASSERT_OK(handler_.CompileStream(request, writer, {}));
  ASSERT_EQ(writer.messages.size(), 3u);
  EXPECT_EQ(writer.messages[0].stage(), v1::COMPILE_STAGE_CACHE_CHECK);
  EXPECT_EQ(writer.messages[1].stage(), v1::COMPILE_STAGE_DONE);
  EXPECT_FALSE(writer.messages[2].response().has_artifact());
  EXPECT_EQ(writer.messages[2].response().summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
}

TEST_F(CompileStreamTest, ErrorEndsTheStreamWithoutDone) {
  engine_.error = Internal("no");
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  KeepingWriter<v1::CompileStreamResponse> writer;
  EXPECT_THAT(handler_.CompileStream(request, writer, {}), StatusIs(absl::StatusCode::kInternal, "no"));
  EXPECT_EQ(writer.messages.back().stage(), v1::COMPILE_STAGE_COMPILING);
}

TEST_F(CompileStreamTest, ClientThatIsGoneEndsTheWait) {
  engine_.block_compile = true;
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  KeepingWriter<v1::CompileStreamResponse> writer;
  writer.failing_after = 1;
  EXPECT_THAT(handler_.CompileStream(request, writer, {}), StatusIs(absl::StatusCode::kCancelled, "gone"));
}

TEST_F(CompileStreamTest, BatchAnswersEachOnceAndFailuresSayWhy) {
  v1::BatchCompileRequest batch = BatchOf(200);
  batch.mutable_requests(7)->mutable_spec()->set_graph_text("graph g(x: f32[4]) {\n  return y = ?\n}\n");
  batch.mutable_requests(8)->mutable_spec()->set_target("tpu");
  Threads threads;
  KeepingWriter<v1::BatchCompileResponse> writer;
  threads.answered = [&] { return static_cast<int>(writer.messages.size()); };
  ASSERT_OK(handler_.BatchCompile(batch, writer, threads.Submit(), {}));
  std::map<int, int> seen;
  for (const v1::BatchCompileResponse& answer : writer.messages) {
    ++seen[answer.index()];
    EXPECT_EQ(answer.has_failure(), answer.index() == 7 || answer.index() == 8) << answer.index();
    if (answer.index() == 7) {
      EXPECT_EQ(answer.failure().code(), 3);
      EXPECT_EQ(answer.failure().reason(), "GRAPH_SYNTAX");
      EXPECT_NE(answer.failure().message(), "");
    }
  }
  EXPECT_EQ(seen.size(), 200u);
  EXPECT_EQ(writer.messages.size(), 200u);
  EXPECT_EQ(threads.most_unanswered, CompileHandler::kBatchWindow);
}

TEST_F(CompileStreamTest, FullQueueFailsItemsAndNotTheBatch) {
  Threads threads;
  threads.most = 3;
  KeepingWriter<v1::BatchCompileResponse> writer;
  ASSERT_OK(handler_.BatchCompile(BatchOf(10), writer, threads.Submit(), {}));
  int refused = 0;
  for (const v1::BatchCompileResponse& answer : writer.messages) {
    if (!answer.has_failure()) continue;
    ++refused;
    EXPECT_EQ(answer.failure().code(), 8);
    EXPECT_EQ(answer.failure().reason(), "QUEUE_FULL");
  }
  EXPECT_EQ(writer.messages.size(), 10u);
  EXPECT_EQ(refused, 7);
}

TEST_F(CompileStreamTest, BatchWhoseClientIsGoneStopsWhatWaits) {
  engine_.block_compile = true;
  v1::BatchCompileRequest batch = BatchOf(100);
  batch.mutable_requests(0)->mutable_spec()->set_graph_text(
      "nonsense");  // the one answer that comes, and fails to be written
  Threads threads;
  KeepingWriter<v1::BatchCompileResponse> writer;
  writer.failing_after = 0;
  EXPECT_THAT(handler_.BatchCompile(batch, writer, threads.Submit(), {}),
              StatusIs(absl::StatusCode::kCancelled, "gone"));
  EXPECT_LE(threads.submitted, CompileHandler::kBatchWindow + 1);
}

TEST_F(CompileStreamTest, BatchOverTheLimitIsRefusedAndAnEmptyOneIsNot) {
  Threads threads;
  KeepingWriter<v1::BatchCompileResponse> writer;
  EXPECT_THAT(handler_.BatchCompile(BatchOf(1001), writer, threads.Submit(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "over the limit of 1000"));
  EXPECT_OK(handler_.BatchCompile({}, writer, threads.Submit(), {}));
  EXPECT_TRUE(writer.messages.empty());
}

v1::CompileResponse Parsed(grpc::ByteBuffer bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string all;
  for (const grpc::Slice& slice : slices) all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  v1::CompileResponse response;
  EXPECT_TRUE(response.ParseFromString(all));
  return response;
}

TEST_F(CompileStreamTest, EncodedPartsEqualTheMessageAndStayWithinTheirRoom) {
  EncodedArtifacts encoded(2000);
  for (int i = 0; i < 50; ++i) {
    v1::CompileSpec spec;
    spec.set_graph_text(absl::StrCat("graph g(x: f32[", i + 1, "]) {\n  %t = neg(x)\n  return y = %t\n}\n"));
    CompileRequest request;
    request.graph = *ParseGraphText(spec.graph_text(), engine_.limits());
    const absl::StatusOr<CompileResult> result = engine_.Compile(request, {});
    ASSERT_OK(result);
    for (const ArtifactParts& parts :
         {ArtifactParts{true, false}, ArtifactParts{false, false}, ArtifactParts{false, true},
          ArtifactParts{true, true}, ArtifactParts{false, false}}) {
      v1::CompileResponse want;
      EncodeCompileResponse(*result, parts, &want);
      EXPECT_EQ(Parsed(encoded.Response(*result, parts)).SerializeAsString(), want.SerializeAsString());
    }
    EXPECT_LE(encoded.size_bytes(), 2000);
  }
  EXPECT_GT(encoded.size_bytes(), 0);
}

TEST_F(CompileStreamTest, AnotherBuildsArtifactIsEncodedAnew) {
  EncodedArtifacts encoded(1 << 20);
  CompileResult result;
  auto artifact = std::make_shared<Artifact>();
  artifact->report.intermediates_removed = 1;
  result.artifact = artifact;
  EXPECT_EQ(Parsed(encoded.Response(result, {})).report().intermediates_removed_count(), 1);
  artifact = std::make_shared<Artifact>();
  artifact->report.intermediates_removed = 2;
  result.artifact = artifact;
  EXPECT_EQ(Parsed(encoded.Response(result, {})).report().intermediates_removed_count(), 2);
}

}  // namespace
}  // namespace fuseline::service
