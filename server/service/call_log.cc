#include "server/service/call_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace fuseline::service {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

// JSON's escapes serve both formats. `replace`: what is no UTF-8 becomes U+FFFD.
std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

bool IsPlain(const std::string& text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                       c == '_' || c == '-' || c == '/' || c == ':' || c == '[' || c == ']' || c == '%';
    if (!plain) return false;
  }
  return true;
}

bool IsNumber(const std::string& text) {
  if (text.empty() || text.size() > 18) return false;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
  }
  return text == "0" || text[0] != '0';
}

std::string FormatAt(LogFormat format, const std::string& time, LogLevel level, const std::string& event,
                     const LogFields& fields) {
  std::string line;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (format == LogFormat::kJson) {
      absl::StrAppend(&line, line.empty() ? "{" : ", ", Quote(name), ": ", IsNumber(value) ? value : Quote(value));
    } else {
      absl::StrAppend(&line, line.empty() ? "" : " ", name, "=", IsPlain(value) ? value : Quote(value));
    }
  };
  if (!time.empty()) add("time", time);
  add("level", LevelName(level));
  add("event", event);
  for (const auto& [name, value] : fields) add(name, value);
  if (format == LogFormat::kJson) line += "}";
  return line;
}

std::string TimeNow() { return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()); }

}  // namespace

std::string FormatLogLine(LogFormat format, LogLevel level, const std::string& event, const LogFields& fields) {
  return FormatAt(format, "", level, event, fields);
}

LogFields CallFields(const CallRecord& record) {
  LogFields fields = {{"request_id", record.request_id},
                      {"method", record.method},
                      {"code", record.code},
                      {"latency_us", absl::StrCat(record.latency_micros)},
                      {"queue_us", absl::StrCat(record.queue_micros)},
                      {"request_bytes", absl::StrCat(record.request_bytes)},
                      {"response_bytes", absl::StrCat(record.response_bytes)},
                      {"peer", record.peer}};
  if (!record.owner.empty()) fields.emplace_back("owner", record.owner);
  if (!record.notes.outcome.empty()) fields.emplace_back("cache", record.notes.outcome);
  const auto add_micros = [&](const char* name, int64_t micros) {
    if (micros >= 0) fields.emplace_back(name, absl::StrCat(micros));
  };
  add_micros("build_us", record.notes.build_micros);
  add_micros("device_queue_us", record.notes.device_queue_micros);
  add_micros("run_us", record.notes.run_micros);
  if (!record.reason.empty()) fields.emplace_back("reason", record.reason);
  if (!record.message.empty()) fields.emplace_back("message", record.message);
  return fields;
}

class Logger::Impl {
 public:
  Impl(LogFormat format, LogLevel least, std::unique_ptr<LineFile> access_log)
      : format(format),
        least(least),
        access_log(std::move(access_log)),
        out("fuseline", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    out.set_pattern("%v");  // the line has everything
    out.flush_on(spdlog::level::trace);
  }
  const LogFormat format;
  const LogLevel least;
  const std::unique_ptr<LineFile> access_log;  // may be null
  std::atomic<bool> access_log_failed{false};
  spdlog::logger out;  // thread-safe
};

Logger::Logger(LogFormat format, LogLevel least, std::unique_ptr<LineFile> access_log)
    : impl_(std::make_unique<Impl>(format, least, std::move(access_log))) {}
Logger::~Logger() = default;

void Logger::Log(LogLevel level, const std::string& event, const LogFields& fields) const {
  if (level < impl_->least || level == LogLevel::kOff) return;
  impl_->out.log(spdlog::level::info, spdlog::string_view_t(FormatAt(impl_->format, TimeNow(), level, event, fields)));
}

void Logger::LogCall(const CallRecord& record) const {
  const bool ours = record.code == "INTERNAL" || record.code == "DATA_LOSS";
  const LogLevel level = ours ? LogLevel::kError : LogLevel::kInfo;
  if (impl_->access_log == nullptr) {
    if (level >= impl_->least) Log(level, "call", CallFields(record));
    return;
  }
  const LogFields fields = CallFields(record);
  const absl::Status written = impl_->access_log->Write(FormatAt(impl_->format, TimeNow(), level, "call", fields));
  if (impl_->access_log_failed.exchange(!written.ok()) == written.ok()) {
    if (written.ok()) {
      Log(LogLevel::kWarning, "access-log-recovered", {});
    } else {
      Log(LogLevel::kError, "access-log-failed", {{"message", std::string(written.message())}});
    }
  }
  if (ours) Log(level, "call", fields);
}

void Logger::ReopenAccessLog() const {
  if (impl_->access_log == nullptr) return;
  const absl::Status status = impl_->access_log->Reopen();
  if (!status.ok()) Log(LogLevel::kError, "access-log-failed", {{"message", std::string(status.message())}});
}

}  // namespace fuseline::service
