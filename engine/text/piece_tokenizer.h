#ifndef REFRAIN_ENGINE_TEXT_PIECE_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_PIECE_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// SentencePiece-type vocabularies without a SentencePiece model: pieces with scores (GGUF of model
// `llama`) or with merges (tokenizer.json of Llama 2 and Mistral). Our own merging; equal to
// libsentencepiece on its BPE models with the identity normalizer. `spec.kind` is kSentencePiece.
// See CreateTokenizer for what is refused.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreatePieceTokenizer(const TokenizerSpec& spec);

// The byte of a byte token, spelled `<0xHH>`. InvalidArgument names the token.
absl::StatusOr<uint8_t> ParseByteToken(size_t id, std::string_view spelling);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_PIECE_TOKENIZER_H_
