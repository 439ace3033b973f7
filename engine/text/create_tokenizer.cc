#include "engine/text/create_tokenizer.h"

#include "engine/text/bpe_tokenizer.h"
#include "engine/text/piece_tokenizer.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const TokenizerSpec& spec) {
  switch (spec.kind) {
    case TokenizerKind::kBytePairEncoding:
      return CreateBpeTokenizer(spec);
    case TokenizerKind::kSentencePiece:
      return CreatePieceTokenizer(spec);
  }
  return absl::InvalidArgumentError("unknown kind of tokenizer");
}

}  // namespace refrain::engine
