#ifndef REFRAIN_ENGINE_PROMPT_ENCODER_H_
#define REFRAIN_ENGINE_PROMPT_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/bad_word_encoder.h"
#include "engine/encoded_request.h"
#include "engine/grammar/output_constrainer.h"
#include "engine/stop_rule_maker.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/thinking_budget.h"
#include "engine/turn_memory.h"

namespace refrain::engine {

// The text of a prompt, ready to be tokenized.
struct PromptText {
  std::string text;
  bool parse_special = false;
  std::optional<bool> add_bos;
  std::vector<TextSpan> plain_spans;
  ReasoningStart reasoning = ReasoningStart::kBehind;
  ReasoningStart by_tags = ReasoningStart::kBefore;  // RenderedChat's
};

// What a request may be at most.
struct EncodeLimits {
  int32_t max_context_tokens = 0;
  int64_t kv_capacity_tokens = 0;  // of the whole pool
  // The model's, whose embedding may have rows behind the tokenizer's tokens: ids without a text.
  // 0 = as many as the tokenizer has.
  int64_t vocab_size = 0;
};

// Turns a request into token ids and rules, and checks their sizes. Render is quick (a template)
// unless IsLongToRender, Tokenize takes time in proportion to the text. Any thread. Failure:
// INVALID_ARGUMENT naming what is too long or out of range, the value and the limit.
class PromptEncoder {
 public:
  // All outlive the encoder; `chat_template`, `turns` and `constrainer` may be null. Without
  // `turns` every text has its own encoding, whatever was generated before; without `constrainer`
  // formats are refused.
  PromptEncoder(const Tokenizer* tokenizer, const ChatTemplate* chat_template,
                const EncodeLimits& limits, TurnMemory* turns = nullptr,
                OutputConstrainer* constrainer = nullptr);

  // Of a prompt that is text or a conversation, which is gone from the request then: a long text
  // waits, and should not be there twice. A prompt of ids has none. A text is refused that
  // cannot but be too long, unless its end alone or its ids are asked for.
  // `pace` may hold up a conversation or stop it, CANCELLED, and be null.
  absl::StatusOr<std::optional<PromptText>> Render(EncodedRequest* request,
                                                   EncodePace* pace = nullptr) const;
  // A conversation of so many messages and tools that its template may take long. Quick.
  static bool IsLongToRender(const Request& request);
  // Of a request whose output has a form: takes the constraint that was made of it for another.
  // False where it is yet to be made, which Tokenize does and which may take long. Quick.
  bool FindConstraint(const std::optional<PromptText>& text, EncodedRequest* request) const;
  // Fills `prompt`, `turn`, `stop_rules`, `constraint` and what the sampling parameters have in
  // tokens: bans, and the limit of a thought. `pace` may be null.
  absl::Status Tokenize(const std::optional<PromptText>& text, EncodedRequest* request,
                        EncodePace* pace = nullptr) const;
  // So many bytes of the prompt's text were not tokenized before in its scope. Quick.
  size_t BytesToTokenize(const PromptText& text, const EncodedRequest& request) const;
  // A text's ids, whatever their number.
  absl::StatusOr<std::vector<TokenId>> TokenizeText(const PromptText& text,
                                                    EncodePace* pace = nullptr) const;

 private:
  absl::StatusOr<PromptText> RenderText(Request* request, EncodePace* pace) const;
  OutputPlace PlaceOf(const std::optional<PromptText>& text) const;
  absl::Status Constrain(const std::optional<PromptText>& text, EncodedRequest* request,
                         EncodePace* pace) const;
  void SetConstraint(OutputConstrainer::Made made, EncodedRequest* request) const;
  absl::Status LimitThought(const std::optional<PromptText>& text, EncodedRequest* request) const;
  // As many as the context holds: millions may come, to be refused or cut.
  std::string SpelledEnd(std::span<const TokenId> ids) const;
  absl::Status CheckText(const PromptText& text) const;
  absl::Status EncodeText(const PromptText& text, EncodePace* pace, EncodedRequest* request) const;
  static void Truncate(EncodedRequest* request);
  absl::Status CheckSizes(const Request& request, size_t prompt_tokens) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  EncodeLimits limits_;
  TurnMemory* turns_;
  OutputConstrainer* constrainer_;
  SharedList<TokenId> ends_;       // of generation
  mutable StretchMemo stretches_;  // of prompts
  BadWordEncoder bad_words_;
  const std::shared_ptr<const ThoughtCloser> thought_closer_;
  StopRuleMaker stop_rules_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PROMPT_ENCODER_H_
