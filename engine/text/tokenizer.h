#ifndef REFRAIN_ENGINE_TEXT_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_TOKENIZER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/encode_pace.h"
#include "engine/text/stretch_memo.h"
#include "kvcache/types.h"

namespace refrain::engine {

// Bytes [begin_byte, end_byte) of a text.
struct TextSpan {
  size_t begin_byte = 0;
  size_t end_byte = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct EncodeOptions {
  // Control tokens spelled out in the text (`<|im_end|>`) become that token. User-defined tokens
  // always do.
  bool parse_special = false;
  // Absent: what the model's files say. A rendered chat template carries its own: pass false.
  std::optional<bool> add_bos;
  // Sorted, disjoint. A reserved token (Tokenizer::IsReserved) that overlaps one of these stays
  // plain text. This is how message content is kept from forging turns (chat_template.h).
  std::span<const TextSpan> plain_spans;
  // The text goes on where other tokens ended: no bos and no space prefix are put before it.
  bool continues = false;
  // Holds up a long text on the way; may be null.
  EncodePace* pace = nullptr;
  // Where long stretches are found, in the scope, that were tokenized before; may be null.
  StretchMemo* memo = nullptr;
  std::string_view memo_scope;
};

// A reserved token spelled out in a text.
struct ControlToken {
  TextSpan span;
  kvcache::TokenId id{};
  friend bool operator==(const ControlToken&, const ControlToken&) = default;
};

// Text to token ids and back to bytes.
//
// Does not render chat templates and does not assemble characters from bytes (detokenizer.h).
// Called by the encode pool and the detokenizers. Immutable after creation: any number of threads
// may use one. Encode fails with
//   INVALID_ARGUMENT     for a text on which a pattern of the model's own tokenizer exceeds its
//                        matching limit, fails, or matches backwards; of the named ones none does
//   CANCELLED            when its pace stops it
//   FAILED_PRECONDITION  for a text that continues, where the algorithm has no such thing
//                        (libsentencepiece)
//   RESOURCE_EXHAUSTED   where there is no memory for a pattern's match
//   INTERNAL             where libsentencepiece fails
//
// Invalid UTF-8 is accepted: each maximal ill-formed subpart is replaced by U+FFFD (the policy of
// WHATWG and Python) before it is tokenized. A byte for which the vocabulary has no token
// disappears, before merging, as Hugging Face does.
//
// Time is O(n log n) in the length of the text, also for a text that is one single word.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual absl::StatusOr<std::vector<kvcache::TokenId>> Encode(
      std::string_view utf8, const EncodeOptions& options) const = 0;

  // The reserved tokens that Encode recognises in the text, in order.
  virtual std::vector<ControlToken> FindControlTokens(std::string_view utf8,
                                                      const EncodeOptions& options) const = 0;

  // A bound that is quick to tell, far below what Encode gives: the text has at least so many
  // tokens, also where others spell it (TurnSplicer). 0: nothing can be told.
  virtual size_t FewestTokens(std::string_view /*utf8*/) const { return 0; }

  // So many bytes Encode would tokenize: those in stretches that `options.memo` does not know.
  // Quick.
  virtual size_t BytesToEncode(std::string_view utf8, const EncodeOptions& /*options*/) const {
    return utf8.size();
  }

  // The raw bytes that the token stands for, possibly a part of a character; for a control token
  // its own text; empty for an id outside of the vocabulary. Lives as long as the tokenizer.
  virtual std::string_view TokenBytes(kvcache::TokenId id) const = 0;

  // True for tokens that are no text (control tokens, the unknown token): hidden by a detokenizer
  // that skips special tokens.
  virtual bool IsControl(kvcache::TokenId id) const = 0;

  // True for tokens that no content can spell (EncodeOptions::plain_spans): control tokens, and
  // those of text that look like them, as `<|user|>` does where the model's files do not call it
  // special. A detokenizer shows these.
  virtual bool IsReserved(kvcache::TokenId id) const { return IsControl(id); }

  // True for eos and the other tokens after which a model has finished (end of turn, end of text).
  virtual bool IsEndOfGeneration(kvcache::TokenId id) const = 0;

  virtual size_t vocab_size() const = 0;
  virtual std::optional<kvcache::TokenId> bos() const = 0;
  virtual std::optional<kvcache::TokenId> eos() const = 0;

  // Whether Encode puts bos first when the options do not say.
  virtual bool adds_bos() const = 0;

  // Whether Encode puts a space before a text: one that decodes a whole text takes it away again.
  virtual bool adds_space_prefix() const = 0;

  // Whether it does so behind every control and user-defined token, too.
  virtual bool adds_space_after_specials() const { return false; }

  // The control or user-defined token spelled exactly so.
  virtual std::optional<kvcache::TokenId> FindSpecial(std::string_view text) const = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_TOKENIZER_H_
