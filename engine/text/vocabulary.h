#ifndef REFRAIN_ENGINE_TEXT_VOCABULARY_H_
#define REFRAIN_ENGINE_TEXT_VOCABULARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/types.h"

namespace refrain::engine {

enum class TokenizerKind {
  kBytePairEncoding,  // GGUF `tokenizer.ggml.model` = gpt2: byte-level alphabet and merges
  kSentencePiece,     // GGUF `tokenizer.ggml.model` = llama: pieces with U+2581 for a space, scores
};

// The numbers are those of GGUF `tokenizer.ggml.token_type`; 0 is read as kNormal.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,      // stands for itself in text only when special tokens are parsed
  kControl = 3,      // the same
  kUserDefined = 4,  // stands for itself in text always; where LooksLikeControl, not in plain spans
  kUnused = 5,
  kByte = 6,  // SentencePiece `<0xHH>`
};

// How a special token is found in a text, beside being spelled out there: what an AddedToken of
// Hugging Face `tokenizers` says. The default is a token that is found wherever it is spelled.
struct AddedTokenRule {
  bool takes_space_before = false;  // lstrip: the white space there is no text any more
  bool takes_space_behind = false;  // rstrip
  bool single_word = false;         // only where neither neighbour is part of a word
  bool after_others = false;        // normalized: only in what the tokens without it leave
  friend bool operator==(const AddedTokenRule&, const AddedTokenRule&) = default;
};

// Whether models publish the token that ends a turn or a text under this name. Sources often
// declare only one of several that the model really emits.
bool NamesEndOfGeneration(std::string_view spelling);

// Whether it is spelled as control tokens are, `<|user|>` or with fullwidth bars: some sources do
// not call those that begin a turn special.
bool LooksLikeControl(std::string_view spelling);

// Everything that defines a tokenizer, as the model's files say it, unchecked. The GGUF reader
// fills it from metadata, `ParseTokenizerJson` from a Hugging Face folder; `CreateTokenizer` checks
// it. It does not interpret: tokens keep the spelling of the source (the byte-level alphabet,
// U+2581), and what the source does not say stays empty so that the defaults live in one place. A
// plain value: no thread rule, cannot fail.
struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kBytePairEncoding;
  // Name as in GGUF `tokenizer.ggml.pre`: gpt2, smollm, llama-bpe, qwen2, tekken, deepseek-llm,
  // deepseek-coder, deepseek-v3 and their synonyms, or `custom` for `split_patterns`; empty: see
  // AssumedPreTokenizer. Ignored by kSentencePiece.
  std::string pre_tokenizer;
  std::vector<std::string> split_patterns;  // applied in order, matches and gaps are pieces
  std::vector<std::string> tokens;          // [vocab_size]
  std::vector<TokenType> token_types;       // [vocab_size], or empty: all normal
  // Of control and user-defined tokens, by id; those without one have the default.
  std::map<kvcache::TokenId, AddedTokenRule> added_token_rules;
  // [vocab_size] kSentencePiece without merges: the higher score merges first.
  std::vector<float> scores;
  // "left right", best first. For kSentencePiece it replaces the scores (tokenizer.json has only
  // merges).
  std::vector<std::string> merges;
  // A piece of text that is a token as a whole is not merged. Absent: true for llama-bpe and
  // tekken.
  std::optional<bool> ignore_merges;

  // kSentencePiece: a run of characters that the vocabulary lacks is one unknown token
  // (`fuse_unk`), not one for each.
  bool fuses_unknown = true;

  // Text between special tokens is brought to Unicode's normalization form C first (normalizer NFC
  // of Hugging Face; GGUF files tell of none).
  bool composes_text = false;

  std::optional<kvcache::TokenId> bos, eos, unk, pad;
  std::optional<kvcache::TokenId> eot, eom;  // GGUF eot_token_id, eom_token_id
  // Further ids that end a generation (eos list of generation_config.json).
  std::vector<kvcache::TokenId> end_of_generation;

  // Absent: true for kSentencePiece, llama-bpe and tekken, else false.
  std::optional<bool> add_bos;
  // Kept for completeness; nothing that is generated from ever ends with eos, so it is not obeyed.
  std::optional<bool> add_eos;
  // kSentencePiece: put a space before the text and after each special token. Absent: true.
  std::optional<bool> add_space_prefix;
  // kSentencePiece, Hugging Face only: the prefix goes only before the text (`prepend_scheme`
  // first, `legacy` false), and not where a space stands already (pre-tokenizer Metaspace).
  bool space_prefix_at_start_only = false;
  bool space_prefix_unless_present = false;

  std::string tokenizer_class;  // of transformers; empty: the source does not say
  std::string chat_template;    // Jinja source, empty: none
  // Those that the source has beside it, by name; see ChatTemplateSpec.
  std::map<std::string, std::string> named_chat_templates;
  // Spellings that templates see, by variable: bos_token, pad_token and the like; "": none. The
  // bos_token and eos_token that are not here are spelled as the ids of theirs.
  std::map<std::string, std::string> template_tokens;
};

// Those that end a generation by their ids: eos, eot, eom and end_of_generation.
std::set<kvcache::TokenId> EndTokens(const TokenizerSpec& spec);

// Makes user-defined ones among them control tokens: else what a user writes could end his turn.
// Not single characters, which texts are made of. For a spec whose ids are all there.
void MarkEndTokens(TokenizerSpec* spec);

// Empty ones, too.
bool IsSingleCharacter(std::string_view spelling);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_VOCABULARY_H_
