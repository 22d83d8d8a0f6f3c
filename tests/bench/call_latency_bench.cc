// What a call costs, against an empty call of gRPC.
//   call_latency_bench [SECONDS]       of each line, default 2
// Client and servers are two processes on this machine, every client thread has a channel of its own. The empty call is
// answered on gRPC's thread; the others are a compilation that hits, without and with the artifact in the answer, and
// the run of a small graph on the CPU. Prints microseconds (median and 99th percentile), calls a second, and the
// ratios.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "tests/bench/server_pair.h"

namespace fuseline::bench {
namespace {

constexpr char kGraph[] =
    "graph g(x: f32[64], w: f32[64], b: f32[64]) {\n  %t = mul(x, w)\n  %u = add(%t, b)\n  %y = sigmoid(%u)\n"
    "  return y = %y\n}\n";

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Makes one call; the maker is called once for each client.
using Call = std::function<grpc::Status()>;
using MakeCall = std::function<Call()>;

struct Figures {
  double p50_micros = 0;
  double p99_micros = 0;
  double calls_per_second = 0;
};

absl::StatusOr<Figures> Measure(const MakeCall& make_call, int clients, absl::Duration time) {
  std::vector<std::vector<double>> micros(static_cast<size_t>(clients));
  std::vector<grpc::Status> failures(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  const absl::Time begin = absl::Now() + absl::Milliseconds(300);  // until then everybody warms up
  const absl::Time end = begin + time;
  for (size_t c = 0; c < micros.size(); ++c) {
    threads.emplace_back([&, c] {
      const Call call = make_call();
      for (absl::Time start = absl::Now(); start < end;) {
        const grpc::Status status = call();
        const absl::Time now = absl::Now();
        if (!status.ok()) {
          failures[c] = status;
          return;
        }
        if (start >= begin) micros[c].push_back(absl::ToDoubleMicroseconds(now - start));
        start = now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (size_t c = 0; c < micros.size(); ++c) {
    if (!failures[c].ok()) return Internal(failures[c].error_message());
    all.insert(all.end(), micros[c].begin(), micros[c].end());
  }
  if (all.empty()) return Internal("no call was done in time");
  std::sort(all.begin(), all.end());
  return Figures{all[all.size() / 2], all[all.size() * 99 / 100],
                 static_cast<double>(all.size()) / absl::ToDoubleSeconds(time)};
}

absl::Status Run(absl::Duration time) {
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<ServerPair> servers, ServerPair::Start());
  std::string fingerprint;
  {
    grpc::ClientContext context;
    v1::CompileRequest request;
    request.mutable_spec()->set_graph_text(kGraph);
    request.mutable_spec()->set_target("cpu");
    v1::CompileResponse response;
    const grpc::Status status =
        v1::CompileService::NewStub(Connect(servers->fuseline_address()))->Compile(&context, request, &response);
    if (!status.ok()) return Internal(status.error_message());
    fingerprint = response.summary().fingerprint();
  }
  const auto empty = [&]() -> Call {
    const std::shared_ptr<v1::ExecuteService::Stub> stub =
        v1::ExecuteService::NewStub(Connect(servers->plain_address()));
    return [stub] {
      grpc::ClientContext context;
      v1::DeleteTensorResponse response;
      return stub->DeleteTensor(&context, v1::DeleteTensorRequest(), &response);
    };
  };
  const auto compile = [&](bool omit_artifact) -> MakeCall {
    return [&, omit_artifact]() -> Call {
      const std::shared_ptr<v1::CompileService::Stub> stub =
          v1::CompileService::NewStub(Connect(servers->fuseline_address()));
      v1::CompileRequest request;
      request.mutable_spec()->set_fingerprint(fingerprint);
      request.set_omit_artifact(omit_artifact);
      return [stub, request] {
        grpc::ClientContext context;
        v1::CompileResponse response;
        return stub->Compile(&context, request, &response);
      };
    };
  };
  const auto execute = [&]() -> Call {
    const std::shared_ptr<v1::ExecuteService::Stub> stub =
        v1::ExecuteService::NewStub(Connect(servers->fuseline_address()));
    v1::ExecuteRequest request;
    request.mutable_spec()->set_fingerprint(fingerprint);
    for (int i = 0; i < 3; ++i) {
      v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->add_shape(64);
      tensor->set_data(std::string(64 * 4, '\0'));
    }
    return [stub, request] {
      grpc::ClientContext context;
      v1::ExecuteResponse response;
      return stub->Execute(&context, request, &response);
    };
  };
  const std::pair<std::string, MakeCall> lines[] = {{"empty call", empty},
                                                    {"hit, no artifact", compile(true)},
                                                    {"hit, artifact", compile(false)},
                                                    {"run, 3 x f32[64]", execute}};
  std::cout << "clients  call               p50 us  p99 us   calls/s  p50 ratio  calls ratio\n";
  for (const int clients : {1, 8}) {
    Figures base;
    for (const auto& [name, make_call] : lines) {
      FUSELINE_ASSIGN_OR_RETURN(const Figures figures, Measure(make_call, clients, time));
      if (base.calls_per_second == 0) base = figures;
      std::cout << absl::StreamFormat("%7d  %-17s  %6.0f  %6.0f  %8.0f  %9.2f  %11.2f\n", clients, name,
                                      figures.p50_micros, figures.p99_micros, figures.calls_per_second,
                                      figures.p50_micros / base.p50_micros,
                                      figures.calls_per_second / base.calls_per_second);
      std::cout << std::flush;
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace fuseline::bench

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const absl::Status status = fuseline::bench::Run(absl::Seconds(std::clamp(seconds, 0.1, 600.0)));
  if (status.ok()) return 0;
  std::cerr << "error: " << status << "\n";
  return 1;
}
