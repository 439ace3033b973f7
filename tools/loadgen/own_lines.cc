#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/json_lines.h"
#include "tools/loadgen/line_sessions.h"
#include "tools/loadgen/recorded_dialogues.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

constexpr double kMostSeconds = 1e9;

absl::Status ReadIds(const Json& ids, Turn* turn) {
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"prompt\" holds ", id.dump(), ", which is no token id"));
    }
    turn->token_ids.push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadMessages(const Json& messages, Turn* turn) {
  for (const Json& message : messages) {
    const auto role = StringField(message, "role");
    if (!role.ok()) return role.status();
    const auto content = StringField(message, "content");
    if (!content.ok()) return content.status();
    turn->messages.push_back({*role, *content});
  }
  return absl::OkStatus();
}

absl::Status ReadPrompt(const Json& object, Turn* turn) {
  const auto prompt = object.find("prompt");
  const auto messages = object.find("messages");
  if ((prompt == object.end()) == (messages == object.end())) {
    return absl::InvalidArgumentError("needs one of \"prompt\" and \"messages\"");
  }
  if (messages != object.end()) {
    if (!messages->is_array() || messages->empty()) {
      return absl::InvalidArgumentError("\"messages\" is no array of messages");
    }
    return ReadMessages(*messages, turn);
  }
  if (prompt->is_string()) {
    turn->messages.push_back({"user", prompt->get<std::string>()});
    return absl::OkStatus();
  }
  if (!prompt->is_array() || prompt->empty()) {
    return absl::InvalidArgumentError("\"prompt\" is neither a string nor an array of token ids");
  }
  return ReadIds(*prompt, turn);
}

class OwnLines final : public LineSessions {
 public:
  OwnLines(const DialogueOptions& options, std::unique_ptr<JsonLines> lines)
      : LineSessions(std::move(lines)), options_(options) {}

 private:
  absl::Status ReadSession(const Json& object, Session* session) const override {
    if (object.contains("start_s")) {
      const auto start = NumberField(object, "start_s", 0, kMostSeconds);
      if (!start.ok()) return start.status();
      session->start_s = *start;
    }
    const auto turns = object.find("turns");
    if (turns == object.end()) return ReadTurn(object, session);
    if (!turns->is_array() || turns->empty()) {
      return absl::InvalidArgumentError("\"turns\" is no array of turns");
    }
    for (const Json& turn : *turns) {
      if (!turn.is_object()) return absl::InvalidArgumentError("a turn is no object");
      const absl::Status read = ReadTurn(turn, session);
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTurn(const Json& object, Session* session) const {
    Turn& turn = session->turns.emplace_back();
    if (session->turns.size() > 1) turn.think_s = options_.think_s;
    if (object.contains("max_tokens")) {
      const auto tokens = CountField(object, "max_tokens", 1);
      if (!tokens.ok()) return tokens.status();
      turn.output_tokens = *tokens;
    }
    if (options_.output_tokens > 0) turn.output_tokens = options_.output_tokens;
    if (options_.most_output_tokens > 0) {
      turn.output_tokens = std::min(turn.output_tokens, options_.most_output_tokens);
    }
    if (object.contains("think_s")) {
      const auto think = NumberField(object, "think_s", 0, kMostSeconds);
      if (!think.ok()) return think.status();
      turn.think_s = *think;
    }
    return ReadPrompt(object, &turn);
  }

  const DialogueOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> OpenOwnLines(const DialogueOptions& options) {
  auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  return std::make_unique<OwnLines>(options, *std::move(lines));
}

}  // namespace refrain::loadgen
