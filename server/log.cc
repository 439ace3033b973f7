#include "server/log.h"

#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/utc_time.h"

namespace refrain::server {
namespace {

constexpr std::string_view kLevelNames[] = {"trace", "debug", "info", "warn", "error"};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

// Standard error. Whoever logs may be serving connections, or end the daemon: a pipe that nobody
// reads, as that of a collector which hangs, is waited for once, and then costs lines.
class StandardError : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // What was lost must not make the next line unreadable.
    if (is_torn_ && !(HasRoom() && ::write(STDERR_FILENO, "\n", 1) == 1)) return;
    is_torn_ = false;
    std::string_view left(line.data(), line.size());
    while (!left.empty() && HasRoom()) {
      // So much a pipe with room takes without waiting.
      const ssize_t written =
          ::write(STDERR_FILENO, left.data(), std::min<size_t>(left.size(), PIPE_BUF));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      left.remove_prefix(static_cast<size_t>(written));
    }
    is_torn_ = !left.empty() && left.size() < line.size();
  }
  void flush_() override {}

 private:
  bool HasRoom() {
    pollfd file = {STDERR_FILENO, POLLOUT, 0};
    is_stalled_ = ::poll(&file, 1, is_stalled_ ? 0 : kPatienceMs) == 0;
    return !is_stalled_;
  }

  static constexpr int kPatienceMs = 1000;
  bool is_stalled_ = false;
  bool is_torn_ = false;  // the last line lacks its end
};

bool IsPlain(std::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '=';
  });
}

}  // namespace

LogField::LogField(std::string_view name, double value)
    : name(name), value(Concat(value)), is_number(true) {}

struct Log::Sink {
  spdlog::logger logger;
};

Log::Log(LogFormat format, LogLevel level)
    : format_(format),
      level_(level),
      sink_(new Sink{spdlog::logger("refraind", std::make_shared<StandardError>())}) {
  sink_->logger.set_pattern("%v");
  sink_->logger.set_level(SpdlogLevel(level));
  sink_->logger.flush_on(spdlog::level::trace);
}

Log::~Log() = default;

void Log::Debug(std::string_view event, std::initializer_list<LogField> fields) {
  Write(LogLevel::kDebug, event, fields);
}
void Log::Info(std::string_view event, std::initializer_list<LogField> fields) {
  Write(LogLevel::kInfo, event, fields);
}
void Log::Warn(std::string_view event, std::initializer_list<LogField> fields) {
  Write(LogLevel::kWarn, event, fields);
}
void Log::Error(std::string_view event, std::initializer_list<LogField> fields) {
  Write(LogLevel::kError, event, fields);
}

void Log::Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < level_) return;
  const std::string_view level_name = kLevelNames[static_cast<size_t>(level)];
  std::string line;
  if (format_ == LogFormat::kJson) {
    line = "{\"ts\":\"" + UtcNow() + "\",\"level\":\"";
    line.append(level_name).append("\",\"event\":");
    AppendJsonString(event, &line);
    for (const LogField& field : fields) {
      line += ',';
      AppendJsonString(field.name, &line);
      line += ':';
      if (field.is_number) {
        line += field.value;
      } else {
        AppendJsonString(engine::ReplaceIllFormedUtf8(field.value), &line);
      }
    }
    line += '}';
  } else {
    line = UtcNow();
    line.append(" ").append(level_name).append(" ").append(event);
    for (const LogField& field : fields) {
      line.append(" ").append(field.name).append("=");
      if (IsPlain(field.value)) {
        line += field.value;
      } else {
        AppendJsonString(engine::ReplaceIllFormedUtf8(field.value), &line);
      }
    }
  }
  sink_->logger.log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace refrain::server
