#ifndef REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/openai/choice_text.h"
#include "server/openai/protocol.h"
#include "server/openai/text_offset.h"

namespace refrain::server::openai {

// One choice of an answer that is sent as a whole.
struct WholeChoice {
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<TokenDetails> tokens;
  engine::FinishReason finish = engine::FinishReason::kStop;
  bool called = false;  // TextPiece's
  std::optional<TokenDetails> end_token;
  std::optional<std::string> stop_string;
  std::vector<engine::TokenId> hidden_tokens;  // engine::ChoiceEnd's
};

// What an answer shows of a prompt; empty unless it was asked for.
struct PromptTokens {
  std::vector<engine::TokenId> ids;
  std::vector<TokenDetails> logprobs;
};

// Writes answers in OpenAI's words: whole bodies, and server-sent events ("data: ...\n\n"). Holds
// what is the same in all events of one answer, and how many characters each choice has shown
// (text_offset). Writes JSON directly: an event costs about a microsecond. One consumer.
class ResponseFormat {
 public:
  struct Answer {
    Endpoint endpoint = Endpoint::kCompletions;
    std::string id;  // with its cmpl- or chatcmpl- prefix
    std::string model;
    int64_t created_unix_s = 0;
    OutputOptions output;
    int32_t choices_per_prompt = 1;
    bool null_usage = false;  // events carry "usage":null, as include_usage wants
    // End tokens that are told as `stop_reason`: those that the client named.
    std::vector<engine::TokenId> named_ends;
  };

  // The tokenizer outlives it.
  ResponseFormat(Answer answer, int32_t num_choices, const engine::Tokenizer* tokenizer);

  // `prompt_ids`: of the choice's prompt, for its first piece; empty unless they are to be shown.
  void AppendEvent(int32_t choice, const TextPiece& piece,
                   const std::vector<engine::TokenId>& prompt_ids,
                   const std::optional<engine::Usage>& usage, std::string* out);
  void AppendUsageEvent(const engine::Usage& usage, std::string* out) const;
  // What the usage tells from now on of each prompt's lookup in the cache, where that was asked
  // for.
  void SetMisses(std::vector<std::optional<engine::CacheMiss>> misses) {
    misses_ = std::move(misses);
  }
  std::string WholeBody(const std::vector<WholeChoice>& choices,
                        const std::vector<PromptTokens>& prompts, const engine::Usage& usage);

  // Which readers of events pass over.
  static std::string_view PingComment() { return ": ping\n\n"; }
  static std::string_view DoneEvent() { return "data: [DONE]\n\n"; }
  static std::string ErrorEvent(std::string_view error_body);

 private:
  void AppendHead(bool chunk, std::string* out) const;
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
  // How log-probabilities name a token.
  std::string NameOf(engine::TokenId token) const;
  void AppendChatToken(engine::TokenId token, float logprob, std::string* out) const;
  void AppendChatLogprobs(const std::vector<TokenDetails>& tokens,
                          const std::optional<TokenDetails>& end_token, std::string* out) const;

  const Answer answer_;
  const engine::Tokenizer* tokenizer_;
  std::vector<TextOffset> text_offsets_;  // [num_choices] behind the tokens listed so far
  std::string event_head_;
  std::vector<std::optional<engine::CacheMiss>> misses_;  // [prompts]
};

// A token's bytes as a JSON string: as text where they are well-formed UTF-8, else
// "bytes:\xe2\x82", as OpenAI writes them.
std::string TokenText(std::string_view bytes);

std::string_view FinishReasonName(engine::FinishReason reason);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_
