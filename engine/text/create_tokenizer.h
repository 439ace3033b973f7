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

enum class SentencePieceMerging { kOwnWhereEqual, kLibrary };

// Builds a tokenizer from the bytes of a SentencePiece `.model` file. Byte-pair models with the
// identity normalizer (Llama 2, Mistral) are merged by our own code, which gives the same ids in
// time O(n log n); others, and all under kLibrary, by libsentencepiece. What the files beside it
// say of bos, eos, add_bos and end_of_generation stands above the model's own; its eos ends a
// generation in any case. InvalidArgument when the bytes are no such model, or an id is outside of
// its vocabulary.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view model_bytes, const TokenizerSpec& files_beside = {},
    SentencePieceMerging merging = SentencePieceMerging::kOwnWhereEqual);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_
