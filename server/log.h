#ifndef REFRAIN_SERVER_LOG_H_
#define REFRAIN_SERVER_LOG_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace refrain::server {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

// One `name=value` of a line. Keep names short and stable: people search for them.
struct LogField {
  LogField(std::string_view name, std::string_view value) : name(name), value(value) {}
  LogField(std::string_view name, const char* value) : name(name), value(value) {}
  LogField(std::string_view name, const std::string& value) : name(name), value(value) {}
  LogField(std::string_view name, int64_t value)
      : name(name), value(std::to_string(value)), is_number(true) {}
  LogField(std::string_view name, int value) : LogField(name, int64_t{value}) {}
  LogField(std::string_view name, double value);  // finite

  std::string_view name;
  std::string value;
  bool is_number = false;  // a number in JSON, too
};

// The daemon's log, to standard error: one line per event, for people
// (`2026-01-02T03:04:05.678Z info listening http=127.0.0.1:8000`) or as JSON lines. Values are
// quoted and escaped, so that what a client sends cannot forge a line. It does not rotate files:
// systemd and containers do. Any thread; never fails, a line that cannot be written is lost.
class Log {
 public:
  Log(LogFormat format, LogLevel level);
  ~Log();

  void Debug(std::string_view event, std::initializer_list<LogField> fields = {});
  void Info(std::string_view event, std::initializer_list<LogField> fields = {});
  void Warn(std::string_view event, std::initializer_list<LogField> fields = {});
  void Error(std::string_view event, std::initializer_list<LogField> fields = {});

 private:
  void Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

  struct Sink;  // keeps spdlog out of every file that logs
  const LogFormat format_;
  const LogLevel level_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_LOG_H_
