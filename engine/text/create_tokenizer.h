#ifndef REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// The pre-tokenizer that a byte-level BPE gets whose source names none ("default" is no name):
// that of Llama 3, whose first GGUF files are so, where the vocabulary has its begin of text, else
// that of GPT-2. Absent: the source names one, or none is needed.
std::optional<std::string_view> AssumedPreTokenizer(const TokenizerSpec& spec);

// Builds a byte-level BPE or SentencePiece-type tokenizer. InvalidArgument names the first thing
// that is wrong: sizes that differ, duplicate tokens, ids or merges outside of the vocabulary, an
// unknown pre-tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const TokenizerSpec& spec);

enum class SentencePieceMerging { kOwnWhereEqual, kLibrary };

// Builds a tokenizer from the bytes of a SentencePiece `.model` file. Byte-pair models with the
// identity normalizer (Llama 2, Mistral) are merged by our own code, which gives the same ids in
// time O(n log n); others, and all under kLibrary, by libsentencepiece. What the files beside it
// say of tokens and their types, bos, eos, add_bos, the space prefix and end_of_generation stands
// above the model's own; its eos ends a generation in any case. InvalidArgument when the bytes are
// no such model, an id is outside of the vocabulary, or a token beside it has the id of another
// piece. Unimplemented for a space prefix at the start only where libsentencepiece would merge.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view model_bytes, const TokenizerSpec& files_beside = {},
    SentencePieceMerging merging = SentencePieceMerging::kOwnWhereEqual);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CREATE_TOKENIZER_H_
