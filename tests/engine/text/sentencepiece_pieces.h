#ifndef REFRAIN_TESTS_ENGINE_TEXT_SENTENCEPIECE_PIECES_H_
#define REFRAIN_TESTS_ENGINE_TEXT_SENTENCEPIECE_PIECES_H_

#include <string>
#include <vector>

namespace refrain::engine {

struct SentencePieceEntry {
  std::string text;
  float score;
  int type;  // as in GGUF: 1 normal, 2 unknown, 3 control, 5 unused, 6 byte
};

// The pieces of a `.model` by id, through libsentencepiece. Standard types only: see
// engine/text/sentencepiece_model.h.
std::vector<SentencePieceEntry> ReadSentencePieces(const std::string& model_bytes);

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_TEXT_SENTENCEPIECE_PIECES_H_
