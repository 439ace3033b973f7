#ifndef REFRAIN_ENGINE_TURN_SPLICER_H_
#define REFRAIN_ENGINE_TURN_SPLICER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/turn_memory.h"

namespace refrain::engine {

// A rendered conversation as ids.
struct SplicedPrompt {
  std::vector<TokenId> ids;
  TurnKey key;               // under which its answers are to be remembered
  size_t reused_tokens = 0;  // of `ids`, taken from earlier answers
};

// Tokenizes a rendered conversation, with the ids of earlier answers where they stand in it.
//
// At each place where the text so far is a prompt that was answered (TurnMemory), the ids generated
// then replace as much of the text behind it as they spell, in whole tokens; where the text differs
// (a stop string cut it, a template trimmed it) it is tokenized from there, and where it is another
// one, which only begins alike, from the word on that differs (TurnSpeller::SpellWholeWords).
// What stands before the place is tokenized on its own, as it was when it was a prompt.
//
// What holds for the result, besides spelling the text:
// - Where ids are reused, all ids before and including them equal the earlier prompt's and what was
//   generated for it, so that its KV is met; else the turn is not used.
// - Its control tokens are those of the text's own encoding: ids that were generated bring none in,
//   and none of the template's is replaced.
// Without a matching turn it is the text's own encoding.
//
// Used by the encode pool; any thread. Fails as Tokenizer::Encode does.
class TurnSplicer {
 public:
  // Both outlive the splicer.
  TurnSplicer(const Tokenizer* tokenizer, TurnMemory* memory)
      : tokenizer_(tokenizer), memory_(memory) {}

  // `options.plain_spans` are what came from the request: answers are looked for near them.
  absl::StatusOr<SplicedPrompt> Encode(std::string_view text, const EncodeOptions& options,
                                       const std::string& scope) const;

 private:
  // A place behind which answers were generated.
  struct Place {
    size_t at_byte;
    std::vector<TurnMemory::Turn> turns;
  };

  std::vector<Place> FindPlaces(std::string_view text, std::span<const TextSpan> content,
                                TurnKey* key) const;
  // False: some part of the text cannot be continued, or the control tokens would differ.
  absl::StatusOr<bool> Splice(std::string_view text, const EncodeOptions& options,
                              const std::vector<Place>& places, SplicedPrompt* out) const;
  bool HasControlTokens(std::span<const TokenId> ids,
                        const std::vector<ControlToken>& wanted) const;

  const Tokenizer* tokenizer_;
  TurnMemory* memory_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TURN_SPLICER_H_
