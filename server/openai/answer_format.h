#ifndef REFRAIN_SERVER_OPENAI_ANSWER_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_ANSWER_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/token_stream.h"
#include "server/openai/choice_text.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {

// What an answer shows of a prompt; empty unless it was asked for.
struct PromptTokens {
  std::vector<engine::TokenId> ids;
  std::vector<TokenDetails> logprobs;
};

// Writes one answer in the words of its endpoint, from the pieces that its choices become: as
// server-sent events, or as a whole, of which it keeps what came so far. GenerationReply decides
// what is sent when, and counts the memory. One consumer. Cannot fail.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // What `piece`, which may be moved from, adds to a stream. `prompt_ids`: of the choice's prompt,
  // for its first piece; empty unless they are to be shown. `usage` so far, where events tell it.
  virtual void AppendEvents(int32_t choice, TextPiece& piece,
                            const std::vector<engine::TokenId>& prompt_ids,
                            const std::optional<engine::Usage>& usage, std::string* out) = 0;
  // What ends a stream, behind all pieces.
  virtual void AppendEnd(const engine::Usage& usage, std::string* out) = 0;
  // What ends a stream whose head is sent and that cannot go on.
  virtual void AppendFailure(const ApiError& error, const engine::Usage& usage,
                             std::string* out) = 0;

  // Of an answer that is sent as a whole.
  virtual void Keep(int32_t choice, TextPiece piece) = 0;
  // The body of what was kept, which is freed. Once.
  virtual std::string TakeWhole(const std::vector<PromptTokens>& prompts,
                                const engine::Usage& usage) = 0;

  // What the usage tells from now on of each prompt's lookup in the cache, where that was asked
  // for.
  void SetMisses(std::vector<std::optional<engine::CacheMiss>> misses) {
    misses_ = std::move(misses);
  }
  // The same of the tokens of thoughts, where the model's template has any.
  void SetReasoningTokens(int64_t tokens) { reasoning_tokens_ = tokens; }

  // Which readers of events pass over.
  static std::string_view PingComment() { return ": ping\n\n"; }

 protected:
  // The members of a usage that tell of the prompt's place in the cache, without their braces.
  void AppendCacheUsage(const engine::Usage& usage, std::string* out) const;
  std::optional<int64_t> reasoning_tokens() const { return reasoning_tokens_; }

 private:
  std::vector<std::optional<engine::CacheMiss>> misses_;  // [prompts]
  std::optional<int64_t> reasoning_tokens_;               // none: not told
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_ANSWER_FORMAT_H_
