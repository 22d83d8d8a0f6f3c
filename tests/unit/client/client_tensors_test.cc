// The client's kept tensors and streams, against a server that answers what each test says.
#include <atomic>
#include <cstring>
#include <functional>
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
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::StatusIs;
constexpr char kGraph[] = "graph g(x: f32[n], w: f32[2]) {\n  %t = neg(x)\n  %u = neg(w)\n  return y = %t, z = %u\n}\n";

// Keeps tensors, and runs by giving the inputs back as outputs. In memory, by protobuf's own code.
class FakeExecute : public v1::ExecuteService::Service {
 public:
  std::atomic<int> fail_first{0};                             // calls to answer with UNAVAILABLE first
  std::function<void(v1::GetTensorResponse&, int)> edit_got;  // of each message, by its number
  std::function<void(v1::ExecuteResponse&)> edit_response;
  std::atomic<bool> too_large{false};  // Execute answers as gRPC does where a message is over a bound

  grpc::Status PutTensor(grpc::ServerContext* context, grpc::ServerReader<v1::PutTensorRequest>* reader,
                         v1::PutTensorResponse* response) override {
    Note(context);
    if (fail_first-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    v1::PutTensorRequest request;
    if (!reader->Read(&request) || !request.has_header()) return grpc::Status(grpc::StatusCode::INTERNAL, "no header");
    v1::Tensor tensor;
    tensor.set_dtype(request.header().dtype());
    *tensor.mutable_shape() = request.header().shape();
    const v1::PutTensorHeader header = request.header();
    while (reader->Read(&request)) {
      if (request.chunk().offset_bytes() != static_cast<int64_t>(tensor.data().size()))
        return grpc::Status(grpc::StatusCode::INTERNAL, "a gap");
      tensor.mutable_data()->append(request.chunk().data());
    }
    absl::MutexLock lock(&mutex_);
    last_header_ = header;
    response->set_handle(header.handle().empty() ? "made-up" : header.handle());
    response->set_size_bytes(static_cast<int64_t>(tensor.data().size()));
    response->mutable_lease()->set_seconds(7);
    tensors_[response->handle()] = tensor;
    return grpc::Status::OK;
  }

  grpc::Status GetTensor(grpc::ServerContext* context, const v1::GetTensorRequest* request,
                         grpc::ServerWriter<v1::GetTensorResponse>* writer) override {
    Note(context);
    v1::Tensor tensor;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = tensors_.find(request->handle());
      if (it == tensors_.end()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such tensor");
      tensor = it->second;
    }
    const bool fails = fail_first-- > 0;
    const std::string data = tensor.data();
    tensor.clear_data();
    v1::GetTensorResponse message;
    *message.mutable_header() = tensor;
    Write(message, 0, writer);
    int number = 1;
    for (size_t offset = 0; offset < data.size(); offset += 1000) {
      // In mid-stream.
      if (fails && number == 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
      message.mutable_chunk()->set_offset_bytes(static_cast<int64_t>(offset));
      message.mutable_chunk()->set_data(data.substr(offset, 1000));
      Write(message, number++, writer);
    }
    return grpc::Status::OK;
  }

  grpc::Status DeleteTensor(grpc::ServerContext* context, const v1::DeleteTensorRequest* request,
                            v1::DeleteTensorResponse*) override {
    Note(context);
    absl::MutexLock lock(&mutex_);
    return tensors_.erase(request->handle()) == 1 ? grpc::Status::OK
                                                  : grpc::Status(grpc::StatusCode::NOT_FOUND, "no such tensor");
  }

  grpc::Status ListTensors(grpc::ServerContext* context, const v1::ListTensorsRequest*,
                           v1::ListTensorsResponse* response) override {
    Note(context);
    v1::KeptTensor* tensor = response->add_tensors();
    tensor->set_handle("h");
    tensor->set_dtype(v1::DATA_TYPE_BF16);
    tensor->add_shape(3);
    tensor->set_size_bytes(6);
    tensor->mutable_lease()->set_seconds(60);
    tensor->mutable_remaining()->set_seconds(59);
    tensor->mutable_remaining()->set_nanos(500'000'000);
    response->set_size_bytes(6);
    response->set_quota_bytes(100);
    return grpc::Status::OK;
  }

  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    Note(context);
    if (too_large) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "Sent message larger than max (2 vs. 1)");
    std::map<int, std::string> data;
    return Run(*request, data, response);
  }

  grpc::Status ExecuteStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ExecuteStreamResponse, v1::ExecuteStreamRequest>* stream) override {
    Note(context);
    v1::ExecuteStreamRequest request;
    if (!stream->Read(&request) || !request.has_header()) return grpc::Status(grpc::StatusCode::INTERNAL, "no header");
    const v1::ExecuteRequest header = request.header();
    std::map<int, std::string> data;
    int current = -1;
    while (stream->Read(&request)) {
      if (request.chunk().offset_bytes() == 0) {
        // The next input without data, or the one that is named.
        for (++current; current < header.inputs_size(); ++current) {
          const v1::InputTensor& input = header.inputs(current);
          if (input.has_tensor() && input.tensor().data().empty()) break;
        }
        if (current < header.inputs_size() && request.chunk().name() != header.inputs(current).name())
          return grpc::Status(grpc::StatusCode::INTERNAL, "a chunk of another input");
      }
      data[current] += request.chunk().data();
    }
    v1::ExecuteStreamResponse response;
    const grpc::Status status = Run(header, data, response.mutable_header());
    if (!status.ok()) return status;
    std::vector<v1::ExecuteStreamResponse> chunks;
    for (v1::NamedTensor& output : *response.mutable_header()->mutable_outputs()) {
      const std::string& bytes = output.tensor().data();
      for (size_t offset = 0; offset < bytes.size(); offset += 1'000'000) {
        v1::TensorChunk* chunk = chunks.emplace_back().mutable_chunk();
        chunk->set_name(output.name());
        chunk->set_offset_bytes(static_cast<int64_t>(offset));
        chunk->set_data(bytes.substr(offset, 1'000'000));
      }
      output.mutable_tensor()->clear_data();
    }
    stream->Write(response);
    for (const v1::ExecuteStreamResponse& chunk : chunks) stream->Write(chunk);
    return grpc::Status::OK;
  }

  std::vector<v1::ExecuteRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  std::vector<std::string> owners() {
    absl::MutexLock lock(&mutex_);
    return owners_;
  }
  v1::PutTensorHeader last_header() {
    absl::MutexLock lock(&mutex_);
    return last_header_;
  }

 private:
  void Note(grpc::ServerContext* context) {
    absl::MutexLock lock(&mutex_);
    const auto it = context->client_metadata().find("fuseline-owner");
    owners_.push_back(it == context->client_metadata().end() ? "" : std::string(it->second.data(), it->second.size()));
  }
  void Write(v1::GetTensorResponse message, int number, grpc::ServerWriter<v1::GetTensorResponse>* writer) {
    if (edit_got) edit_got(message, number);
    writer->Write(message);
  }
  grpc::Status Run(const v1::ExecuteRequest& request, std::map<int, std::string>& data, v1::ExecuteResponse* response) {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(request);
    for (int i = 0; i < request.inputs_size(); ++i) {
      const v1::InputTensor& input = request.inputs(i);
      v1::Tensor tensor = input.tensor();
      if (data.count(i) != 0) tensor.set_data(data[i]);
      if (!input.handle().empty()) {
        const auto it = tensors_.find(input.handle());
        if (it == tensors_.end()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such tensor");
        tensor = it->second;
      }
      const bool is_fingerprint = request.spec().has_fingerprint();
      const std::string name = is_fingerprint ? absl::StrCat("out", i) : i == 0 ? "y" : "z";
      bool returned = request.output_names_size() == 0;
      for (const v1::KeptOutput& kept : request.kept_outputs()) {
        if (kept.name() != name) continue;
        returned = false;
        v1::KeptTensor* out = response->add_kept();
        out->set_name(name);
        out->set_handle(kept.handle());
        out->set_dtype(tensor.dtype());
        *out->mutable_shape() = tensor.shape();
        out->set_size_bytes(static_cast<int64_t>(tensor.data().size()));
        *out->mutable_lease() = kept.lease();
      }
      for (const std::string& output : request.output_names()) returned = returned || output == name;
      if (!returned) continue;
      response->add_outputs()->set_name(name);
      *response->mutable_outputs(response->outputs_size() - 1)->mutable_tensor() = tensor;
    }
    response->mutable_summary()->set_fingerprint(std::string(32, '\x2a'));
    if (edit_response) edit_response(*response);
    return grpc::Status::OK;
  }

  absl::Mutex mutex_;
  std::map<std::string, v1::Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ExecuteRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> owners_ ABSL_GUARDED_BY(mutex_);
  v1::PutTensorHeader last_header_ ABSL_GUARDED_BY(mutex_);
};

Tensor Counting(int64_t size) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {size});
  for (int64_t i = 0; i < size; ++i) static_cast<float*>(tensor.data())[i] = static_cast<float>(i % 1013);
  return tensor;
}

class ClientTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
  }
  std::unique_ptr<Client> Connect(ClientOptions options = {}) {
    options.initial_backoff = absl::Milliseconds(1);
    auto client = Client::Connect(address_, options);
    EXPECT_OK(client);
    return *std::move(client);
  }
  static CompileSpec Spec() {
    auto graph = ParseGraphText(kGraph);
    EXPECT_OK(graph);
    return {.graph = std::make_shared<const Graph>(*std::move(graph))};
  }

  FakeExecute service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(ClientTensorsTest, TensorGoesThereAndBackInChunks) {
  const auto client = Connect({.owner = "ann"});
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{250}, int64_t{700'000}}) {
    const Tensor tensor = Counting(size);
    const auto kept = client->PutTensor(tensor, {.handle = "w", .lease = absl::Milliseconds(1500)});
    ASSERT_OK(kept);
    EXPECT_EQ(kept->handle, "w");
    EXPECT_EQ(kept->size_bytes, 4 * size);
    EXPECT_EQ(kept->lease, absl::Seconds(7));
    const auto got = client->GetTensor("w");
    ASSERT_OK(got);
    EXPECT_EQ(got->shape(), tensor.shape());
    EXPECT_TRUE(got->bytes() == tensor.bytes());
  }
  EXPECT_EQ(service_.last_header().lease().seconds(), 1);
  EXPECT_EQ(service_.last_header().lease().nanos(), 500'000'000);
  EXPECT_OK(client->DeleteTensor("w"));
  EXPECT_THAT(client->DeleteTensor("w"), StatusIs(absl::StatusCode::kNotFound, ""));
  EXPECT_THAT(client->GetTensor("w"), StatusIs(absl::StatusCode::kNotFound, ""));
  for (const std::string& owner : service_.owners()) EXPECT_EQ(owner, "ann");
}

TEST_F(ClientTensorsTest, HandleIsMadeUpWhereNoneIsGivenAndNoOwnerIsNoMetadata) {
  const auto kept = Connect()->PutTensor(Counting(1));
  ASSERT_OK(kept);
  EXPECT_EQ(kept->handle, "made-up");
  EXPECT_FALSE(service_.last_header().has_lease());
  EXPECT_EQ(service_.owners(), std::vector<std::string>{""});
}

TEST_F(ClientTensorsTest, UnavailableIsRetriedFromTheBeginning) {
  const auto client = Connect();
  const Tensor tensor = Counting(5000);
  service_.fail_first = 2;
  ASSERT_OK(client->PutTensor(tensor, {.handle = "w"}));
  service_.fail_first = 2;
  const auto got = client->GetTensor("w");
  ASSERT_OK(got);
  EXPECT_TRUE(got->bytes() == tensor.bytes());
}

TEST_F(ClientTensorsTest, AnswersThatMakeNoSenseAreInternal) {
  const auto client = Connect();
  ASSERT_OK(client->PutTensor(Counting(1000), {.handle = "w"}));
  const auto get = [&](const std::function<void(v1::GetTensorResponse&, int)>& edit) {
    service_.edit_got = edit;
    return client->GetTensor("w").status();
  };
  EXPECT_THAT(get([](v1::GetTensorResponse& m, int i) {
                if (i == 2) m.mutable_chunk()->set_offset_bytes(7);
              }),
              StatusIs(absl::StatusCode::kInternal, "tensor 'w': the chunk at offset 7 should start at 1000"));
  EXPECT_THAT(get([](v1::GetTensorResponse& m, int i) {
                if (i == 0) m.mutable_header()->set_shape(0, 2000);
              }),
              StatusIs(absl::StatusCode::kInternal, "ends at offset 4000 of 8000"));
  EXPECT_THAT(get([](v1::GetTensorResponse& m, int i) {
                if (i == 0) m.mutable_header()->set_shape(0, -1);
              }),
              StatusIs(absl::StatusCode::kInternal, "negative size"));
  EXPECT_THAT(get([](v1::GetTensorResponse& m, int i) {
                if (i == 0) m.mutable_chunk();
              }),
              StatusIs(absl::StatusCode::kInternal, "no header"));
  EXPECT_THAT(get([](v1::GetTensorResponse& m, int i) {
                if (i == 1) m.mutable_header();
              }),
              StatusIs(absl::StatusCode::kInternal, "two headers"));
}

TEST_F(ClientTensorsTest, DeadlineEndsAStream) {
  const auto client = Connect({.deadline = absl::Milliseconds(100)});
  ASSERT_OK(client->PutTensor(Counting(10), {.handle = "w"}));
  service_.edit_got = [](v1::GetTensorResponse&, int) { absl::SleepFor(absl::Milliseconds(300)); };
  EXPECT_THAT(client->GetTensor("w"), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
}

TEST_F(ClientTensorsTest, ListIsDecoded) {
  const auto list = Connect()->ListTensors();
  ASSERT_OK(list);
  ASSERT_EQ(list->tensors.size(), 1u);
  EXPECT_EQ(list->tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(list->tensors[0].shape, Shape{3});
  EXPECT_EQ(list->tensors[0].lease, absl::Minutes(1));
  EXPECT_EQ(list->tensors[0].remaining, absl::Milliseconds(59'500));
  EXPECT_EQ(list->size_bytes, 6);
  EXPECT_EQ(list->quota_bytes, 100);
}

TEST_F(ClientTensorsTest, LargeInputsAreStreamedByGraphAndByFingerprint) {
  const auto client = Connect();
  const Tensor x = Counting(2'000'000);
  const Tensor w = Counting(2);
  for (const bool graph_sent : {true, false}) {
    const auto result = client->Execute(Spec(), {{"w", w}, {"x", x}});
    ASSERT_OK(result);
    EXPECT_EQ(result->summary.graph_sent, graph_sent);
    ASSERT_EQ(result->outputs.size(), 2u);
    EXPECT_EQ(result->outputs[0].name, "y");
    EXPECT_TRUE(result->outputs[0].tensor.bytes() == x.bytes());
    EXPECT_EQ(result->outputs[1].name, "z");
    EXPECT_TRUE(result->outputs[1].tensor.bytes() == w.bytes());
  }
  const std::vector<v1::ExecuteRequest> requests = service_.requests();
  EXPECT_TRUE(requests[0].inputs(0).tensor().data().empty());
  EXPECT_EQ(requests[0].inputs(0).tensor().shape(0), 2'000'000);
  EXPECT_EQ(requests[0].inputs(1).tensor().data().size(), 8u);  // small ones travel in the header
  const auto named = client->Execute({.fingerprint = Fingerprint{}}, {{"in0", x}, {"in1", x}});
  ASSERT_OK(named);
  EXPECT_EQ(service_.requests().back().inputs(1).name(), "in1");
  EXPECT_TRUE(named->outputs[1].tensor.bytes() == x.bytes());
}

TEST_F(ClientTensorsTest, OutputsThatDoNotFitIntoAMessageAreStreamed) {
  service_.too_large = true;
  const auto client = Connect();
  const auto result = client->Execute(Spec(), {{"w", Counting(2)}, {"x", Counting(3)}});
  ASSERT_OK(result);
  EXPECT_TRUE(result->outputs[0].tensor.bytes() == Counting(3).bytes());
  const auto kept = client->Execute(Spec(), {{"w", Counting(2)}, {"x", Counting(3)}}, {.keep = {{"y", {"h"}}}});
  EXPECT_THAT(kept, StatusIs(absl::StatusCode::kResourceExhausted, "larger than max"));
}

TEST_F(ClientTensorsTest, HandlesAndKeptOutputsTravelByTheirNames) {
  const auto client = Connect();
  ASSERT_OK(client->PutTensor(Counting(2), {.handle = "weights"}));
  for (const char* name : {"y", "out0"}) {
    const auto result = client->Execute(Spec(), {{"x", Counting(5)}, {"w", {}, "weights"}},
                                        {.keep = {{"y", {"h", absl::Seconds(9)}}}, .device = 3});
    ASSERT_OK(result);
    ASSERT_EQ(result->outputs.size(), 1u);
    EXPECT_EQ(result->outputs[0].name, "z");
    EXPECT_TRUE(result->outputs[0].tensor.bytes() == Counting(2).bytes());
    ASSERT_EQ(result->kept.size(), 1u);
    EXPECT_EQ(result->kept[0].name, "y");
    EXPECT_EQ(result->kept[0].handle, "h");
    EXPECT_EQ(result->kept[0].shape, Shape{5});
    EXPECT_EQ(result->kept[0].lease, absl::Seconds(9));
    const v1::ExecuteRequest request = service_.requests().back();
    EXPECT_EQ(request.inputs(1).handle(), "weights");
    EXPECT_EQ(request.kept_outputs(0).name(), name);
    EXPECT_EQ(request.device(), 3);
  }
  const auto both =
      client->Execute(Spec(), {{"x", Counting(5)}, {"w", {}, "weights"}}, {.outputs = {"y"}, .keep = {{"y", {"h"}}}});
  ASSERT_OK(both);
  ASSERT_EQ(both->outputs.size(), 1u);
  EXPECT_EQ(both->outputs[0].name, "y");
  EXPECT_EQ(both->kept.size(), 1u);
  const size_t before = service_.requests().size();
  EXPECT_THAT(client->Execute(Spec(), {{"x", Counting(5)}, {"w", {}, "weights"}}, {.keep = {{"q", {}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no output 'q'"));
  EXPECT_EQ(service_.requests().size(), before);
}

TEST_F(ClientTensorsTest, WrongNumberOfKeptOutputsIsInternal) {
  service_.edit_response = [](v1::ExecuteResponse& response) { response.clear_kept(); };
  EXPECT_THAT(Connect()->Execute(Spec(), {{"x", Counting(5)}, {"w", Counting(2)}}, {.keep = {{"y", {"h"}}}}),
              StatusIs(absl::StatusCode::kInternal, "kept 0 outputs of 1"));
}

TEST_F(ClientTensorsTest, OwnerMustBePrintable) {
  EXPECT_THAT(Client::Connect(address_, {.owner = "a\nb"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "owner"));
  EXPECT_THAT(Client::Connect(address_, {.owner = std::string(129, 'a')}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "owner"));
}

}  // namespace
}  // namespace fuseline::client
