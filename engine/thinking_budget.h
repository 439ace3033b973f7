#ifndef REFRAIN_ENGINE_THINKING_BUDGET_H_
#define REFRAIN_ENGINE_THINKING_BUDGET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "engine/text/reasoning_format.h"
#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

// The tokens that close a thought (kThinkClose) in a model's vocabulary: the one that is the tag,
// where there is one, since the model knows no other; else those that spell it. Immutable; any
// thread. The tokenizer outlives it. Cannot fail.
class ThoughtCloser {
 public:
  explicit ThoughtCloser(const Tokenizer* tokenizer);

  // Whether the vocabulary can spell the tag.
  bool can_close() const;
  // The token that goes on to the end of the tag, of which `begun_bytes` stand at the end of the
  // thought; less than all. None where the vocabulary has no such token.
  std::optional<kvcache::TokenId> Next(size_t begun_bytes) const { return next_[begun_bytes]; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  std::array<std::optional<kvcache::TokenId>, kThinkClose.size()> next_;  // by begun bytes
};

// How long an output may think that begins at `start`.
struct ThinkingLimit {
  std::shared_ptr<const ThoughtCloser> closer;  // that can close
  ReasoningStart start;
  int32_t budget_tokens;  // generated in the thought, its tags left out; 0: it is closed at once
};

// Counts the tokens that one sequence thinks, and tells which one has to come once its budget is
// used up. What it knows follows from the tokens alone. The thought is the one at the beginning,
// as with WithoutReasoning; behind it, or where there is none, everything may come.
//
// A closing tag that the model spells by several tokens counts up to its last one: nobody knows
// before that it is one. If the budget ends amid of it, it is gone on with.
//
// One thread at a time; no memory of its own. Cannot fail.
class ThoughtCounter {
 public:
  explicit ThoughtCounter(std::shared_ptr<const ThinkingLimit> limit)
      : limit_(std::move(limit)),
        place_(limit_->start.is_inside()                        ? Place::kInside
               : limit_->start.place == ReasoningStart::kBefore ? Place::kBefore
                                                                : Place::kBehind),
        tag_bytes_(limit_->start.close_bytes) {}

  // The one token that may come now; none: any.
  std::optional<kvcache::TokenId> Due() const;
  // The sequence goes on with this token.
  void Count(kvcache::TokenId token);

 private:
  enum class Place : uint8_t { kBefore, kInside, kBehind };

  void Take(char byte);

  std::shared_ptr<const ThinkingLimit> limit_;
  Place place_;
  uint8_t tag_bytes_;  // of the tag that would change the place, at the end of what was counted
  int32_t thought_tokens_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_THINKING_BUDGET_H_
