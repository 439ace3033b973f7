#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/text/byte_level.h"
#include "engine/text/pair_merger.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/spelling_index.h"
#include "engine/text/utf8.h"
#include "engine/text/vocabulary_tokenizer.h"
#include "engine/text/whole_word_memo.h"

namespace refrain::engine {
namespace {

class BpeTokenizer : public VocabularyTokenizer {
 public:
  struct Parts {
    Vocabulary vocabulary;
    std::unique_ptr<PreTokenizer> pre_tokenizer;
    PairMerger merger;
    std::array<int32_t, 256> byte_ids;  // -1: the byte has no token
    bool ignore_merges;
  };

  explicit BpeTokenizer(Parts parts)
      : VocabularyTokenizer(std::move(parts.vocabulary)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        merger_(std::move(parts.merger)),
        byte_ids_(parts.byte_ids),
        ignore_merges_(parts.ignore_merges),
        whole_words_(tokens().size()) {}

  size_t FewestTokens(std::string_view utf8) const override {
    std::array<bool, 256> has_token;
    for (size_t byte = 0; byte < has_token.size(); ++byte) has_token[byte] = byte_ids_[byte] >= 0;
    // Bytes that are no UTF-8 become this.
    if (!std::all_of(kReplacementCharacter.begin(), kReplacementCharacter.end(),
                     [&](char c) { return has_token[static_cast<uint8_t>(c)]; })) {
      return 0;
    }
    return CountBytesOfText(utf8, has_token) / tokens().most_text_bytes();
  }

 protected:
  absl::Status EncodeStretch(std::string_view text, StretchPlace /*place*/, EncodePace* pace,
                             std::vector<kvcache::TokenId>* out) const override {
    std::vector<int32_t> symbols;
    PairMerger::Scratch scratch(pace);
    return pre_tokenizer_->Split(text, [&](std::string_view piece) {
      if (pace != nullptr) {
        pace->Did(piece.size());
        if (pace->stopped()) return false;
      }
      EncodePiece(piece, &symbols, &scratch, out);
      return true;
    });
  }

 private:
  void EncodePiece(std::string_view piece, std::vector<int32_t>* symbols,
                   PairMerger::Scratch* scratch, std::vector<kvcache::TokenId>* out) const {
    const int32_t whole = tokens().FindText(piece);
    if (whole >= 0 && (ignore_merges_ || whole_words_.IsKnownWhole(whole))) {
      out->push_back(kvcache::TokenId{whole});
      return;
    }
    symbols->clear();
    for (const char c : piece) {
      // A byte without a token is gone before merging: its neighbours may merge.
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) symbols->push_back(id);
    }
    merger_.Merge(symbols, scratch);
    if (whole >= 0 && symbols->size() == 1 && symbols->front() == whole) {
      whole_words_.Remember(whole);
    }
    for (const int32_t id : *symbols) out->push_back(kvcache::TokenId{id});
  }

  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  PairMerger merger_;
  std::array<int32_t, 256> byte_ids_;
  bool ignore_merges_;
  mutable WholeWordMemo whole_words_;
};

Vocabulary BuildVocabulary(const TokenizerSpec& spec) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    TokenType type = TypeOf(spec, id);
    std::optional<std::string> bytes;
    if (type != TokenType::kControl && type != TokenType::kUserDefined) {
      bytes = DecodeByteLevel(spec.tokens[id]);
      // Text outside of the alphabet cannot be reached by merging bytes.
      if (!bytes.has_value() && type == TokenType::kNormal) type = TokenType::kUnused;
    }
    vocabulary.tokens.Add(bytes.has_value() ? *bytes : spec.tokens[id], type);
  }
  vocabulary.tokens.IndexText();
  return vocabulary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(const TokenizerSpec& spec,
                                                              std::string_view pre_tokenizer_name) {
  absl::StatusOr<SpellingIndex> spellings = SpellingIndex::Create(spec);
  if (!spellings.ok()) return spellings.status();
  absl::StatusOr<PairMerger> merger = spellings->BuildMerger(spec);
  if (!merger.ok()) return merger.status();
  absl::StatusOr<std::unique_ptr<PreTokenizer>> pre_tokenizer =
      pre_tokenizer_name == "custom" ? PreTokenizer::CreateFromPatterns(spec.split_patterns)
                                     : PreTokenizer::CreateByName(pre_tokenizer_name);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();

  BpeTokenizer::Parts parts{.vocabulary = BuildVocabulary(spec),
                            .pre_tokenizer = *std::move(pre_tokenizer),
                            .merger = *std::move(merger),
                            .byte_ids = {},
                            .ignore_merges = false};
  const bool as_llama3 = PreTokenizer::IgnoresMergesByName(pre_tokenizer_name);
  parts.ignore_merges = spec.ignore_merges.value_or(as_llama3);
  parts.vocabulary.adds_bos = spec.add_bos.value_or(as_llama3);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    parts.byte_ids[byte] = parts.vocabulary.tokens.FindText(std::string_view(&c, 1));
  }
  absl::Status status = ApplySpecialTokens(spec, &parts.vocabulary);
  if (!status.ok()) return status;
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace refrain::engine
