#ifndef REFRAIN_SERVER_OPENAI_RESPONSES_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_RESPONSES_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "server/openai/answer_format.h"
#include "server/openai/token_names.h"

namespace refrain::server::openai {

// Answers of /v1/responses: a response object whose output is a list of items, in the order in
// which the model wrote them: its reasoning, a message for each stretch of text, and the function
// calls. An answer without any of them has one empty message; one that ends in the reasoning has
// none. Log-probabilities are those of messages: other items have no place for them.
//
// A stream has named events, numbered from 0: of the response, of each item, of its one part, and
// of the pieces of its text or arguments. The end of each of them tells all of it again, the last
// event the whole response; so a stream, too, is kept to its end. The items of a stream and of a
// whole answer differ in nothing but their ids.
class ResponsesFormat final : public AnswerFormat {
 public:
  struct Answer {
    std::string id;  // with its resp_ prefix
    std::string model;
    int64_t created_unix_s = 0;
    std::string echo;  // GenerationCall's
    bool has_logprobs = false;
    bool tokens_as_ids = false;  // OutputOptions'
  };

  // The tokenizer outlives it.
  ResponsesFormat(Answer answer, const engine::Tokenizer* tokenizer);

  void AppendEvents(int32_t choice, TextPiece& piece,
                    const std::vector<engine::TokenId>& prompt_ids,
                    const std::optional<engine::Usage>& usage, std::string* out) override;
  void AppendEnd(const engine::Usage& usage, std::string* out) override;
  // The documented `error`, with an error object of the usual form in it, which is what OpenAI's
  // clients raise; then response.failed, without output as theirs, if there has been a
  // response.created.
  void AppendFailure(const ApiError& error, const engine::Usage& usage, std::string* out) override;
  void Keep(int32_t choice, TextPiece piece) override;
  std::string TakeWhole(const std::vector<PromptTokens>& prompts,
                        const engine::Usage& usage) override;

 private:
  enum class State : uint8_t { kInProgress, kCompleted, kIncomplete, kFailed };
  static std::string_view NameOf(State state);

  enum class Kind : uint8_t { kReasoning, kMessage, kCall };

  struct Item {
    Kind kind = Kind::kMessage;
    State state = State::kInProgress;
    bool has_part = false;  // an item begins without; calls never have one
    std::string id;
    std::string text;      // a call's: its arguments
    std::string logprobs;  // JSON of its tokens, without the brackets; a message's
    std::string call_id;   // a call's
    std::string name;      // a call's
  };

  // Each adds to the items, and to `events` unless that is null.
  void Add(const TextPiece& piece, std::string* events);
  void AddReasoning(std::string_view text, std::string* events);
  void AddText(std::string_view text, std::string_view logprobs, std::string* events);
  void AddCall(const ToolCallDelta& delta, std::string* events);
  // What is new of the open item, up to the end of its text.
  void AppendDelta(std::string_view text, size_t more_bytes, std::string* events);
  void OpenItem(Kind kind, std::string_view name, std::string* events);
  // Closes the last item, if it is open; a call's state is told by its arguments.
  void Close(State state, std::string* events);
  bool is_open() const { return !items_.empty() && items_.back().state == State::kInProgress; }
  bool is_open(Kind kind) const { return is_open() && items_.back().kind == kind; }

  // What begins an event and its object, and what ends both.
  static void BeginEvent(std::string_view type, std::string* out);
  void EndEvent(std::string* out);
  // The members that say which item an event is of: the last one.
  void AppendPlace(std::string* out) const;
  void AppendResponseEvent(std::string_view type, State state, const ApiError* error_or_null,
                           const engine::Usage* usage_or_null, std::string* out);
  void AppendResponse(State state, const ApiError* error_or_null,
                      const engine::Usage* usage_or_null, std::string* out) const;
  void AppendUsage(const engine::Usage& usage, std::string* out) const;
  static void AppendItem(const Item& item, std::string* out);
  // The items that have a part: all but calls.
  static void AppendPart(const Item& item, std::string* out);

  const Answer answer_;
  const TokenNames names_;
  std::vector<Item> items_;
  std::string waiting_logprobs_;    // of tokens that have shown nothing so far, as Item's
  State end_ = State::kInProgress;  // of the response, by why the model ended
  bool begun_ = false;              // the first events are written
  int64_t next_number_ = 0;         // of events
  std::string delta_head_;          // of the open item's deltas, up to what is new
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_RESPONSES_FORMAT_H_
