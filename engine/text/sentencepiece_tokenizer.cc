#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/sentencepiece_model.h"
#include "engine/text/space_mark.h"
#include "engine/text/vocabulary_tokenizer.h"

namespace refrain::engine {
namespace {

class SentencePieceTokenizer : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(Vocabulary vocabulary, std::unique_ptr<SentencePieceModel> model)
      : VocabularyTokenizer(std::move(vocabulary)), model_(std::move(model)) {}

 protected:
  // The library puts the model's space prefix before every stretch, after special tokens too.
  absl::Status EncodeStretch(std::string_view text, StretchPlace /*place*/,
                             std::vector<kvcache::TokenId>* out) const override {
    std::vector<int> ids;
    std::string error;
    if (!model_->Encode(text, &ids, &error)) {
      return absl::InternalError(absl::StrCat("SentencePiece: ", error));
    }
    for (const int id : ids) out->push_back(kvcache::TokenId{id});
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<SentencePieceModel> model_;
};

TokenType TypeOfPiece(SentencePieceModel::PieceType type) {
  switch (type) {
    case SentencePieceModel::PieceType::kNormal:
      return TokenType::kNormal;
    case SentencePieceModel::PieceType::kUnknown:
      return TokenType::kUnknown;
    case SentencePieceModel::PieceType::kControl:
      return TokenType::kControl;
    case SentencePieceModel::PieceType::kUnused:
      return TokenType::kUnused;
    case SentencePieceModel::PieceType::kByte:
      return TokenType::kByte;
  }
  return TokenType::kUnused;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view model_bytes) {
  std::string error;
  std::unique_ptr<SentencePieceModel> model = SentencePieceModel::LoadOrNull(model_bytes, &error);
  if (model == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("SentencePiece model: ", error));
  }
  Vocabulary vocabulary;
  TokenizerSpec specials;  // what ApplySpecialTokens wants to know
  for (int id = 0; id < model->num_pieces(); ++id) {
    const std::string piece = model->Piece(id);
    const TokenType type = TypeOfPiece(model->Type(id));
    specials.tokens.push_back(piece);
    if (type == TokenType::kByte) {
      // The library vouches for the spelling <0xHH>.
      const char byte = static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
      vocabulary.tokens.Add(std::string_view(&byte, 1), type);
    } else if (type == TokenType::kControl) {
      vocabulary.tokens.Add(piece, type);
    } else {
      vocabulary.tokens.Add(SpacesForMarks(piece), type);
    }
  }
  if (model->bos_id() >= 0) specials.bos = kvcache::TokenId{model->bos_id()};
  if (model->eos_id() >= 0) specials.eos = kvcache::TokenId{model->eos_id()};
  vocabulary.adds_bos = specials.bos.has_value();
  absl::Status status = ApplySpecialTokens(specials, &vocabulary);
  if (!status.ok()) return status;
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), std::move(model));
}

}  // namespace refrain::engine
