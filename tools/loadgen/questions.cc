#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/json_fields.h"
#include "tools/loadgen/dialogue_turns.h"
#include "tools/loadgen/json_lines.h"
#include "tools/loadgen/line_sessions.h"
#include "tools/loadgen/recorded_dialogues.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

class MtBench final : public LineSessions {
 public:
  MtBench(const DialogueOptions& options, std::unique_ptr<JsonLines> lines)
      : LineSessions(std::move(lines)), options_(options) {}

 private:
  absl::Status ReadSession(const Json& object, Session* session) const override {
    const auto turns = object.find("turns");
    if (turns == object.end() || !turns->is_array() || turns->empty()) {
      return absl::InvalidArgumentError("\"turns\" is no array of messages");
    }
    for (const Json& text : *turns) {
      if (!text.is_string()) {
        return absl::InvalidArgumentError("\"turns\" holds what is no string");
      }
      if (options_.most_turns > 0 &&
          static_cast<int32_t>(session->turns.size()) >= options_.most_turns) {
        break;
      }
      AppendTurn(options_, text.get<std::string>(), std::nullopt, session);
    }
    return absl::OkStatus();
  }

  const DialogueOptions options_;
};

class QmSum final : public Workload {
 public:
  QmSum(const DialogueOptions& options, std::unique_ptr<JsonLines> lines)
      : options_(options), lines_(std::move(lines)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    while (queries_.empty()) {
      Json object;
      const absl::StatusOr<bool> read = lines_->Next(&object);
      if (!read.ok()) return read.status();
      if (!*read) return std::optional<Session>();
      const absl::Status meeting = ReadMeeting(object);
      if (!meeting.ok()) return lines_->Error(meeting.message());
    }
    const Query query = std::move(queries_.front());
    queries_.pop_front();
    Session session;
    AppendTurn(options_, Prompt(query.question), query.answer_bytes, &session);
    return std::optional<Session>(std::move(session));
  }

 private:
  struct Query {
    std::string question;
    size_t answer_bytes = 0;
  };

  absl::Status ReadMeeting(const Json& object) {
    const auto said = object.find("meeting_transcripts");
    if (said == object.end() || !said->is_array()) {
      return absl::InvalidArgumentError("\"meeting_transcripts\" is no array");
    }
    transcript_.clear();
    for (const Json& part : *said) {
      const auto speaker = StringField(part, "speaker");
      if (!speaker.ok()) return speaker.status();
      const auto content = StringField(part, "content");
      if (!content.ok()) return content.status();
      absl::StrAppend(&transcript_, *speaker, ": ", *content, "\n");
    }
    for (const char* list : {"general_query_list", "specific_query_list"}) {
      const auto queries = object.find(list);
      if (queries == object.end()) continue;
      for (const Json& query : *queries) {
        const auto question = StringField(query, "query");
        if (!question.ok()) return question.status();
        const auto answer = StringField(query, "answer");
        if (!answer.ok()) return answer.status();
        const bool fits =
            options_.most_prompt_bytes == 0 ||
            static_cast<int64_t>(Prompt(*question).size()) <= options_.most_prompt_bytes;
        if (fits) queries_.push_back({*question, answer->size()});
      }
    }
    return absl::OkStatus();
  }

  std::string Prompt(const std::string& question) const {
    return absl::StrCat(transcript_, "\n\nQuestion: ", question);
  }

  const DialogueOptions options_;
  std::unique_ptr<JsonLines> lines_;
  std::string transcript_;
  std::deque<Query> queries_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> OpenMtBench(const DialogueOptions& options) {
  auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  return std::make_unique<MtBench>(options, *std::move(lines));
}

absl::StatusOr<std::unique_ptr<Workload>> OpenQmSum(const DialogueOptions& options) {
  auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  return std::make_unique<QmSum>(options, *std::move(lines));
}

}  // namespace refrain::loadgen
