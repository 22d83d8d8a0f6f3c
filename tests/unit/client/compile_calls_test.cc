// Client's calls that compile, against a scripted service.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/client/copy_response.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::StatusIs;

class FakeCompile : public v1::CompileService::Service {
 public:
  int breaks = 0;  // how many of the next streams end with UNAVAILABLE half-way

  grpc::Status CompileStream(grpc::ServerContext*, const v1::CompileRequest* request,
                             grpc::ServerWriter<v1::CompileStreamResponse>* writer) override {
    absl::MutexLock lock(&mutex_);
    by_fingerprint_.push_back(request->spec().has_fingerprint());
    for (const v1::CompileStage stage : {v1::COMPILE_STAGE_CACHE_CHECK, v1::COMPILE_STAGE_DONE}) {
      v1::CompileStreamResponse message;
      message.set_stage(stage);
      writer->Write(message);
      if (breaks > 0) {
        --breaks;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
      }
    }
    v1::CompileStreamResponse message;
    *message.mutable_response() = CopyResponse();
    writer->Write(message);
    return grpc::Status::OK;
  }

  // The last request first; graphs named "bad" fail.
  grpc::Status BatchCompile(grpc::ServerContext*, const v1::BatchCompileRequest* request,
                            grpc::ServerWriter<v1::BatchCompileResponse>* writer) override {
    absl::MutexLock lock(&mutex_);
    batch_sizes_.push_back(request->requests_size());
    for (int i = request->requests_size() - 1; i >= 0; --i) {
      v1::BatchCompileResponse answer;
      answer.set_index(i);
      if (request->requests(i).spec().graph().name() == "bad") {
        answer.mutable_failure()->set_code(3);
        answer.mutable_failure()->set_message("node '%t': wrong");
        answer.mutable_failure()->set_reason("GRAPH_TYPE_MISMATCH");
        answer.mutable_failure()->set_subject("%t");
      } else {
        *answer.mutable_response() = CopyResponse();
      }
      writer->Write(answer);
      if (breaks > 0 && i == request->requests_size() / 2) {
        --breaks;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
      }
    }
    return grpc::Status::OK;
  }

  std::vector<bool> by_fingerprint() {
    absl::MutexLock lock(&mutex_);
    return by_fingerprint_;
  }
  std::vector<int> batch_sizes() {
    absl::MutexLock lock(&mutex_);
    return batch_sizes_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<bool> by_fingerprint_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> batch_sizes_ ABSL_GUARDED_BY(mutex_);
};

class CompileCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ClientOptions options;
    options.initial_backoff = absl::Milliseconds(1);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(absl::StrCat("127.0.0.1:", port), options);
    ASSERT_OK(client);
    client_ = *std::move(client);
  }
  static CompileSpec Spec(const std::string& name = "g") {
    CompileSpec spec;
    spec.graph = std::make_shared<Graph>(
        *ParseGraphText(absl::StrCat("graph ", name, "(x: f32[2]) {\n  return y = x\n}\n"), GraphLimits()));
    return spec;
  }

  FakeCompile service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(CompileCallsTest, StagesAreHeardAndTheSecondCallGoesByFingerprint) {
  std::vector<CompileStage> stages;
  const auto listen = [&](CompileStage stage) { stages.push_back(stage); };
  absl::StatusOr<CompileResult> result = client_->Compile(Spec(), false, listen);
  ASSERT_OK(result);
  EXPECT_TRUE(result->summary.graph_sent);
  EXPECT_EQ(result->artifact->plan.inputs[0].name, "in0");
  EXPECT_EQ(stages, (std::vector<CompileStage>{CompileStage::kCacheCheck, CompileStage::kDone}));
  result = client_->Compile(Spec(), false, listen);
  ASSERT_OK(result);
  EXPECT_FALSE(result->summary.graph_sent);
  EXPECT_EQ(service_.by_fingerprint(), (std::vector<bool>{false, true}));
}

TEST_F(CompileCallsTest, BrokenStreamIsMadeAgain) {
  service_.breaks = 2;
  int heard = 0;
  ASSERT_OK(client_->Compile(Spec(), false, [&](CompileStage) { ++heard; }));
  EXPECT_EQ(heard, 4);
  EXPECT_EQ(service_.by_fingerprint().size(), 3u);
}

TEST_F(CompileCallsTest, BatchGivesEachItsResultByPosition) {
  std::map<size_t, absl::Status> results;
  ASSERT_OK(client_->CompileBatch({Spec("a"), Spec("bad"), Spec("c")}, [&](size_t i, absl::StatusOr<CompileResult> r) {
    EXPECT_TRUE(results.emplace(i, r.status()).second);
  }));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_OK(results[0]);
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kInvalidArgument, "node '%t': wrong"));
  EXPECT_EQ(GetErrorReason(results[1]), ErrorReason::kGraphTypeMismatch);
  EXPECT_EQ(GetErrorSubject(results[1]), "%t");
  EXPECT_OK(results[2]);
}

TEST_F(CompileCallsTest, LargeBatchIsSplitAndABrokenOneGoesOnWithWhatIsOpen) {
  service_.breaks = 1;
  const std::vector<CompileSpec> specs(1100, Spec());
  std::vector<int> seen(specs.size(), 0);
  ASSERT_OK(client_->CompileBatch(specs, [&](size_t i, absl::StatusOr<CompileResult> result) {
    ASSERT_OK(result);
    ++seen[i];
  }));
  EXPECT_EQ(seen, std::vector<int>(specs.size(), 1));
  EXPECT_EQ(service_.batch_sizes(), (std::vector<int>{1000, 500, 100}));
}

TEST_F(CompileCallsTest, SpecWithNothingIsRefusedBeforeAnythingIsSent) {
  EXPECT_THAT(client_->CompileBatch({CompileSpec()}, [](size_t, absl::StatusOr<CompileResult>) {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "neither a graph nor a fingerprint"));
  EXPECT_TRUE(service_.batch_sizes().empty());
}

}  // namespace
}  // namespace fuseline::client
