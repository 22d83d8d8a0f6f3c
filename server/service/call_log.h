// One log line for each call, and for what the server has to say: key=value text or JSON, to the standard error; those
// of calls to a file of their own where there is one.
// Thread-safety: thread-safe.
// Tested by tests/unit/service/call_log_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/service/call_context.h"
#include "server/service/line_file.h"

namespace fuseline::service {

// What is known of a call when it ends.
struct CallRecord {
  std::string request_id;
  std::string method;   // "CompileService/Compile"
  std::string code;     // "OK", "NOT_FOUND"
  std::string reason;   // of an error, else empty
  std::string message;  // of an error, else empty
  std::string peer;
  std::string owner;
  int64_t latency_micros = 0;  // from the request's arrival to its answer
  int64_t queue_micros = 0;    // of these, waiting for a thread
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  CallNotes notes;
};
using CallLog = std::function<void(const CallRecord&)>;

enum class LogFormat : uint8_t { kText, kJson };
enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

using LogFields = std::vector<std::pair<std::string, std::string>>;

// The line without its time: "event=call level=info …", or a JSON object. Strings are escaped: a line stays a line
// whatever a client sends.
std::string FormatLogLine(LogFormat format, LogLevel level, const std::string& event, const LogFields& fields);
// The fields of a call's line.
LogFields CallFields(const CallRecord& record);

// Calls are logged at info, errors that are ours (INTERNAL, DATA_LOSS) at error. An access log gets all calls, and the
// standard error then those errors alone. What can't be written is lost, and said once.
class Logger {
 public:
  Logger(LogFormat format, LogLevel least, std::unique_ptr<LineFile> access_log = nullptr);
  ~Logger();
  // The access log goes on in a new file of the same name.
  void ReopenAccessLog() const;
  void Log(LogLevel level, const std::string& event, const LogFields& fields) const;
  void LogCall(const CallRecord& record) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fuseline::service
