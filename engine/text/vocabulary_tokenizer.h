#ifndef REFRAIN_ENGINE_TEXT_VOCABULARY_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_VOCABULARY_TOKENIZER_H_

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/special_token_splitter.h"
#include "engine/text/token_table.h"
#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::engine {

// What every tokenizer needs beside its algorithm.
struct Vocabulary {
  TokenTable tokens;
  SpecialTokenSplitter specials;
  std::vector<bool> ends_generation;  // [vocab_size]
  std::optional<kvcache::TokenId> bos;
  std::optional<kvcache::TokenId> eos;
  bool adds_bos = false;
  bool adds_space_prefix = false;
  bool composes_text = false;
  bool adds_space_after_specials = false;
};

// Marks `spec`'s special ids, and control tokens with a well-known name, as ending a generation,
// enters control and user-defined tokens into the matcher, and takes composes_text. InvalidArgument
// for an id outside of the vocabulary and for tokens that are too long, one or all together. `spec`
// has as many tokens as `vocabulary`.
absl::Status ApplySpecialTokens(const TokenizerSpec& spec, Vocabulary* vocabulary);

// The part of a tokenizer that does not depend on its algorithm: cuts special tokens out of the
// text, repairs ill-formed UTF-8, composes what is left, answers questions about ids. Subclasses
// tokenize the stretches between special tokens. Thread rule and failure rule are those of
// Tokenizer.
class VocabularyTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<kvcache::TokenId>> Encode(std::string_view utf8,
                                                       const EncodeOptions& options) const final;
  std::vector<ControlToken> FindControlTokens(std::string_view utf8,
                                              const EncodeOptions& options) const final;
  size_t BytesToEncode(std::string_view utf8, const EncodeOptions& options) const final;
  std::string_view TokenBytes(kvcache::TokenId id) const final;
  bool IsControl(kvcache::TokenId id) const final;
  bool IsReserved(kvcache::TokenId id) const final;
  bool IsEndOfGeneration(kvcache::TokenId id) const final;
  size_t vocab_size() const final { return vocabulary_.tokens.size(); }
  std::optional<kvcache::TokenId> bos() const final { return vocabulary_.bos; }
  std::optional<kvcache::TokenId> eos() const final { return vocabulary_.eos; }
  bool adds_bos() const final { return vocabulary_.adds_bos; }
  bool adds_space_prefix() const final { return vocabulary_.adds_space_prefix; }
  bool adds_space_after_specials() const final { return vocabulary_.adds_space_after_specials; }
  std::optional<kvcache::TokenId> FindSpecial(std::string_view text) const final {
    return vocabulary_.specials.FindExact(text);
  }

 protected:
  enum class StretchPlace { kTextStart, kAfterSpecialToken, kAfterText };

  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // Appends the tokens of `text`: not empty, well-formed UTF-8, without special tokens. `pace` may
  // be null.
  virtual absl::Status EncodeStretch(std::string_view text, StretchPlace place, EncodePace* pace,
                                     std::vector<kvcache::TokenId>* out) const = 0;

  const TokenTable& tokens() const { return vocabulary_.tokens; }

  // At least how many bytes are tokenized of the text that are `counted`; white space that special
  // tokens may take is not.
  size_t CountBytesOfText(std::string_view utf8, const std::array<bool, 256>& counted) const;

 private:
  // From the memo, where it knows the stretch.
  absl::Status FindOrEncode(std::string_view bytes, StretchPlace place,
                            const EncodeOptions& options, std::vector<kvcache::TokenId>* out) const;
  absl::Status EncodeRepaired(std::string_view bytes, StretchPlace place, EncodePace* pace,
                              std::vector<kvcache::TokenId>* out) const;

  Vocabulary vocabulary_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_VOCABULARY_TOKENIZER_H_
