#include "engine/text/create_tokenizer.h"

#include <algorithm>

#include "engine/text/bpe_tokenizer.h"
#include "engine/text/piece_tokenizer.h"

namespace refrain::engine {

std::optional<std::string_view> AssumedPreTokenizer(const TokenizerSpec& spec) {
  const bool is_named = !spec.pre_tokenizer.empty() && spec.pre_tokenizer != "default";
  if (is_named || spec.kind != TokenizerKind::kBytePairEncoding) return std::nullopt;
  const bool is_llama3 =
      std::find(spec.tokens.begin(), spec.tokens.end(), "<|begin_of_text|>") != spec.tokens.end();
  return is_llama3 ? "llama-bpe" : "gpt2";
}

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const TokenizerSpec& spec) {
  switch (spec.kind) {
    case TokenizerKind::kBytePairEncoding:
      return CreateBpeTokenizer(spec, AssumedPreTokenizer(spec).value_or(spec.pre_tokenizer));
    case TokenizerKind::kSentencePiece:
      return CreatePieceTokenizer(spec);
  }
  return absl::InvalidArgumentError("unknown kind of tokenizer");
}

}  // namespace refrain::engine
