#include "server/service/call_log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;

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

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(CallLogTest, AccessLogHasEveryCallAndIsOpenedAnew) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/access.log");
  std::remove(path.c_str());
  absl::StatusOr<std::unique_ptr<LineFile>> file = LineFile::Open(path);
  ASSERT_OK(file);
  const Logger logger(LogFormat::kText, LogLevel::kOff, *std::move(file));
  CallRecord record;
  record.method = "first";
  record.owner = "me";
  record.notes.outcome = "miss";
  record.notes.build_micros = 12;
  logger.LogCall(record);
  EXPECT_TRUE(absl::StrContains(Contents(path), "method=first"));
  EXPECT_TRUE(absl::StrContains(Contents(path), "owner=me cache=miss build_us=12\n")) << Contents(path);
  EXPECT_FALSE(absl::StrContains(Contents(path), "run_us"));
  const std::string rotated = absl::StrCat(path, ".1");
  ASSERT_EQ(std::rename(path.c_str(), rotated.c_str()), 0);
  record.method = "second";
  logger.LogCall(record);
  EXPECT_TRUE(absl::StrContains(Contents(rotated), "method=second"));
  logger.ReopenAccessLog();
  record.method = "third";
  logger.LogCall(record);
  EXPECT_FALSE(absl::StrContains(Contents(rotated), "method=third"));
  EXPECT_TRUE(absl::StrContains(Contents(path), "method=third"));
}

TEST(CallLogTest, FullDiskLosesLinesAndSaysSo) {
  // Every write to it fails as on a full disk.
  absl::StatusOr<std::unique_ptr<LineFile>> file = LineFile::Open("/dev/full");
  if (!file.ok()) GTEST_SKIP() << file.status();
  EXPECT_THAT((*file)->Write("line"), StatusIs(absl::StatusCode::kUnavailable, "No space left"));
  const Logger logger(LogFormat::kText, LogLevel::kOff, *std::move(file));
  logger.LogCall({});
  EXPECT_THAT(LineFile::Open("/no/such/folder/log"), StatusIs(absl::StatusCode::kUnavailable, "can't open"));
}

}  // namespace
}  // namespace fuseline::service
