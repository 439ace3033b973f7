#ifndef REFRAIN_TOOLS_LOADGEN_LINE_SESSIONS_H_
#define REFRAIN_TOOLS_LOADGEN_LINE_SESSIONS_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tools/loadgen/json_lines.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

// A workload whose every line is one session. Private to the readers.
class LineSessions : public Workload {
 public:
  explicit LineSessions(std::unique_ptr<JsonLines> lines) : lines_(std::move(lines)) {}

  absl::StatusOr<std::optional<Session>> Next() final {
    nlohmann::json object;
    const absl::StatusOr<bool> read = lines_->Next(&object);
    if (!read.ok()) return read.status();
    if (!*read) return std::optional<Session>();
    Session session;
    const absl::Status parsed = ReadSession(object, &session);
    if (!parsed.ok()) return lines_->Error(parsed.message());
    return std::optional<Session>(std::move(session));
  }

 private:
  // What is wrong with the object, else OK and at least one turn.
  virtual absl::Status ReadSession(const nlohmann::json& object, Session* session) const = 0;

  const std::unique_ptr<JsonLines> lines_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_LINE_SESSIONS_H_
