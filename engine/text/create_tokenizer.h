#ifndef REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// Builds a byte-level BPE or SentencePiece-type tokenizer. InvalidArgument names the first thing
// that is wrong: sizes that differ, duplicate tokens, ids or merges outside of the vocabulary, an
// unknown pre-tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const TokenizerSpec& spec);

// Builds a tokenizer from the bytes of a SentencePiece `.model` file, through libsentencepiece.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view model_bytes);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_
