#include "tests/conformance/bad_inputs.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fuseline/v1/admin_service.pb.h"
#include "fuseline/v1/compile_service.pb.h"
#include "fuseline/v1/execute_service.pb.h"
#include "gtest/gtest.h"

namespace fuseline::testing {

absl::StatusCode CodeOf(ErrorReason reason) {
  switch (reason) {
    case ErrorReason::kFingerprintUnknown:
    case ErrorReason::kHandleUnknown:
      return absl::StatusCode::kNotFound;
    case ErrorReason::kTargetNotAvailable:
      return absl::StatusCode::kFailedPrecondition;
    case ErrorReason::kUnsupported:
      return absl::StatusCode::kUnimplemented;
    case ErrorReason::kQuota:
      return absl::StatusCode::kResourceExhausted;
    case ErrorReason::kHandleTaken:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kInvalidArgument;
  }
}

std::string GraphText(std::string_view signature, std::string_view statements) {
  const bool returns = statements.find("return") != std::string_view::npos;
  return absl::StrCat("graph g(", std::string(signature), ") {\n  ", std::string(statements),
                      returns ? "" : "\n  return %a", "\n}\n");
}

BadInput CompileText(std::string_view name, std::string_view text, ErrorReason reason, std::string_view error) {
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(std::string(text));
  request.mutable_spec()->set_target("cpu");
  return {std::string(name),
          "fuseline.v1.CompileService.Compile",
          {request.SerializeAsString()},
          reason,
          std::string(error)};
}

BadInput Request(std::string_view name, std::string_view method, const std::vector<std::string>& messages,
                 ErrorReason reason, std::string_view error) {
  BadInput input{std::string(name), absl::StrCat("fuseline.v1.", std::string(method)), {}, reason, std::string(error)};
  // The services' descriptors are in the generated code, which has to be linked.
  v1::GetCacheStatsRequest().GetDescriptor();
  const google::protobuf::MethodDescriptor* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(input.method);
  EXPECT_NE(descriptor, nullptr) << method;
  if (descriptor == nullptr) return input;
  for (const std::string& text : messages) {
    const std::unique_ptr<google::protobuf::Message> message(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor->input_type())->New());
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, message.get())) << name << ": " << text;
    input.messages.push_back(message->SerializePartialAsString());
  }
  return input;
}

std::string GoodText() {
  return "graph_text: \"graph g(x: f32[4]) {\\n  %a = mul(x, 2.0)\\n  %b = add(%a, 1.0)\\n  return y = %b\\n}\"";
}

}  // namespace fuseline::testing
