#ifndef REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/openai/choice_text.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// One choice of an answer that is sent as a whole.
struct WholeChoice {
  std::string text;
  std::vector<TokenDetails> tokens;
  engine::FinishReason finish = engine::FinishReason::kStop;
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
    bool logprobs = false;
    bool null_usage = false;  // events carry "usage":null, as include_usage wants
  };

  // The tokenizer outlives it.
  ResponseFormat(Answer answer, int32_t num_choices, const engine::Tokenizer* tokenizer);

  void AppendEvent(int32_t choice, const TextPiece& piece,
                   const std::optional<engine::Usage>& usage, std::string* out);
  void AppendUsageEvent(const engine::Usage& usage, std::string* out) const;
  std::string WholeBody(const std::vector<WholeChoice>& choices, const engine::Usage& usage);

  static std::string_view DoneEvent() { return "data: [DONE]\n\n"; }
  static std::string ErrorEvent(std::string_view error_body);

 private:
  void AppendHead(bool chunk, std::string* out) const;
  void AppendUsage(const engine::Usage& usage, std::string* out) const;
  void AppendLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens, std::string* out);
  void AppendCompletionLogprobs(int32_t choice, const std::vector<TokenDetails>& tokens,
                                std::string* out);
  void AppendChatToken(engine::TokenId token, float logprob, std::string* out) const;
  void AppendChatLogprobs(const std::vector<TokenDetails>& tokens, std::string* out) const;

  const Answer answer_;
  const engine::Tokenizer* tokenizer_;
  std::vector<int64_t> text_offsets_;  // [num_choices] characters of the tokens listed so far
  std::string event_head_;
};

// A token's bytes as a JSON string: as text where they are well-formed UTF-8, else
// "bytes:\xe2\x82", as OpenAI writes them.
std::string TokenText(std::string_view bytes);

std::string_view FinishReasonName(engine::FinishReason reason);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_RESPONSE_FORMAT_H_
