#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/dialogue_turns.h"
#include "tools/loadgen/json_lines.h"
#include "tools/loadgen/recorded_dialogues.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

// Cuts the objects out of a JSON array without reading the whole file.
class ArrayCutter {
 public:
  explicit ArrayCutter(std::ifstream stream) : stream_(std::move(stream)), piece_(1 << 16) {}

  // The next object's text; nothing when the array ends or the file breaks off, or cannot be read
  // on.
  std::optional<std::string> Next() {
    std::string object;
    int depth = 0;
    bool in_string = false;
    bool escaped = false;
    for (char c = 0; ReadByte(&c);) {
      if (depth == 0 && c != '{') continue;
      object += c;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
        }
        continue;
      }
      if (c == '"') in_string = true;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) return object;
    }
    return std::nullopt;
  }

  bool bad() const { return stream_.bad(); }

 private:
  bool ReadByte(char* c) {
    if (at_ == filled_) {
      stream_.read(piece_.data(), static_cast<std::streamsize>(piece_.size()));
      filled_ = static_cast<size_t>(stream_.gcount());
      at_ = 0;
      if (filled_ == 0) return false;
    }
    *c = piece_[at_++];
    return true;
  }

  std::ifstream stream_;
  std::vector<char> piece_;
  size_t at_ = 0;
  size_t filled_ = 0;
};

class ShareGpt final : public Workload {
 public:
  ShareGpt(const DialogueOptions& options, std::ifstream stream)
      : options_(options), cutter_(std::move(stream)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    while (const std::optional<std::string> text = cutter_.Next()) {
      ++number_;
      const Json object = Json::parse(*text, nullptr, false);
      const auto said = object.is_object() ? object.find("conversations") : object.end();
      if (!object.is_object() || said == object.end() || !said->is_array()) {
        return absl::InvalidArgumentError(absl::StrCat(options_.path, ": conversation ", number_,
                                                       " has no array \"conversations\""));
      }
      Session session = ToSession(*said);
      if (!session.turns.empty()) return std::optional<Session>(std::move(session));
    }
    if (cutter_.bad()) {
      return absl::DataLossError(
          absl::StrCat(options_.path, ": cannot be read behind conversation ", number_));
    }
    if (number_ == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.path, ": holds no conversation; ShareGPT's file is a JSON array"));
    }
    return std::optional<Session>();
  }

 private:
  static std::optional<std::string> Said(const Json& message, std::string_view first,
                                         std::string_view second) {
    const auto from = message.find("from");
    const auto value = message.find("value");
    if (from == message.end() || value == message.end()) return std::nullopt;
    if (!from->is_string() || !value->is_string()) return std::nullopt;
    const std::string& who = from->get_ref<const std::string&>();
    if (who != first && who != second) return std::nullopt;
    return value->get<std::string>();
  }

  Session ToSession(const Json& messages) const {
    Session session;
    int64_t said_bytes = 0;  // up to the end of a prompt, with answers of the length asked for
    size_t at = 0;
    if (!messages.empty() && Said(messages[0], "system", "system")) ++at;
    for (; at + 1 < messages.size(); at += 2) {
      const auto turns = static_cast<int32_t>(session.turns.size());
      if (options_.most_turns > 0 && turns >= options_.most_turns) break;
      const std::optional<std::string> person = Said(messages[at], "human", "user");
      const std::optional<std::string> answer = Said(messages[at + 1], "gpt", "assistant");
      if (!person.has_value() || !answer.has_value() || person->empty()) break;
      said_bytes += static_cast<int64_t>(person->size());
      if (options_.most_prompt_bytes > 0 && said_bytes > options_.most_prompt_bytes) break;
      AppendTurn(options_, *person, answer->size(), &session);
      said_bytes += int64_t{session.turns.back().output_tokens} * kBytesPerToken;
    }
    return session;
  }

  const DialogueOptions options_;
  ArrayCutter cutter_;
  int64_t number_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> OpenShareGpt(const DialogueOptions& options) {
  auto stream = OpenToRead(options.path);
  if (!stream.ok()) return stream.status();
  return std::make_unique<ShareGpt>(options, *std::move(stream));
}

}  // namespace refrain::loadgen
