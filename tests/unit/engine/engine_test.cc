// The engine from graph to results: outcomes of the cache, symbols, errors, verification, restart and drain.
#include "server/engine/engine.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using testing::StatusIs;

constexpr const char* kGraph = "graph g(x: f32[8]) {\n  %m = mul(x, 2.0)\n  %y = add(%m, 1.0)\n  return y = %y\n}\n";
constexpr const char* kSymbolic = "graph g(x: f32[n, 4], w: f32[4]) {\n  %y = mul(x, w)\n  return y = %y\n}\n";

EngineOptions CpuOnly() {
  EngineOptions options;
  options.executor.use_cuda = false;
  options.executor.cpu_threads = 1;
  options.compile_threads = 1;
  return options;
}

std::unique_ptr<Engine> NewEngine(const EngineOptions& options = CpuOnly()) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_THAT(engine.status(), IsOk());
  return *std::move(engine);
}

CompileRequest Request(const std::string& text) {
  CompileRequest request;
  // Not verified: the engine does that.
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  request.graph = *std::move(graph);
  return request;
}

Tensor Filled(const Shape& shape, DType dtype = DType::kF32) {
  Tensor t = Tensor::Allocate(dtype, shape);
  for (int64_t i = 0; i < t.element_count(); ++i) t.SetDouble(i, static_cast<double>(i));
  return t;
}

std::string Values(const Tensor& t) {
  std::string out;
  for (int64_t i = 0; i < t.element_count(); ++i) StrAppend(&out, i ? " " : "", t.GetDouble(i));
  return out;
}

// A folder that goes with the test.
class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "fuseline_engine_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(EngineTest, FirstCompileMissesAndTheSecondHitsMemory) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<CompileResult> first = engine->Compile(Request(kGraph));
  ASSERT_THAT(first.status(), IsOk());
  EXPECT_EQ(first->outcome, cache::Outcome::kMiss);
  EXPECT_GT(first->build_time, absl::ZeroDuration());
  const absl::StatusOr<CompileResult> second = engine->Compile(Request(kGraph));
  ASSERT_THAT(second.status(), IsOk());
  EXPECT_EQ(second->outcome, cache::Outcome::kMemoryHit);
  EXPECT_EQ(second->build_time, absl::ZeroDuration());
  EXPECT_EQ(second->artifact, first->artifact);
  EXPECT_EQ(engine->CacheStats().builds, 1);
}

TEST_F(EngineTest, NamesOrderAndDeadNodesDoNotChangeTheFingerprint) {
  const std::unique_ptr<Engine> engine = NewEngine();
  Fingerprint a, b, c;
  ASSERT_THAT(engine
                  ->ExplainKey(Request("graph g(x: f32[8], y: f32[8]) {\n  %a = exp(x)\n  %b = sin(y)\n  %c = add(%a, "
                                       "%b)\n  return %c\n}\n"),
                               &a)
                  .status(),
              IsOk());
  ASSERT_THAT(engine
                  ->ExplainKey(Request("graph other(p: f32[8], q: f32[8]) {\n  %s = sin(q)\n  %dead = cos(q)\n  %e = "
                                       "exp(p)\n  %sum = add(%e, %s)\n  return r = %sum\n}\n"),
                               &b)
                  .status(),
              IsOk());
  ASSERT_THAT(engine
                  ->ExplainKey(Request("graph g(x: f32[8], y: f32[8]) {\n  %a = exp(x)\n  %b = sin(y)\n  %c = sub(%a, "
                                       "%b)\n  return %c\n}\n"),
                               &c)
                  .status(),
              IsOk());
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == c);
}

TEST_F(EngineTest, CachedArtifactServesAGraphWithOtherNames) {
  const std::unique_ptr<Engine> engine = NewEngine();
  ASSERT_THAT(engine->Compile(Request(kGraph)).status(), IsOk());
  const absl::StatusOr<ExecuteResult> run = engine->Execute(
      Request("graph h(left: f32[8]) {\n  %p = mul(left, 2.0)\n  %q = add(%p, 1.0)\n  return result = %q\n}\n"),
      {Filled({8})}, {});
  ASSERT_THAT(run.status(), IsOk());
  EXPECT_EQ(run->compiled.outcome, cache::Outcome::kMemoryHit);
  EXPECT_EQ(Values(run->execution.outputs[0]), "1 3 5 7 9 11 13 15");
}

TEST_F(EngineTest, IndexOutOfRangeIsToldInTheGraphsNames) {
  const std::unique_ptr<Engine> engine = NewEngine();
  Tensor index = Tensor::Allocate(DType::kI32, {2});
  for (const char* name : {"%look", "%v0"}) {
    const CompileRequest request = Request("graph h(x: f32[8], i: i32[2]) {\n  " + std::string(name) +
                                           " = index_select(x, i) {dim = 0}\n  return result = " + name + "\n}\n");
    index.SetInt(0, 8);
    index.SetInt(1, 0);
    const auto failed = engine->Execute(request, executor::Arguments({Filled({8}), index}), {});
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInvalidArgument,
                                 "node '" + std::string(name) + "': index 8 is out of range for size 8"));
    index.SetInt(0, -8);
    const auto good = engine->Execute(request, executor::Arguments({Filled({8}), index}), {});
    ASSERT_THAT(good.status(), IsOk());
    EXPECT_EQ(Values(good->execution.outputs[0]), "0 0");
  }
}

TEST_F(EngineTest, EveryOptionAndTheTargetChangeTheFingerprint) {
  const std::unique_ptr<Engine> engine = NewEngine();
  std::vector<CompileRequest> requests(5, Request(kGraph));
  requests[1].options.fast_math = true;
  requests[2].options.fuse = false;
  requests[3].options.numerics = Numerics::kEager;
  requests[4].options.allow_tf32 = true;
  std::set<std::string> seen;
  for (const CompileRequest& r : requests) {
    Fingerprint f;
    ASSERT_THAT(engine->ExplainKey(r, &f).status(), IsOk());
    EXPECT_TRUE(seen.insert(f.ToHex()).second);
  }
}

TEST_F(EngineTest, BypassBuildsAnewAndStoresNothing) {
  const std::unique_ptr<Engine> engine = NewEngine();
  CompileRequest request = Request(kGraph);
  request.bypass_cache = true;
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<CompileResult> result = engine->Compile(request);
    ASSERT_THAT(result.status(), IsOk());
    EXPECT_EQ(result->outcome, cache::Outcome::kMiss);
    EXPECT_GT(result->build_time, absl::ZeroDuration());
  }
  EXPECT_EQ(engine->CacheStats().builds, 2);
  const absl::StatusOr<CompileResult> after = engine->Compile(Request(kGraph));
  ASSERT_THAT(after.status(), IsOk());
  EXPECT_EQ(after->outcome, cache::Outcome::kMiss);
}

TEST_F(EngineTest, SixtyFourThreadsThatAskForOneNewGraphShareOneBuild) {
  const std::unique_ptr<Engine> engine = NewEngine();
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(64);
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = engine->Compile(Request(kGraph)).status(); });
  }
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : statuses) EXPECT_THAT(s, IsOk());
  EXPECT_EQ(engine->CacheStats().builds, 1);
}

TEST_F(EngineTest, StagesAreHeardAndTheTimesOfBuildsAreCounted) {
  const std::unique_ptr<Engine> engine = NewEngine();
  std::vector<cache::BuildStage> heard;
  cache::WaitOptions wait;
  wait.on_stage = [&](cache::BuildStage stage) { heard.push_back(stage); };
  ASSERT_THAT(engine->Compile(Request(kGraph), wait).status(), IsOk());
  EXPECT_THAT(heard, ElementsAre(cache::BuildStage::kCacheCheck, cache::BuildStage::kQueued,
                                 cache::BuildStage::kBuilding, cache::BuildStage::kDone));
  EXPECT_GT(engine->CacheStats().build_seconds, 0.001);
  EXPECT_EQ(engine->CacheStats().seconds_saved, 0);
  ASSERT_THAT(engine->Compile(Request(kGraph), {}).status(), IsOk());
  EXPECT_GT(engine->CacheStats().seconds_saved, 0.001);
}

// A compiler that takes its time.
class SlowCompilerTest : public EngineTest {
 protected:
  EngineOptions SlowCompiler(const std::string& seconds) {
    EngineOptions options = CpuOnly();
    options.host_compiler = folder_ / "slow-compiler";
    std::ofstream(options.host_compiler) << "#!/bin/sh\n"
                                         << "case \"$*\" in *-shared*) sleep " << seconds << " ;; esac\n"
                                         << "exec g++ \"$@\"\n";
    std::filesystem::permissions(options.host_compiler, std::filesystem::perms::owner_all);
    return options;
  }
  // Leaves once the build has begun.
  static absl::Status CompileAndLeave(Engine& engine, const CompileRequest& request) {
    cache::WaitOptions wait;
    wait.stop = [&engine] {
      return engine.CacheStats().builds_running > 0 ? absl::CancelledError("the client left") : absl::OkStatus();
    };
    return engine.Compile(request, wait).status();
  }
};

TEST_F(SlowCompilerTest, CallerThatLeftFindsItsBuildByAskingAgain) {
  const std::unique_ptr<Engine> engine = NewEngine(SlowCompiler("1"));
  EXPECT_THAT(CompileAndLeave(*engine, Request(kGraph)), StatusIs(absl::StatusCode::kCancelled, "the client left"));
  EXPECT_EQ(engine->CacheStats().builds, 0);
  cache::WaitOptions hasty;
  hasty.deadline = absl::Now() + absl::Milliseconds(5);
  EXPECT_THAT(engine->Compile(Request(kGraph), hasty).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  const absl::StatusOr<CompileResult> again = engine->Compile(Request(kGraph));
  ASSERT_THAT(again.status(), IsOk());
  EXPECT_NE(again->outcome, cache::Outcome::kMiss);
  EXPECT_EQ(engine->CacheStats().builds, 1);
}

TEST_F(SlowCompilerTest, BuildThatNobodyWaitsForStopsAfterTheLinger) {
  EngineOptions options = SlowCompiler("0.2");
  options.build_linger = absl::ZeroDuration();
  const std::unique_ptr<Engine> engine = NewEngine(options);
  CompileRequest many = Request(
      "graph g(x: f32[8]) {\n  %a = exp(x)\n  %b = sin(%a)\n  %c = tanh(%b)\n  %d = sqrt(%c)\n  return y = %d\n}\n");
  many.options.fuse = false;  // four kernels
  EXPECT_FALSE(CompileAndLeave(*engine, many).ok());
  while (engine->CacheStats().build_errors == 0) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(engine->CacheStats().builds, 0);
  EXPECT_EQ(engine->Compile(many)->outcome, cache::Outcome::kMiss);
}

TEST(EngineMemoryTest, PlanLargerThanTheMachineIsRefusedBeforeItRunsAndTheEngineGoesOn) {
  const std::unique_ptr<Engine> engine = NewEngine();
  // The input is one element; what is made of it takes 2 TiB without fusion.
  CompileRequest large = Request(
      "graph g(x: f32[1]) {\n  %b = broadcast_to(x) {shape = [524288, 1048576]}\n  %a = exp(%b)\n"
      "  %s = sum(%a) {dims = [0, 1]}\n  return y = %s\n}\n");
  large.options.fuse = false;
  const absl::Time start = absl::Now();
  const auto refused = engine->Execute(large, {Filled({1})}, {});
  EXPECT_THAT(refused.status(), StatusIs(absl::StatusCode::kResourceExhausted, "memory"));
  EXPECT_EQ(GetErrorReason(refused.status()), ErrorReason::kDeviceMemory);
  // A tensor that is too large by itself: the output.
  const auto output = engine->Execute(
      Request("graph g(x: f32[1]) {\n  %b = broadcast_to(x) {shape = [524288, 1048576]}\n  return y = %b\n}\n"),
      {Filled({1})}, {});
  EXPECT_THAT(output.status(), StatusIs(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_LT(absl::Now() - start, absl::Seconds(60));
  const auto next = engine->Execute(Request(kGraph), {Filled({8})}, {});
  ASSERT_THAT(next.status(), IsOk());
  EXPECT_EQ(Values(next->execution.outputs[0]), "1 3 5 7 9 11 13 15");
}

TEST_F(SlowCompilerTest, BuildsBeyondTheQueueAreRefusedAtOnce) {
  EngineOptions options = SlowCompiler("1");
  options.max_builds_waiting = 0;
  const std::unique_ptr<Engine> engine = NewEngine(options);
  std::thread first([&] { EXPECT_THAT(engine->Compile(Request(kGraph)).status(), IsOk()); });
  while (engine->CacheStats().builds_running == 0) absl::SleepFor(absl::Milliseconds(1));
  const CompileRequest other = Request("graph g(x: f32[8]) {\n  %y = exp(x)\n  return y = %y\n}\n");
  const absl::Status refused = engine->Compile(other).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_EQ(GetErrorReason(refused), ErrorReason::kQueueFull);
  EXPECT_EQ(engine->CacheStats().builds, 0);                       // at once
  EXPECT_THAT(engine->Compile(Request(kGraph)).status(), IsOk());  // joins
  first.join();
  EXPECT_THAT(engine->Compile(other).status(), IsOk());
}

TEST_F(SlowCompilerTest, DrainWaitsForTheBuildThatSomebodyWaitsFor) {
  const std::unique_ptr<Engine> engine = NewEngine(SlowCompiler("0.3"));
  absl::Status compiled = absl::UnknownError("not done");
  std::thread first([&] { compiled = engine->Compile(Request(kGraph)).status(); });
  while (engine->CacheStats().builds_running == 0) absl::SleepFor(absl::Milliseconds(1));
  engine->Drain();
  EXPECT_EQ(engine->CacheStats().builds_running, 0);
  first.join();
  EXPECT_THAT(compiled, IsOk());
}

TEST_F(EngineTest, SymbolsAreSolvedFromTheInputs) {
  const std::unique_ptr<Engine> engine = NewEngine();
  for (int64_t n : {2, 3}) {
    const absl::StatusOr<ExecuteResult> run = engine->Execute(Request(kSymbolic), {Filled({n, 4}), Filled({4})}, {});
    ASSERT_THAT(run.status(), IsOk());
    EXPECT_EQ(run->execution.outputs[0].shape(), (Shape{n, 4}));
    EXPECT_EQ(run->compiled.outcome, cache::Outcome::kMiss);  // another size is another artifact
    EXPECT_EQ(run->execution.outputs[0].GetDouble(7), 21);
  }
}

TEST_F(EngineTest, SizesOfABatchShareKernels) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const CompileRequest request = Request(
      "graph g(x: f32[n, 48], w: f32[48], b: f32[48]) {\n"
      "  %h = layer_norm(x, w, b) {dims = [1]}\n"
      "  %s = softmax(%h) {dim = 1}\n"
      "  %c = sum(%s) {dims = [0]}\n"
      "  %y = mul(%s, %c)\n"
      "  return y = %y, c = %c\n}\n");
  int64_t kernels = 0;
  int64_t compiled_for_two = 0;
  for (const int64_t n : {1, 2, 7, 8, 64, 1000, 3, 999, 0}) {
    const std::vector<Tensor> inputs = {Filled({n, 48}), Filled({48}), Filled({48})};
    const absl::StatusOr<VerifyResult> result = engine->Verify(request, inputs, {}, {1e-5, 1e-5}, {});
    ASSERT_THAT(result.status(), IsOk()) << n;
    EXPECT_TRUE(result->passed) << n;
    kernels += static_cast<int64_t>(result->compiled.artifact->kernels.size());
    if (n == 2) compiled_for_two = engine->Info().kernels_compiled;
  }
  const EngineInfo info = engine->Info();
  EXPECT_EQ(info.kernels_compiled + info.kernels_reused, kernels);
  // What 1 and 2 need serves nearly all: a long column is split, and sums over none are constants.
  EXPECT_LE(info.kernels_compiled, 2 * compiled_for_two);
  EXPECT_GE(info.kernels_reused, kernels / 2);
}

TEST_F(EngineTest, SymbolicFingerprintFindsTheGraphAtEverySize) {
  const std::unique_ptr<Engine> engine = NewEngine();
  std::optional<Fingerprint> symbolic;
  for (const int64_t n : {1, 2, 7, 8, 64, 1000}) {
    CompileRequest request = Request(kSymbolic);
    if (symbolic.has_value()) {
      const absl::StatusOr<CompileResult> found = engine->Find(*symbolic);
      ASSERT_THAT(found.status(), IsOk());
      ASSERT_TRUE(found->symbolic.has_value());
      EXPECT_FALSE(engine->FindInMemory(*symbolic).has_value());
      request = *found->symbolic;
    }
    const absl::StatusOr<VerifyResult> result =
        engine->Verify(request, {Filled({n, 4}), Filled({4})}, {}, {1e-5, 1e-5}, {});
    ASSERT_THAT(result.status(), IsOk()) << n;
    EXPECT_TRUE(result->passed) << n;
    ASSERT_TRUE(result->compiled.symbolic_fingerprint.has_value());
    if (symbolic.has_value()) {
      EXPECT_EQ(*symbolic, *result->compiled.symbolic_fingerprint);
    }
    symbolic = result->compiled.symbolic_fingerprint;
  }
  // For 1 and for more.
  EXPECT_LE(engine->Info().kernels_compiled, 3);
}

TEST_F(EngineTest, GraphWithSymbolsAndOneWithTheirSizesAreKeptApart) {
  const std::unique_ptr<Engine> engine = NewEngine();
  CompileRequest symbolic = Request(kSymbolic);
  symbolic.symbols = {{"n", 16}};
  CompileRequest renamed = Request("graph g(x: f32[rows, 4], w: f32[4]) {\n  %y = mul(x, w)\n  return y = %y\n}\n");
  renamed.symbols = {{"rows", 16}};
  const CompileRequest fixed = Request("graph g(x: f32[16, 4], w: f32[4]) {\n  %y = mul(x, w)\n  return y = %y\n}\n");
  Fingerprint a, b, c;
  ASSERT_THAT(engine->ExplainKey(symbolic, &a).status(), IsOk());
  ASSERT_THAT(engine->ExplainKey(renamed, &b).status(), IsOk());
  ASSERT_THAT(engine->ExplainKey(fixed, &c).status(), IsOk());
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == c);
}

TEST_F(EngineTest, SymbolsOfTheRequestMustAgreeWithTheInputs) {
  const std::unique_ptr<Engine> engine = NewEngine();
  CompileRequest request = Request(kSymbolic);
  request.symbols["n"] = 2;
  EXPECT_THAT(engine->Compile(request).status(), IsOk());
  EXPECT_THAT(engine->Execute(request, {Filled({2, 4}), Filled({4})}, {}).status(), IsOk());
  EXPECT_THAT(engine->Execute(request, {Filled({3, 4}), Filled({4})}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "'x'"));
}

TEST_F(EngineTest, UnboundSymbolIsUnimplementedAndNamed) {
  const std::unique_ptr<Engine> engine = NewEngine();
  EXPECT_THAT(engine->Compile(Request(kSymbolic)).status(),
              StatusIs(absl::StatusCode::kUnimplemented, "every size of 'n'"));
}

TEST_F(EngineTest, SymbolThatTheGraphDoesNotHaveIsRefused) {
  const std::unique_ptr<Engine> engine = NewEngine();
  for (const char* text : {kGraph, kSymbolic}) {
    CompileRequest request = Request(text);
    request.symbols["m"] = 2;
    if (text == kSymbolic) request.symbols["n"] = 2;
    EXPECT_THAT(engine->Compile(request).status(), StatusIs(absl::StatusCode::kInvalidArgument, "m")) << text;
  }
}

TEST_F(EngineTest, WrongInputsAreRefusedByName) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const struct {
    const char* what;
    std::vector<Tensor> inputs;
    const char* message;
  } cases[] = {
      {"too few", {}, "the graph has 1 inputs, 0 tensors were given"},
      {"too many", {Filled({8}), Filled({8})}, "the graph has 1 inputs, 2 tensors were given"},
      {"another dtype", {Filled({8}, DType::kF64)}, "input 'x' is f32[8], the tensor given is f64[8]"},
      {"another shape", {Filled({9})}, "input 'x' is f32[8], the tensor given is f32[9]"},
      {"another rank", {Filled({2, 4})}, "input 'x' is f32[8], the tensor given is f32[2, 4]"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(engine->Execute(Request(kGraph), executor::Arguments(c.inputs), {}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, c.message))
        << c.what;
  }
  EXPECT_EQ(engine->CacheStats().builds, 0);  // refused before anything is compiled
}

TEST_F(EngineTest, InvalidGraphIsRefusedBeforeItIsLowered) {
  const std::unique_ptr<Engine> engine = NewEngine();
  EXPECT_THAT(engine->Compile(Request("graph g(x: f32[3], y: f32[4]) {\n  %t = add(x, y)\n  return %t\n}\n")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "'%t'"));
}

TEST_F(EngineTest, LimitsOfTheOptionsHold) {
  EngineOptions options = CpuOnly();
  options.limits.max_nodes = 1;
  const std::unique_ptr<Engine> engine = NewEngine(options);
  EXPECT_EQ(engine->limits().max_nodes, 1);
  EXPECT_FALSE(engine->Compile(Request(kGraph)).ok());
}

TEST_F(EngineTest, FindReturnsWhatWasCompiled) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<CompileResult> compiled = engine->Compile(Request(kGraph));
  ASSERT_THAT(compiled.status(), IsOk());
  const absl::StatusOr<CompileResult> found = engine->Find(compiled->artifact->fingerprint);
  ASSERT_THAT(found.status(), IsOk());
  EXPECT_EQ(found->artifact, compiled->artifact);
  EXPECT_EQ(found->outcome, cache::Outcome::kMemoryHit);
  const absl::StatusOr<executor::Execution> run = engine->ExecuteArtifact(found->artifact, {Filled({8})}, {});
  ASSERT_THAT(run.status(), IsOk());
  EXPECT_EQ(Values(run->outputs[0]), "1 3 5 7 9 11 13 15");
}

TEST_F(EngineTest, UnknownFingerprintIsNotFound) {
  const std::unique_ptr<Engine> engine = NewEngine();
  Fingerprint unknown;
  EXPECT_THAT(engine->Find(unknown).status(), StatusIs(absl::StatusCode::kNotFound, "send the graph"));
}

TEST_F(EngineTest, VerifyComparesWithTheReference) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<VerifyResult> result =
      engine->Verify(Request("graph g(x: f32[4, 8]) {\n  %s = softmax(x) {dim = -1}\n  %a = argmax(x) {dim = 1}\n  "
                             "return y = %s, at = %a\n}\n"),
                     {Filled({4, 8})}, {}, Tolerance{1e-5, 1e-6});
  ASSERT_THAT(result.status(), IsOk());
  EXPECT_TRUE(result->passed);
  ASSERT_THAT(result->outputs, SizeIs(2));
  EXPECT_EQ(result->outputs[0].name, "y");
  EXPECT_EQ(result->outputs[1].name, "at");
}

TEST_F(EngineTest, VerifyReportsWhereAnExpectationIsNotMet) {
  const std::unique_ptr<Engine> engine = NewEngine();
  Tensor expected = Tensor::Allocate(DType::kF32, {8});
  for (int i = 0; i < 8; ++i) expected.SetDouble(i, i == 5 ? 12 : 2 * i + 1);
  const absl::StatusOr<VerifyResult> result = engine->Verify(Request(kGraph), {Filled({8})}, {expected}, Tolerance{});
  ASSERT_THAT(result.status(), IsOk());
  EXPECT_FALSE(result->passed);
  ASSERT_THAT(result->outputs, SizeIs(1));
  EXPECT_FALSE(result->outputs[0].passed());
  EXPECT_THAT(engine->Verify(Request(kGraph), {Filled({8})}, {expected, expected}, Tolerance{}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "the graph returns 1 values, 2 are expected"));
}

TEST_F(EngineTest, RestartFindsArtifactsOnDisk) {
  EngineOptions options = CpuOnly();
  options.cache_dir = folder_ / "cache";
  Fingerprint fingerprint;
  {
    const std::unique_ptr<Engine> engine = NewEngine(options);
    EXPECT_THAT(engine->Info().warnings, IsEmpty());
    const absl::StatusOr<CompileResult> result = engine->Compile(Request(kGraph));
    ASSERT_THAT(result.status(), IsOk());
    EXPECT_EQ(result->outcome, cache::Outcome::kMiss);
    fingerprint = result->artifact->fingerprint;
  }
  const std::unique_ptr<Engine> engine = NewEngine(options);
  const absl::StatusOr<ExecuteResult> run = engine->Execute(Request(kGraph), {Filled({8})}, {});
  ASSERT_THAT(run.status(), IsOk());
  EXPECT_EQ(run->compiled.outcome, cache::Outcome::kDiskHit);
  EXPECT_EQ(run->compiled.artifact->fingerprint, fingerprint);
  EXPECT_EQ(Values(run->execution.outputs[0]), "1 3 5 7 9 11 13 15");
  EXPECT_EQ(engine->CacheStats().builds, 0);
  // The hit has filled the level above.
  EXPECT_EQ(engine->Compile(Request(kGraph))->outcome, cache::Outcome::kMemoryHit);
}

TEST_F(EngineTest, DiskCacheThatCannotBeOpenedIsAWarning) {
  EngineOptions options = CpuOnly();
  const std::filesystem::path file = folder_ / "a_file";
  std::ofstream(file) << "not a folder";
  options.cache_dir = file / "cache";
  const std::unique_ptr<Engine> engine = NewEngine(options);
  EXPECT_THAT(engine->Info().warnings, ElementsAre(HasSubstr("serving without the disk cache: ")));
  EXPECT_THAT(engine->Execute(Request(kGraph), {Filled({8})}, {}).status(), IsOk());
  EXPECT_EQ(engine->Compile(Request(kGraph))->outcome, cache::Outcome::kMemoryHit);
}

TEST_F(EngineTest, OneFolderServesOneEngineAtATimeAndIsTakenOver) {
  EngineOptions options = CpuOnly();
  options.cache_dir = folder_ / "cache";
  std::unique_ptr<Engine> first = NewEngine(options);
  absl::Mutex mutex;
  std::vector<std::string> reports;
  options.report = [&](const std::string& line) {
    absl::MutexLock lock(&mutex);
    reports.push_back(line);
  };
  const std::unique_ptr<Engine> second = NewEngine(options);
  EXPECT_THAT(first->Info().warnings, IsEmpty());
  EXPECT_THAT(second->Info().warnings, ElementsAre(HasSubstr("is in use")));
  EXPECT_THAT(second->Compile(Request(kGraph)).status(), IsOk());
  EXPECT_FALSE(second->CacheStats().levels[1].available);
  first.reset();
  while (!second->Info().warnings.empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(second->CacheStats().levels[1].available);
  const CompileRequest other = Request("graph g(x: f32[8]) {\n  %y = exp(x)\n  return y = %y\n}\n");
  EXPECT_THAT(second->Compile(other).status(), IsOk());
  EXPECT_EQ(second->CacheStats().levels[1].entries, 1);
  const auto reported = [&] { return !reports.empty(); };
  absl::MutexLock lock(&mutex, absl::Condition(&reported));
  EXPECT_THAT(reports, ElementsAre(HasSubstr("with the disk cache again")));
}

TEST_F(EngineTest, BrokenDiskCacheIsBegunAnewWithAWarning) {
  EngineOptions options = CpuOnly();
  options.cache_dir = folder_ / "cache";
  ASSERT_THAT(NewEngine(options)->Compile(Request(kGraph)).status(), IsOk());
  for (const auto& entry : std::filesystem::directory_iterator(options.cache_dir)) {
    if (entry.path().filename().string().rfind("MANIFEST", 0) == 0)
      std::ofstream(entry.path(), std::ios::trunc) << "not a manifest";
  }
  {
    const std::unique_ptr<Engine> engine = NewEngine(options);
    EXPECT_THAT(engine->Info().warnings, ElementsAre(HasSubstr("moved the database to")));
    EXPECT_EQ(engine->Compile(Request(kGraph))->outcome, cache::Outcome::kMiss);
  }
  const std::unique_ptr<Engine> engine = NewEngine(options);
  EXPECT_THAT(engine->Info().warnings, IsEmpty());
  EXPECT_EQ(engine->Compile(Request(kGraph))->outcome, cache::Outcome::kDiskHit);
}

TEST_F(EngineTest, FolderWithOtherFilesIsLeftAlone) {
  EngineOptions options = CpuOnly();
  std::ofstream(folder_ / "thesis.txt") << "years of work";
  options.cache_dir = folder_;
  const std::unique_ptr<Engine> engine = NewEngine(options);
  EXPECT_THAT(engine->Info().warnings, ElementsAre(HasSubstr("'thesis.txt'")));
  EXPECT_THAT(engine->Compile(Request(kGraph)).status(), IsOk());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(EngineTest, TargetWithoutADeviceIsRefusedForExecution) {
  const std::unique_ptr<Engine> engine = NewEngine();
  CompileRequest request = Request(kGraph);
  request.target = Target::Cuda(90);
  EXPECT_THAT(engine->Execute(request, {Filled({8})}, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "cuda:sm_90"));
}

TEST_F(EngineTest, ArchitectureThatTheCompilerDoesNotKnowIsRefused) {
  const std::unique_ptr<Engine> engine = NewEngine();
  CompileRequest request = Request(kGraph);
  request.target = Target::Cuda(11);
  const absl::Status status = engine->Compile(request).status();
  // FAILED_PRECONDITION with NVRTC and without: never a bug of ours.
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, ""));
}

TEST_F(EngineTest, InfoSaysWhichTargetsThereAreAndWhyNot) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const EngineInfo info = engine->Info();
  ASSERT_THAT(info.targets, SizeIs(2));
  EXPECT_EQ(info.targets[0].target, Target::Cpu());
  EXPECT_TRUE(info.targets[0].can_compile);
  EXPECT_TRUE(info.targets[0].can_execute);
  EXPECT_TRUE(info.targets[1].target.is_cuda());
  EXPECT_FALSE(info.targets[1].can_execute);
  EXPECT_FALSE(info.targets[1].reason.empty());
  EXPECT_FALSE(info.compiler_identity.empty());
  EXPECT_THAT(info.devices, SizeIs(1));
}

TEST_F(EngineTest, HostCompilerThatIsNotThereIsAFailedPrecondition) {
  EngineOptions options = CpuOnly();
  options.host_compiler = "/no/such/compiler";
  const std::unique_ptr<Engine> engine = NewEngine(options);
  EXPECT_THAT(engine->Compile(Request(kGraph)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "/no/such/compiler"));
  EXPECT_FALSE(engine->Info().targets[0].can_compile);
}

TEST_F(EngineTest, DrainedEngineIsUnavailable) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<CompileResult> compiled = engine->Compile(Request(kGraph));
  ASSERT_THAT(compiled.status(), IsOk());
  engine->Drain();
  EXPECT_THAT(engine->Compile(Request(kGraph)).status(), StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
  EXPECT_THAT(engine->Execute(Request(kGraph), {Filled({8})}, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(engine->ExecuteArtifact(compiled->artifact, {Filled({8})}, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(engine->DumpStages(Request(kGraph)).status(), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(EngineTest, ReportHasTheTimesOfTheStages) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<CompileResult> result = engine->Compile(Request(kGraph));
  ASSERT_THAT(result.status(), IsOk());
  const ArtifactReport& report = result->artifact->report;
  for (const char* stage : {"lower", "fuse", "generate", "compile"})
    EXPECT_EQ(report.stage_micros.count(stage), 1u) << stage;
  EXPECT_GT(report.stage_micros.at("compile"), 0);
  EXPECT_EQ(report.kernels.size(), 1u);
}

TEST_F(EngineTest, StagesArePrintedInOrder) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<StageDump> dump = engine->DumpStages(Request(kGraph));
  ASSERT_THAT(dump.status(), IsOk());
  std::vector<std::string> names;
  for (const auto& [name, text] : dump->stages) {
    names.push_back(name);
    EXPECT_FALSE(text.empty()) << name;
  }
  EXPECT_THAT(names, ElementsAre("graph", "canonical", "loops", "fusion", "bodies", "plan", "source"));
}

TEST_F(EngineTest, StridedInputsAreGivenDense) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<ExecuteResult> run = engine->Execute(
      Request("graph g(x: f32[2, 3]{1, 2}) {\n  %y = neg(x)\n  return y = %y\n}\n"), {Filled({2, 3})}, {});
  ASSERT_THAT(run.status(), IsOk());
  EXPECT_EQ(Values(run->execution.outputs[0]), "-0 -1 -2 -3 -4 -5");
}

TEST_F(EngineTest, OutputsHaveTheShapesOfTheGraph) {
  const std::unique_ptr<Engine> engine = NewEngine();
  const absl::StatusOr<ExecuteResult> run =
      engine->Execute(Request("graph g(x: f32[2, 3]) {\n  %s = sum(x) {dims = [1], keepdim = true}\n  %r = reshape(%s) "
                              "{shape = [1, 2]}\n  return a = %s, b = %r\n}\n"),
                      {Filled({2, 3})}, {});
  ASSERT_THAT(run.status(), IsOk());
  EXPECT_EQ(run->execution.outputs[0].shape(), (Shape{2, 1}));
  EXPECT_EQ(run->execution.outputs[1].shape(), (Shape{1, 2}));
  EXPECT_EQ(Values(run->execution.outputs[1]), "3 12");
}

}  // namespace
}  // namespace fuseline
