// Requests that must be refused, as data: what is sent, and what the answer must say.
// Pipeline: BadInput -> a server over gRPC -> a status with this reason, naming what is wrong. Thread-safety: pure
// functions. Used by bad_inputs_test.cc alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/status/error.h"

namespace fuseline::testing {

struct BadInput {
  std::string name;
  std::string method;                 // "fuseline.v1.CompileService.Compile"
  std::vector<std::string> messages;  // serialised; more than one for streams alone
  ErrorReason reason = ErrorReason::kUnspecified;
  std::string text;  // part of the message
};

// The bounds of the server that they are sent to, which some of them pass.
inline constexpr int64_t kMaxNodes = 1000;
inline constexpr int64_t kMaxRank = 8;
inline constexpr int64_t kMaxElements = int64_t{1} << 20;
inline constexpr int64_t kMaxConstantBytes = 4096;
inline constexpr int64_t kMaxTextBytes = int64_t{64} << 10;
inline constexpr int64_t kMaxMessageBytes = int64_t{1} << 20;
inline constexpr int64_t kTensorQuotaBytes = 64 << 10;

std::vector<BadInput> BadGraphSyntax();     // bad_graph_texts.cc
std::vector<BadInput> BadGraphStructure();  // bad_graph_texts.cc
std::vector<BadInput> BadTypes();           // bad_types.cc
std::vector<BadInput> BadGraphMessages();   // bad_graph_messages.cc
std::vector<BadInput> BadRequests();        // bad_requests.cc
std::vector<BadInput> BadTensors();         // bad_tensors.cc
std::vector<BadInput> BadStreams();         // bad_streams.cc

// The code that goes with the reason, as docs/errors.md has it.
absl::StatusCode CodeOf(ErrorReason reason);

// "graph g(SIGNATURE) {…}" around the statements, with "return %a" after them unless they return something.
std::string GraphText(std::string_view signature, std::string_view statements);
// A request to compile the text, for the cpu.
BadInput CompileText(std::string_view name, std::string_view text, ErrorReason reason, std::string_view error);
// Messages in protobuf's text form, of the method's request type ("CompileService.Compile").
BadInput Request(std::string_view name, std::string_view method, const std::vector<std::string>& messages,
                 ErrorReason reason, std::string_view error);

// The handle of a kept tensor, i32[2], that every row finds there.
inline constexpr char kTakenHandle[] = "taken";

// A graph that is right: y = 2 x + 1 of x: f32[4]. As the field graph_text of a spec.
std::string GoodText();

}  // namespace fuseline::testing
