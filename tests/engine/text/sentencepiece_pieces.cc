#include "tests/engine/text/sentencepiece_pieces.h"

#include <sentencepiece_processor.h>

namespace refrain::engine {

std::vector<SentencePieceEntry> ReadSentencePieces(const std::string& model_bytes) {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<SentencePieceEntry> pieces;
  if (!processor.LoadFromSerializedProto(model_bytes).ok()) return pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    int type = 1;
    if (processor.IsUnknown(id)) type = 2;
    if (processor.IsControl(id)) type = 3;
    if (processor.IsUnused(id)) type = 5;
    if (processor.IsByte(id)) type = 6;
    pieces.push_back({processor.IdToPiece(id), processor.GetScore(id), type});
  }
  return pieces;
}

}  // namespace refrain::engine
