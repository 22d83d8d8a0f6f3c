#include "server/service/call_log.h"

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace fuseline::service {
namespace {

CallRecord Record() {
  CallRecord record;
  record.request_id = "id-1";
  record.method = "CompileService/Compile";
  record.code = "INVALID_ARGUMENT";
  record.reason = "GRAPH_SYNTAX";
  record.message = "line 1: \"quoted\"\nnext=1";
  record.peer = "ipv4:127.0.0.1:5";
  record.latency_micros = 1234;
  record.queue_micros = 5;
  record.request_bytes = 67;
  record.response_bytes = 0;
  return record;
}

TEST(CallLogTest, TextLineQuotesWhatIsNotPlain) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, LogLevel::kInfo, "call", CallFields(Record())),
            "level=info event=call request_id=id-1 method=CompileService/Compile code=INVALID_ARGUMENT latency_us=1234 "
            "queue_us=5 "
            "request_bytes=67 response_bytes=0 peer=ipv4:127.0.0.1:5 reason=GRAPH_SYNTAX "
            "message=\"line 1: \\\"quoted\\\"\\nnext=1\"");
}

TEST(CallLogTest, JsonLineParsesAndHasNumbers) {
  const std::string line = FormatLogLine(LogFormat::kJson, LogLevel::kError, "call", CallFields(Record()));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["latency_us"], 1234);
  EXPECT_EQ(json["message"], "line 1: \"quoted\"\nnext=1");
}

TEST(CallLogTest, SuccessHasNeitherReasonNorMessage) {
  CallRecord record = Record();
  record.reason.clear();
  record.message.clear();
  const std::string line = FormatLogLine(LogFormat::kText, LogLevel::kInfo, "call", CallFields(record));
  EXPECT_EQ(line.find("reason="), std::string::npos);
  EXPECT_EQ(line.find("message="), std::string::npos);
}

TEST(CallLogTest, BytesThatAreNoUtf8StayOneReadableLine) {
  const std::string line = FormatLogLine(LogFormat::kJson, LogLevel::kInfo, "x", {{"k", "a\xff\n"}});
  EXPECT_EQ(nlohmann::json::parse(line)["k"], "a\xef\xbf\xbd\n");
}

}  // namespace
}  // namespace fuseline::service
