#ifndef REFRAIN_SERVER_OPENAI_CHOICES_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_CHOICES_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/openai/answer_format.h"
#include "server/openai/choice_text.h"
#include "server/openai/protocol.h"
#include "server/openai/text_offset.h"
#include "server/openai/token_names.h"

namespace refrain::server::openai {

// One choice of an answer that is sent as a whole.
struct WholeChoice {
  std::string reasoning;
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<TokenDetails> tokens;
  engine::FinishReason finish = engine::FinishReason::kStop;
  bool called = false;  // TextPiece's
  std::optional<TokenDetails> end_token;
  std::optional<std::string> stop_string;
  std::vector<engine::TokenId> hidden_tokens;  // engine::ChoiceEnd's
};

// Answers of /v1/completions and /v1/chat/completions: a list of choices, whose events ("data:
// ...\n\n") are one for each piece. Holds what is the same in all events of one answer, and how
// many characters each choice has shown (text_offset). Writes JSON directly: an event costs about a
// microsecond.
class ChoicesFormat final : public AnswerFormat {
 public:
  struct Answer {
    Endpoint endpoint = Endpoint::kCompletions;
    std::string id;  // with its cmpl- or chatcmpl- prefix
    std::string model;
    int64_t created_unix_s = 0;
    OutputOptions output;
    int32_t choices_per_prompt = 1;
    bool include_usage = false;  // a last event with it; the others carry "usage":null
    // End tokens that are told as `stop_reason`: those that the client named.
    std::vector<engine::TokenId> named_ends;
  };

  // The tokenizer outlives it.
  ChoicesFormat(Answer answer, int32_t num_choices, const engine::Tokenizer* tokenizer);

  void AppendEvents(int32_t choice, TextPiece& piece,
                    const std::vector<engine::TokenId>& prompt_ids,
                    const std::optional<engine::Usage>& usage, std::string* out) override;
  void AppendEnd(const engine::Usage& usage, std::string* out) override;
  void AppendFailure(const ApiError& error, const engine::Usage& usage, std::string* out) override;
  void Keep(int32_t choice, TextPiece piece) override;
  std::string TakeWhole(const std::vector<PromptTokens>& prompts,
                        const engine::Usage& usage) override;

 private:
  void AppendHead(bool chunk, std::string* out) const;
  static void AppendReasoning(std::string_view reasoning, std::string* out);
  void AppendUsage(const engine::Usage& usage, std::string* out) const;
  static void AppendDelta(const TextPiece& piece, std::string* out);
  static void AppendToolCalls(const std::vector<ToolCall>& calls, std::string* out);
  static void AppendToolCallDelta(const ToolCallDelta& delta, std::string* out);
  // Its id, type and function, whose object is left open behind the name.
  static void AppendCallHead(std::string_view name, std::string* out);
  static void AppendFinish(std::optional<engine::FinishReason> finish, bool called,
                           std::string* out);
  void AppendStopReason(const std::optional<std::string>& stop_string,
                        const std::optional<TokenDetails>& end_token, std::string* out) const;
  void AppendLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens,
                      const std::optional<TokenDetails>& end_token, std::string* out);
  void AppendCompletionLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens,
                                const std::optional<TokenDetails>& end_token, std::string* out);
  void AppendTopLogprobs(const TokenDetails& details, std::string* out) const;
  void AppendPromptFields(const PromptTokens& prompt, std::string* out) const;
  static void AppendPromptIds(const std::vector<engine::TokenId>& ids, std::string* out);
  void AppendPromptLogprobs(const std::vector<TokenDetails>& prompt, std::string* out) const;
  void AppendTokenIds(const std::vector<TokenDetails>& tokens,
                      const std::vector<engine::TokenId>& hidden_tokens,
                      const std::optional<TokenDetails>& end_token, std::string* out) const;

  const Answer answer_;
  const engine::Tokenizer* tokenizer_;
  const TokenNames names_;
  std::vector<TextOffset> text_offsets_;  // [num_choices] behind the tokens listed so far
  std::string event_head_;
  std::vector<WholeChoice> choices_;  // [num_choices] kept; empty before
};

std::string_view FinishReasonName(engine::FinishReason reason);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CHOICES_FORMAT_H_
