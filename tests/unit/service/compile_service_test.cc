#include "server/service/compile_service.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
constexpr char kText[] = "graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}\n";

v1::CompileRequest CompileText() {
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  return request;
}

TEST(CompileServiceTest, CompileAnswersSummaryReportAndArtifact) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  absl::StatusOr<v1::CompileResponse> response = handler.Compile(CompileText(), {});
  ASSERT_OK(response);
  EXPECT_EQ(response->summary().fingerprint().size(), 32u);
  EXPECT_EQ(response->summary().outcome(), v1::CACHE_OUTCOME_MISS);
  EXPECT_EQ(response->summary().elapsed().seconds(), 1);
  EXPECT_EQ(response->summary().elapsed().nanos(), 500'000'000);
  EXPECT_EQ(response->summary().build_time().nanos(), 250'000'000);
  EXPECT_EQ(response->summary().target(), "cpu");
  EXPECT_EQ(response->report().kernels(0).unfused_kernel_count(), 3);
  ASSERT_TRUE(response->has_artifact());
  EXPECT_EQ(response->artifact().kernels(0).image(), "image");
  EXPECT_EQ(response->artifact().kernels(0).source(), "");
  EXPECT_FALSE(response->artifact().has_report());
  response = handler.Compile(CompileText(), {});
  ASSERT_OK(response);
  EXPECT_EQ(response->summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
  EXPECT_EQ(response->summary().build_time().nanos(), 0);
}

TEST(CompileServiceTest, ArtifactAndSourceAreThereAsAsked) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  v1::CompileRequest request = CompileText();
  request.set_include_source(true);
  absl::StatusOr<v1::CompileResponse> response = handler.Compile(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(response->artifact().kernels(0).source(), "void f();");
  request.set_omit_artifact(true);
  response = handler.Compile(request, {});
  ASSERT_OK(response);
  EXPECT_FALSE(response->has_artifact());
  EXPECT_EQ(response->report().kernels_size(), 1);
}

TEST(CompileServiceTest, FingerprintFindsWhatWasCompiledAndNothingElse) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  const absl::StatusOr<v1::CompileResponse> compiled = handler.Compile(CompileText(), {});
  ASSERT_OK(compiled);
  v1::CompileRequest request;
  request.mutable_spec()->set_fingerprint(compiled->summary().fingerprint());
  const absl::StatusOr<v1::CompileResponse> found = handler.Compile(request, {});
  ASSERT_OK(found);
  EXPECT_EQ(found->summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
  EXPECT_EQ(found->artifact().SerializeAsString(), compiled->artifact().SerializeAsString());
  request.mutable_spec()->set_fingerprint(std::string(32, 'x'));
  EXPECT_THAT(handler.Compile(request, {}), StatusIs(absl::StatusCode::kNotFound, "no artifact"));
}

TEST(CompileServiceTest, EngineErrorComesBackUnchanged) {
  FakeEngine engine;
  engine.error = InvalidArgument(ErrorReason::kGraphTypeMismatch, "%t", "node '%t': no");
  const absl::StatusOr<v1::CompileResponse> response = CompileHandler(engine).Compile(CompileText(), {});
  EXPECT_EQ(response.status(), engine.error);
}

TEST(CompileServiceTest, ExplainAddsStagesAndKeyWhenAsked) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  v1::ExplainRequest request;
  request.mutable_spec()->set_graph_text(kText);
  absl::StatusOr<v1::ExplainResponse> response = handler.Explain(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(response->report().kernels_size(), 1);
  EXPECT_EQ(response->stages_size(), 0);
  EXPECT_EQ(response->key_fields_size(), 0);
  request.set_include_stages(true);
  request.set_include_key(true);
  response = handler.Explain(request, {});
  ASSERT_OK(response);
  ASSERT_EQ(response->stages_size(), 2);
  EXPECT_EQ(response->stages(0).name(), "graph");
  EXPECT_EQ(response->stages(0).text(), kText);
  ASSERT_EQ(response->key_fields_size(), 2);
  EXPECT_EQ(response->key_fields(1).name(), "target");
  EXPECT_EQ(response->key_fields(1).value(), "cpu");
  EXPECT_EQ(response->key_fields(0).digest(), "def");
  const std::string fingerprint = response->summary().fingerprint();
  request.mutable_spec()->set_fingerprint(fingerprint);
  EXPECT_THAT(handler.Explain(request, {}), StatusIs(absl::StatusCode::kInvalidArgument, "send the graph"));
  request.set_include_stages(false);
  request.set_include_key(false);
  response = handler.Explain(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(response->summary().fingerprint(), fingerprint);
}

TEST(CompileServiceTest, ExplainUsesTheGraphsNamesWhereItHasTheGraph) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  v1::ExplainRequest request;
  request.mutable_spec()->set_graph_text("graph g(x: f32[4]) {\n  %mine = neg(x)\n  return %mine\n}\n");
  const absl::StatusOr<v1::ExplainResponse> by_graph = handler.Explain(request, {});
  ASSERT_OK(by_graph);
  EXPECT_EQ(by_graph->report().kernels(0).ops(0), "neg %mine");
  request.mutable_spec()->set_fingerprint(by_graph->summary().fingerprint());
  const absl::StatusOr<v1::ExplainResponse> by_fingerprint = handler.Explain(request, {});
  ASSERT_OK(by_fingerprint);
  EXPECT_EQ(by_fingerprint->report().kernels(0).ops(0), "neg %v0");
}

TEST(CompileServiceTest, VerifyPassesTensorsAndToleranceOnAndAnswersComparisons) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  auto request = std::make_shared<v1::VerifyRequest>();
  request->mutable_spec()->set_graph_text(kText);
  v1::NamedTensor* input = request->add_inputs();
  input->set_name("x");
  input->mutable_tensor()->set_dtype(v1::DATA_TYPE_F32);
  input->mutable_tensor()->add_shape(4);
  input->mutable_tensor()->set_data(std::string(16, '\0'));
  v1::NamedTensor* expected = request->add_expected();
  *expected = *input;
  expected->set_name("y");
  request->mutable_tolerance()->set_rtol(0.5);
  request->mutable_tolerance()->set_atol(0.25);
  request->mutable_tolerance()->set_negative_zero_matters(true);
  absl::StatusOr<v1::VerifyResponse> response = handler.Verify(request, {});
  ASSERT_OK(response);
  EXPECT_FALSE(response->passed());
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).name(), "y");
  EXPECT_EQ(response->outputs(0).element_count(), 4);
  EXPECT_EQ(response->outputs(0).mismatch_count(), 1);
  EXPECT_EQ(response->outputs(0).max_abs_error(), 0.5);
  EXPECT_EQ(response->outputs(0).max_rel_error(), 0.25);
  EXPECT_EQ(response->outputs(0).first_mismatch(), "at [1]: got 2.5, want 2");
  EXPECT_EQ(engine.last_inputs().size(), 1u);
  EXPECT_EQ(engine.last_expected().size(), 1u);
  EXPECT_EQ(engine.last_tolerance().rtol, 0.5);
  EXPECT_EQ(engine.last_tolerance().atol, 0.25);
  EXPECT_TRUE(engine.last_tolerance().negative_zero_matters);

  request->clear_expected();
  ASSERT_OK(handler.Verify(request, {}));
  EXPECT_TRUE(engine.last_expected().empty());
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    request->mutable_tolerance()->set_rtol(bad);
    EXPECT_THAT(handler.Verify(request, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, "'tolerance' must not be negative"));
  }
}

TEST(CompileServiceTest, CallThatIsCancelledStopsWaitingAndNotesSayWhatWasFound) {
  FakeEngine engine;
  const CompileHandler handler(engine);
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text("graph g(x: f32[4]) {\n  return y = x\n}\n");
  CallNotes notes;
  CallContext context;
  context.notes = &notes;
  ASSERT_OK(handler.Compile(request, context));
  EXPECT_EQ(notes.outcome, "miss");
  EXPECT_EQ(notes.build_micros, 1'250'000);
  engine.block_compile = true;
  context.is_cancelled = [] { return true; };
  EXPECT_EQ(handler.Compile(request, context).status().code(), absl::StatusCode::kCancelled);
  context.is_cancelled = nullptr;
  context.deadline = absl::Now() + absl::Milliseconds(20);
  EXPECT_EQ(handler.Compile(request, context).status().code(), absl::StatusCode::kDeadlineExceeded);
  v1::ExplainRequest explain;
  *explain.mutable_spec() = request.spec();
  EXPECT_EQ(handler.Explain(explain, context).status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace fuseline::service
