#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/json_fields.h"
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

absl::Status ReadTurn(const DialogueOptions& options, const Json& object, Session* session) {
  Turn& turn = session->turns.emplace_back();
  if (session->turns.size() > 1) turn.think_s = options.think_s;
  if (object.contains("max_tokens")) {
    const auto tokens = CountField(object, "max_tokens", 1);
    if (!tokens.ok()) return tokens.status();
    turn.output_tokens = *tokens;
  }
  if (options.output_tokens > 0) turn.output_tokens = options.output_tokens;
  if (options.most_output_tokens > 0) {
    turn.output_tokens = std::min(turn.output_tokens, options.most_output_tokens);
  }
  if (object.contains("think_s")) {
    const auto think = NumberField(object, "think_s", 0, kMostSeconds);
    if (!think.ok()) return think.status();
    turn.think_s = *think;
  }
  return ReadPrompt(object, &turn);
}

absl::Status ReadLine(const DialogueOptions& options, const Json& object, Session* session) {
  if (object.contains("start_s")) {
    const auto start = NumberField(object, "start_s", 0, kMostSeconds);
    if (!start.ok()) return start.status();
    session->start_s = *start;
  }
  const auto turns = object.find("turns");
  if (turns == object.end()) return ReadTurn(options, object, session);
  if (!turns->is_array() || turns->empty()) {
    return absl::InvalidArgumentError("\"turns\" is no array of turns");
  }
  for (const Json& turn : *turns) {
    if (!turn.is_object()) return absl::InvalidArgumentError("a turn is no object");
    const absl::Status read = ReadTurn(options, turn, session);
    if (!read.ok()) return read;
  }
  return absl::OkStatus();
}

// Of a session that was read from `line`. Its error says why there is none.
absl::StatusOr<PromptForm> FormOf(const Session& session, const Json& line,
                                  const DialogueOptions& options) {
  const std::optional<PromptForm> asked = options.form;
  const auto is_ids = [](const Turn& turn) { return !turn.token_ids.empty(); };
  const bool has_ids = std::any_of(session.turns.begin(), session.turns.end(), is_ids);
  const bool has_text = !std::all_of(session.turns.begin(), session.turns.end(), is_ids);
  if (has_ids && has_text) {
    return absl::InvalidArgumentError("has turns of token ids and of text, which no form can send");
  }
  if (has_ids && options.text_only) {
    return absl::InvalidArgumentError(
        "is token ids, which --repeat=on cannot make new; --repeat=same sends them again");
  }
  if (!asked.has_value()) {
    if (has_ids) return PromptForm::kTokenIds;
    const bool is_chat = line.contains("turns") || line.contains("messages");
    return is_chat ? PromptForm::kChat : PromptForm::kText;
  }
  if (has_text && *asked == PromptForm::kTokenIds) {
    return absl::InvalidArgumentError("is text, which --prompt-form=token_ids cannot send");
  }
  if (has_ids && *asked != PromptForm::kTokenIds) {
    return absl::InvalidArgumentError(
        "is token ids, which only --prompt-form=token_ids and auto can send");
  }
  return *asked;
}

class OwnLines final : public LineSessions {
 public:
  OwnLines(const DialogueOptions& options, std::unique_ptr<JsonLines> lines)
      : LineSessions(std::move(lines)), options_(options) {}

 private:
  absl::Status ReadSession(const Json& object, Session* session) const override {
    const absl::Status read = ReadLine(options_, object, session);
    if (!read.ok()) return read;
    const absl::StatusOr<PromptForm> form = FormOf(*session, object, options_);
    if (!form.ok()) return form.status();
    session->form = *form;
    return absl::OkStatus();
  }

  const DialogueOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> OpenOwnLines(const DialogueOptions& options) {
  auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  return std::make_unique<OwnLines>(options, *std::move(lines));
}

absl::Status CheckFormOfOwnLines(const DialogueOptions& options) {
  const auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  Json line;
  for (;;) {
    const absl::StatusOr<bool> read = (*lines)->Next(&line);
    if (!read.ok() || !*read) return absl::OkStatus();
    Session session;
    if (!ReadLine(options, line, &session).ok()) return absl::OkStatus();
    const absl::StatusOr<PromptForm> form = FormOf(session, line, options);
    if (!form.ok()) return (*lines)->Error(form.status().message());
  }
}

}  // namespace refrain::loadgen
