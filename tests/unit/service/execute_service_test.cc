#include "server/service/execute_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/case_file/random_inputs.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kText[] =
    "graph g(a: f32[], b: f32[]) {\n  %s = add(a, b)\n  %d = sub(a, b)\n  return s = %s, d = %d\n}\n";

void AddInput(v1::ExecuteRequest& request, const std::string& name, float value) {
  v1::InputTensor* input = request.add_inputs();
  input->set_name(name);
  input->mutable_tensor()->set_dtype(v1::DATA_TYPE_F32);
  input->mutable_tensor()->set_data(&value, sizeof(value));
}

float Value(const v1::NamedTensor& tensor) {
  float value = 0;
  EXPECT_EQ(tensor.tensor().data().size(), sizeof(value));
  std::memcpy(&value, tensor.tensor().data().data(), sizeof(value));
  return value;
}

std::shared_ptr<v1::ExecuteRequest> Request() {
  auto request = std::make_shared<v1::ExecuteRequest>();
  request->mutable_spec()->set_graph_text(kText);
  AddInput(*request, "b", 2);
  AddInput(*request, "a", 1);
  return request;
}

TEST(ExecuteServiceTest, InputsGoByNameAndOutputsComeInTheGraphsOrder) {
  FakeEngine engine;
  const absl::StatusOr<v1::ExecuteResponse> response = ExecuteHandler(engine).Execute(Request(), {});
  ASSERT_OK(response);
  ASSERT_EQ(response->outputs_size(), 2);
  EXPECT_EQ(response->outputs(0).name(), "s");
  EXPECT_EQ(Value(response->outputs(0)), 1);
  EXPECT_EQ(response->outputs(1).name(), "d");
  EXPECT_EQ(Value(response->outputs(1)), 2);
  EXPECT_EQ(response->summary().outcome(), v1::CACHE_OUTCOME_MISS);
  EXPECT_EQ(response->device(), 7);
  EXPECT_EQ(response->timings().queue_time().nanos(), 1500);
  EXPECT_EQ(response->timings().run_time().seconds(), 2);
  EXPECT_EQ(response->timings().run_time().nanos(), 250);
  EXPECT_EQ(engine.last_options().device, -1);
}

TEST(ExecuteServiceTest, OnlyTheOutputsAskedForAreSent) {
  FakeEngine engine;
  auto request = Request();
  request->add_output_names("d");
  const absl::StatusOr<v1::ExecuteResponse> response = ExecuteHandler(engine).Execute(request, {});
  ASSERT_OK(response);
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).name(), "d");
  request->add_output_names("q");
  EXPECT_THAT(ExecuteHandler(engine).Execute(request, {}), StatusIs(kInvalid, "no output 'q'"));
}

TEST(ExecuteServiceTest, FingerprintRunsWithInputsByPositionOrCanonicalName) {
  FakeEngine engine;
  const ExecuteHandler handler(engine);
  const absl::StatusOr<v1::ExecuteResponse> first = handler.Execute(Request(), {});
  ASSERT_OK(first);
  auto request = std::make_shared<v1::ExecuteRequest>();
  request->mutable_spec()->set_fingerprint(first->summary().fingerprint());
  AddInput(*request, "", 5);
  AddInput(*request, "", 6);
  absl::StatusOr<v1::ExecuteResponse> response = handler.Execute(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(response->summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
  EXPECT_EQ(response->outputs(0).name(), "out0");
  EXPECT_EQ(Value(response->outputs(0)), 5);
  request->mutable_inputs(0)->set_name("in1");
  request->mutable_inputs(1)->set_name("in0");
  response = handler.Execute(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(Value(response->outputs(0)), 6);
  request->mutable_inputs(0)->set_name("a");
  EXPECT_THAT(handler.Execute(request, {}), StatusIs(kInvalid, "no input 'a'"));
  request->mutable_spec()->set_fingerprint(std::string(32, 'x'));
  EXPECT_THAT(handler.Execute(request, {}), StatusIs(absl::StatusCode::kNotFound, "no artifact"));
}

TEST(ExecuteServiceTest, DeviceDeadlineAndCancellationReachTheEngine) {
  FakeEngine engine;
  auto request = Request();
  request->set_device(1);
  bool cancelled = false;
  CallContext context;
  context.deadline = absl::Now() + absl::Hours(1);
  context.is_cancelled = [&] { return cancelled; };
  ASSERT_OK(ExecuteHandler(engine).Execute(request, context));
  const executor::ExecuteOptions options = engine.last_options();
  EXPECT_EQ(options.device, 1);
  EXPECT_EQ(options.deadline, context.deadline);
  EXPECT_OK(options.cancelled());
  cancelled = true;
  EXPECT_THAT(options.cancelled(), StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  request->set_device(-1);
  EXPECT_THAT(ExecuteHandler(engine).Execute(request, context), StatusIs(kInvalid, "'device' is negative"));
}

TEST(ExecuteServiceTest, MissingTensorIsNamed) {
  FakeEngine engine;
  auto request = Request();
  request->mutable_inputs(0)->clear_source();
  EXPECT_THAT(ExecuteHandler(engine).Execute(request, {}), StatusIs(kInvalid, "input 'b' has no tensor"));
  request->mutable_inputs()->RemoveLast();
  EXPECT_THAT(ExecuteHandler(engine).Execute(request, {}), StatusIs(kInvalid, "input 'a' is missing"));
}

v1::BenchmarkRequest BenchmarkOf(const std::string& text) {
  v1::BenchmarkRequest request;
  request.mutable_spec()->set_graph_text(text);
  request.set_seed(5);
  request.set_warmup_count(2);
  request.set_iteration_count(3);
  return request;
}

TEST(ExecuteServiceTest, BenchmarkMeasuresOnInputsMadeFromTheSeed) {
  FakeEngine engine;
  const ExecuteHandler handler(engine);
  v1::BenchmarkRequest request = BenchmarkOf("graph g(a: f32[2, 3], b: i32[4]) {\n  %n = neg(a)\n  return %n, b\n}\n");
  const absl::StatusOr<v1::BenchmarkResponse> response = handler.Benchmark(request, {});
  ASSERT_OK(response);
  EXPECT_EQ(response->summary().outcome(), v1::CACHE_OUTCOME_MISS);
  EXPECT_THAT(response->iteration_micros(), ::testing::ElementsAre(2, 2.5, 3));
  EXPECT_EQ(response->copy_bytes_per_second(), 1e12);
  EXPECT_EQ(response->moved_bytes(), 42);
  EXPECT_EQ(response->report().kernels_size(), 1);
  EXPECT_EQ(response->device(), 0);
  EXPECT_EQ(response->device_name(), "fake device");
  const std::vector<Tensor> inputs = engine.last_inputs();
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].bytes(), MakeRandomInput(TensorType::Make(DType::kF32, {2, 3}), 5, 0).bytes());
  EXPECT_EQ(inputs[1].bytes(), MakeRandomInput(TensorType::Make(DType::kI32, {4}), 6, 0).bytes());

  request.mutable_spec()->set_fingerprint(response->summary().fingerprint());
  request.clear_warmup_count();
  request.clear_iteration_count();
  const absl::StatusOr<v1::BenchmarkResponse> again = handler.Benchmark(request, {});
  ASSERT_OK(again);
  EXPECT_EQ(again->summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
  EXPECT_EQ(again->iteration_micros_size(), 20);
  EXPECT_EQ(again->iteration_micros(0), 0);
}

TEST(ExecuteServiceTest, BenchmarkCountOutOfRangeIsNamed) {
  FakeEngine engine;
  const ExecuteHandler handler(engine);
  for (const int32_t count : {-1, 10'001}) {
    v1::BenchmarkRequest request = BenchmarkOf(kText);
    request.set_warmup_count(count);
    absl::Status status = handler.Benchmark(request, {}).status();
    EXPECT_THAT(status, StatusIs(kInvalid, "'warmup_count'"));
    EXPECT_EQ(GetErrorSubject(status), "warmup_count");
    request.set_warmup_count(10'000);
    request.set_iteration_count(count);
    status = handler.Benchmark(request, {}).status();
    EXPECT_THAT(status, StatusIs(kInvalid, "'iteration_count'"));
    EXPECT_EQ(GetErrorSubject(status), "iteration_count");
  }
  v1::BenchmarkRequest request = BenchmarkOf(kText);
  request.set_warmup_count(10'000);
  request.set_iteration_count(10'000);
  EXPECT_OK(handler.Benchmark(request, {}));
}

TEST(ExecuteServiceTest, BenchmarkWithTooLargeInputsIsRefusedBeforeTheyAreMade) {
  FakeEngine engine;
  engine.on_bench = [] { return Internal("must not be called"); };
  const std::string text = "graph g(a: f64[1000000, 1000000]) {\n  %n = neg(a)\n  return %n\n}\n";
  EXPECT_THAT(ExecuteHandler(engine).Benchmark(BenchmarkOf(text), {}), StatusIs(kInvalid, "limit"));
}

TEST(ExecuteServiceTest, BenchmarksShareTheMemoryForInputs) {
  FakeEngine engine;
  const ExecuteHandler handler(engine);
  // A quarter of a megabyte runs; meanwhile all but that is free, so a second one of the whole bound is too much.
  const std::string small = "graph g(a: f32[65536]) {\n  %n = neg(a)\n  return %n\n}\n";
  const std::string whole = absl::StrCat("graph g(a: i8[", kMaxBenchmarkInputBytes, "]) {\n  return a\n}\n");
  int calls = 0;
  engine.on_bench = [&] {
    ++calls;
    EXPECT_THAT(handler.Benchmark(BenchmarkOf(whole), {}),
                StatusIs(absl::StatusCode::kResourceExhausted, "other benchmarks"));
    return absl::OkStatus();
  };
  EXPECT_OK(handler.Benchmark(BenchmarkOf(small), {}));
  EXPECT_OK(handler.Benchmark(BenchmarkOf(small), {}));
  EXPECT_EQ(calls, 2);
}

TEST(ExecuteServiceTest, CancelledBenchmarkDoesNotMeasure) {
  FakeEngine engine;
  engine.on_bench = [] { return Internal("must not be called"); };
  CallContext context;
  context.is_cancelled = [] { return true; };
  EXPECT_THAT(ExecuteHandler(engine).Benchmark(BenchmarkOf(kText), context),
              StatusIs(absl::StatusCode::kCancelled, "cancelled"));
}

TEST(ExecuteServiceTest, BenchmarkErrorsComeBackUnchanged) {
  FakeEngine engine;
  engine.on_bench = [] {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "", "the device is full");
  };
  const ExecuteHandler handler(engine);
  EXPECT_THAT(handler.Benchmark(BenchmarkOf(kText), {}), StatusIs(absl::StatusCode::kResourceExhausted, "is full"));
  v1::BenchmarkRequest unknown;
  unknown.mutable_spec()->set_fingerprint(std::string(32, 'x'));
  EXPECT_THAT(handler.Benchmark(unknown, {}), StatusIs(absl::StatusCode::kNotFound, "no artifact"));
}

}  // namespace
}  // namespace fuseline::service
