// What large tensors cost on their way, against gRPC streams that only move the bytes.
//   tensor_transfer_bench [MIB …]      default: 1 16 64
// Client and servers are two processes on this machine. For each size and direction, rounds in which both take turns:
// GB/s of the plain stream and of Fuseline in their best rounds, the ratio of these, and the ratio of the medians (on a
// busy machine the best rounds say more). "run" goes both ways: ExecuteStream of a graph with one op, whose time on the
// device is taken off in the last column.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/stream_call.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/execute_service.pb.h"
#include "tests/bench/server_pair.h"

namespace fuseline::bench {
namespace {

constexpr char kGraph[] = "graph g(x: f32[n]) {\n  %y = neg(x)\n  return y = %y\n}\n";

// The plain streams, with the steps that the client library takes, without a tensor to fill.
class PlainClient {
 public:
  explicit PlainClient(const std::string& address) : block_(kPlainChunkBytes, 'x') {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  absl::Status Up(int64_t bytes) { return Stream("PutTensor", bytes, 0); }
  absl::Status Down(int64_t bytes) {
    v1::GetTensorRequest request;
    request.set_handle(absl::StrCat(bytes));
    const grpc::Slice slice(request.SerializeAsString());
    return Stream("GetTensor", 0, bytes, grpc::ByteBuffer(&slice, 1));
  }
  absl::Status Both(int64_t bytes) { return Stream("ExecuteStream", bytes, bytes); }

 private:
  absl::Status Stream(const std::string& method, int64_t up, int64_t down, const grpc::ByteBuffer& first = {}) {
    grpc::ClientContext context;
    client::StreamCall call(channel_, context, absl::StrCat("/fuseline.v1.ExecuteService/", method));
    bool ok = !first.Valid() || call.Write(first);
    while (ok && up > 0) {
      const int64_t size = std::min(up, kPlainChunkBytes);
      const grpc::Slice slice(block_.data(), static_cast<size_t>(size), grpc::Slice::STATIC_SLICE);
      ok = call.Write(grpc::ByteBuffer(&slice, 1));
      up -= size;
    }
    ok = ok && call.WritesDone();
    grpc::ByteBuffer message;
    while (ok && call.Read(message)) down -= static_cast<int64_t>(message.Length());
    const grpc::Status status = call.Finish();
    if (!status.ok()) return Internal(status.error_message());
    return down == 0 ? absl::OkStatus() : Internal("the plain server sent another number of bytes");
  }

  std::vector<char> block_;
  std::shared_ptr<grpc::Channel> channel_;
};

struct Times {
  double best = 0;
  double median = 0;
};

Times Summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

absl::StatusOr<double> Seconds(const std::function<absl::Status()>& work) {
  const absl::Time start = absl::Now();
  FUSELINE_RETURN_IF_ERROR(work());
  return absl::ToDoubleSeconds(absl::Now() - start);
}

struct Row {
  std::string name;
  Times plain;
  Times fuseline;
  Times without_device;
};

absl::StatusOr<std::vector<Row>> Measure(PlainClient& plain, client::Client& client, int64_t bytes) {
  const int rounds = bytes > (8 << 20) ? 15 : 60;
  Tensor tensor = Tensor::Allocate(DType::kF32, {bytes / 4});
  std::memset(tensor.data(), 1, static_cast<size_t>(bytes));
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(kGraph));
  const client::CompileSpec spec = {.graph = std::make_shared<const Graph>(std::move(graph)), .target = Target::Cpu()};
  std::vector<double> times[3][2];
  std::vector<double> without_device;
  FUSELINE_RETURN_IF_ERROR(client.PutTensor(tensor, {.handle = "down"}).status());
  // The first two rounds warm up: connections, compilation, memory.
  for (int round = -2; round < rounds; ++round) {
    double device = 0;
    const std::function<absl::Status()> works[3][2] = {
        {[&] { return plain.Up(bytes); }, [&] { return client.PutTensor(tensor, {.handle = "up"}).status(); }},
        {[&] { return plain.Down(bytes); }, [&] { return client.GetTensor("down").status(); }},
        {[&] { return plain.Both(bytes); },
         [&]() -> absl::Status {
           FUSELINE_ASSIGN_OR_RETURN(const client::ExecuteResult result, client.Execute(spec, {{"x", tensor}}));
           device = absl::ToDoubleSeconds(result.run_time + result.queue_time);
           return absl::OkStatus();
         }}};
    for (int w = 0; w < 3; ++w) {
      for (int side = 0; side < 2; ++side) {
        FUSELINE_ASSIGN_OR_RETURN(const double seconds, Seconds(works[w][side]));
        if (round >= 0) times[w][side].push_back(seconds);
      }
    }
    if (round >= 0) without_device.push_back(times[2][1].back() - device);
    FUSELINE_RETURN_IF_ERROR(client.DeleteTensor("up"));
  }
  FUSELINE_RETURN_IF_ERROR(client.DeleteTensor("down"));
  const char* const names[3] = {"up", "down", "run"};
  std::vector<Row> rows;
  for (int w = 0; w < 3; ++w) {
    const Times fuseline = Summarize(times[w][1]);
    rows.push_back({names[w], Summarize(times[w][0]), fuseline, w == 2 ? Summarize(without_device) : fuseline});
  }
  return rows;
}

absl::Status Run(const std::vector<int64_t>& sizes) {
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<ServerPair> servers, ServerPair::Start());
  PlainClient plain(servers->plain_address());
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client,
                            client::Client::Connect(servers->fuseline_address()));
  std::cout << "   MiB  what  plain GB/s  fuseline GB/s  ratio  of medians  without the device\n";
  for (const int64_t mib : sizes) {
    const int64_t bytes = mib << 20;
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Row> rows, Measure(plain, *client, bytes));
    for (const Row& row : rows) {
      const double moved = static_cast<double>(bytes) * (row.name == "run" ? 2 : 1) / 1e9;
      std::cout << absl::StreamFormat("%6d  %-4s  %10.2f  %13.2f  %5.2f  %10.2f  %18.2f\n", mib, row.name,
                                      moved / row.plain.best, moved / row.fuseline.best,
                                      row.plain.best / row.fuseline.best, row.plain.median / row.fuseline.median,
                                      row.plain.best / row.without_device.best);
    }
    std::cout << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace fuseline::bench

int main(int argc, char** argv) {
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::clamp(std::atoll(argv[i]), 1ll, 4096ll));
  if (sizes.empty()) sizes = {1, 16, 64};
  const absl::Status status = fuseline::bench::Run(sizes);
  if (status.ok()) return 0;
  std::cerr << "error: " << status << "\n";
  return 1;
}
