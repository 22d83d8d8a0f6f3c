// Client's calls that compile: one graph, with or without word of how far it is, and many.
// Tested by tests/unit/client/compile_calls_test.cc
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/error_details.h"
#include "client/cpp/message_codec.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::client {
namespace {

// The server's bound on a batch.
constexpr size_t kMaxBatch = 1000;

absl::StatusOr<CompileResult> ResultFromProto(const v1::CompileResponse& response, bool graph_sent,
                                              PinnedArtifacts& pinned) {
  CompileResult result;
  FUSELINE_ASSIGN_OR_RETURN(result.summary, SummaryFromProto(response.summary()));
  result.summary.graph_sent = graph_sent;
  absl::StatusOr<Artifact> artifact = ArtifactFromProto(response.artifact());
  if (!artifact.ok())
    return Internal(absl::StrCat("the server's artifact can't be decoded: ", artifact.status().message()));
  artifact->report = ReportFromProto(response.report());
  FUSELINE_RETURN_IF_ERROR(pinned.Check(*artifact));
  result.artifact = std::make_shared<const Artifact>(*std::move(artifact));
  return result;
}

absl::Status StatusFromFailure(const v1::BatchCompileFailure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  if (failure.code() < 1 || failure.code() > 16) return Internal("the server's answer has no code");
  return MakeError(code, ErrorReasonFromName(failure.reason()), failure.subject(), failure.message());
}

// What a batch's parts tell the caller's thread.
struct BatchAnswers {
  explicit BatchAnswers(size_t parts) : running(parts) {}

  absl::Mutex mutex;
  absl::CondVar news;
  std::deque<std::pair<size_t, absl::StatusOr<CompileResult>>> done ABSL_GUARDED_BY(mutex);
  size_t running ABSL_GUARDED_BY(mutex);
};

// Graphs of a batch, by position, that go to the same server first.
struct BatchPart {
  Route route;
  std::vector<size_t> positions;
};

}  // namespace

absl::Status Client::Impl::CallHedged(const v1::CompileRequest& request, v1::CompileResponse& response,
                                      const Route& route) {
  FUSELINE_RETURN_IF_ERROR(CheckMessageSize(request));
  struct Ask {
    v1::CompileResponse response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::CompileResponse>> reader;
  };
  return WithRetries(route, [&](PooledServer& server, grpc::ClientContext& context) {
    const absl::Time deadline = absl::FromChrono(context.deadline());
    grpc::ClientContext second_context;
    Ask asks[2];
    grpc::CompletionQueue queue;
    const auto ask = [&](Ask& a, PooledServer& whom, grpc::ClientContext& with) {
      a.reader = whom.stub<v1::CompileService::Stub>().AsyncCompile(&with, request, &queue);
      a.reader->Finish(&a.response, &a.status, &a);
    };
    const auto next = [&] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return static_cast<Ask*>(tag);
    };
    ask(asks[0], server, context);
    void* tag = nullptr;
    bool ok = false;
    const auto hedge_at = absl::ToChronoTime(std::min(absl::Now() + options_.hedge_delay, deadline));
    if (queue.AsyncNext(&tag, &ok, hedge_at) == grpc::CompletionQueue::GOT_EVENT) {
      response.Swap(&asks[0].response);
      return asks[0].status;
    }
    const PooledServerPtr second = Another(server, route, deadline);
    Ask* answer = nullptr;
    if (second == nullptr) {
      answer = next();
    } else {
      Prepare(second_context, deadline, route);
      ask(asks[1], *second, second_context);
      answer = next();
      if (answer->status.ok()) (answer == &asks[0] ? second_context : context).TryCancel();
      Ask* const other = next();
      // An error leaves it to the other, and a server that did not answer leaves it the error too.
      if (!answer->status.ok() &&
          (other->status.ok() || answer->status.error_code() == grpc::StatusCode::UNAVAILABLE)) {
        answer = other;
      }
    }
    response.Swap(&answer->response);
    return answer->status;
  });
}

PooledServerPtr Client::Impl::Another(const PooledServer& than, const Route& route, absl::Time deadline) {
  const absl::StatusOr<std::vector<PooledServerPtr>> servers = servers_->Order(route, deadline);
  if (!servers.ok()) return nullptr;
  for (const PooledServerPtr& server : *servers) {
    if (server.get() != &than && servers_->Check(*server, route, deadline).ok()) return server;
  }
  return nullptr;
}

absl::StatusOr<CompileResult> Client::Compile(const CompileSpec& spec, bool include_source,
                                              const StageListener& on_stage) {
  v1::CompileRequest request;
  request.set_include_source(include_source);
  v1::CompileResponse response;
  const bool hedged = impl_->options().hedge_delay != absl::InfiniteDuration();
  if (!on_stage || hedged) {
    const auto call = [&](bool, const Route& route) {
      if (hedged) return impl_->CallHedged(request, response, route);
      return impl_->Call(&v1::CompileService::Stub::Compile, request, response, route);
    };
    FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent,
                              impl_->BySpec(spec, Route::Need::kCompile, "", request, response, call));
    return ResultFromProto(response, graph_sent, impl_->pinned());
  }
  const auto stream = [&](bool, const Route& route) {
    FUSELINE_RETURN_IF_ERROR(impl_->CheckMessageSize(request));
    return impl_->WithRetries(route, [&](PooledServer& server, grpc::ClientContext& context) {
      response.Clear();
      const auto reader = server.stub<v1::CompileService::Stub>().CompileStream(&context, request);
      v1::CompileStreamResponse message;
      while (reader->Read(&message)) {
        if (message.has_response()) {
          response.Swap(message.mutable_response());
        } else if (message.stage() >= v1::COMPILE_STAGE_CACHE_CHECK && message.stage() <= v1::COMPILE_STAGE_DONE) {
          on_stage(static_cast<CompileStage>(message.stage()));  // the same numbers
        }
      }
      return reader->Finish();
    });
  };
  FUSELINE_ASSIGN_OR_RETURN(const bool graph_sent,
                            impl_->BySpec(spec, Route::Need::kCompile, "", request, response, stream));
  return ResultFromProto(response, graph_sent, impl_->pinned());
}

absl::Status Client::CompileBatch(const std::vector<CompileSpec>& specs, const BatchListener& on_result,
                                  bool include_source) {
  std::vector<v1::CompileRequest> requests;
  for (const CompileSpec& spec : specs) {
    if (spec.graph == nullptr && !spec.fingerprint.has_value())
      return InvalidArgument(ErrorReason::kOptionInvalid, "spec", "neither a graph nor a fingerprint is given");
    v1::CompileRequest& request = requests.emplace_back();
    request.set_include_source(include_source);
    if (spec.graph != nullptr) {
      SpecFieldsToProto(spec, request.mutable_spec());
      GraphToProto(*spec.graph, request.mutable_spec()->mutable_graph());
    } else {
      request.mutable_spec()->set_fingerprint(spec.fingerprint->bytes.data(), spec.fingerprint->bytes.size());
    }
  }
  // Each part is a call of its own; of one server, there is one.
  std::vector<BatchPart> parts;
  if (impl_->servers().is_single()) {
    parts.emplace_back();
    for (size_t i = 0; i < specs.size(); ++i) parts[0].positions.push_back(i);
  } else {
    std::map<std::string, size_t> part_of;  // by first server and target
    for (size_t i = 0; i < specs.size(); ++i) {
      const Route route = impl_->RouteOf(specs[i], Route::Need::kCompile);
      FUSELINE_ASSIGN_OR_RETURN(const std::string first, impl_->FirstServer(route));
      const auto [it, is_new] = part_of.emplace(absl::StrCat(first, " ", route.target), parts.size());
      if (is_new) parts.push_back({route, {}});
      parts[it->second].positions.push_back(i);
    }
  }
  const auto run = [&](const BatchPart& part, const BatchListener& deliver) -> absl::Status {
    for (size_t first = 0; first < part.positions.size(); first += kMaxBatch) {
      // What is not answered yet. A broken call is made again for these alone.
      std::map<int, size_t> open;
      for (size_t i = first; i < std::min(first + kMaxBatch, part.positions.size()); ++i)
        open.emplace(static_cast<int>(open.size()), part.positions[i]);
      FUSELINE_RETURN_IF_ERROR(impl_->WithRetries(part.route, [&](PooledServer& server, grpc::ClientContext& context) {
        v1::BatchCompileRequest batch;
        std::map<int, size_t> positions;
        for (const auto& [position, i] : open) {
          positions.emplace(batch.requests_size(), i);
          *batch.add_requests() = requests[i];
        }
        open.swap(positions);
        const auto reader = server.stub<v1::CompileService::Stub>().BatchCompile(&context, batch);
        v1::BatchCompileResponse answer;
        while (reader->Read(&answer)) {
          const auto it = open.find(answer.index());
          if (it == open.end()) continue;
          const size_t i = it->second;
          open.erase(it);
          deliver(i, answer.has_response()
                         ? ResultFromProto(answer.response(), specs[i].graph != nullptr, impl_->pinned())
                         : absl::StatusOr<CompileResult>(StatusFromFailure(answer.failure())));
        }
        return reader->Finish();
      }));
      if (!open.empty())
        return Internal(absl::StrCat("the server left ", open.size(), " graphs of a batch unanswered"));
    }
    return absl::OkStatus();
  };
  if (parts.size() == 1) return run(parts[0], on_result);
  BatchAnswers answers(parts.size());
  std::vector<absl::Status> statuses(parts.size());
  std::vector<std::thread> threads;
  for (size_t p = 0; p < parts.size(); ++p) {
    threads.emplace_back([&, p] {
      statuses[p] = run(parts[p], [&](size_t i, absl::StatusOr<CompileResult> result) {
        absl::MutexLock lock(&answers.mutex);
        answers.done.emplace_back(i, std::move(result));
        answers.news.Signal();
      });
      absl::MutexLock lock(&answers.mutex);
      --answers.running;
      answers.news.Signal();
    });
  }
  while (true) {
    std::deque<std::pair<size_t, absl::StatusOr<CompileResult>>> done;
    {
      absl::MutexLock lock(&answers.mutex);
      while (answers.done.empty() && answers.running > 0) answers.news.Wait(&answers.mutex);
      done.swap(answers.done);
    }
    if (done.empty()) break;
    for (auto& [i, result] : done) on_result(i, std::move(result));
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) FUSELINE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace fuseline::client
