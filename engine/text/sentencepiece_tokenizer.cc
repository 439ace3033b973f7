#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/piece_tokenizer.h"
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
  // The library puts the model's space prefix before every stretch, after special tokens too. It
  // takes a text in one go: no rests beside running streams, and no end before it is done.
  absl::Status EncodeStretch(std::string_view text, StretchPlace place, EncodePace* /*pace*/,
                             std::vector<kvcache::TokenId>* out) const override {
    if (place == StretchPlace::kAfterText) {
      return absl::FailedPreconditionError("SentencePiece cannot continue a text");
    }
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

using PieceType = SentencePieceModel::PieceType;

// Whether no message may spell the piece (Tokenizer::IsReserved): the library, which is told of no
// plain spans, must not find it. What makes a piece of the vocabulary itself reserved is what
// MarkControlTokens and MarkEndTokens say; `is_end`: an id of the files beside the model's ends.
bool IsReservedPiece(std::string_view piece, PieceType type, TokenType listed, bool is_end) {
  if (type != PieceType::kNormal && type != PieceType::kUserDefined) return false;
  if (IsSingleCharacter(piece)) return false;  // text is made of them
  const bool added = type == PieceType::kUserDefined || listed == TokenType::kUserDefined;
  return listed == TokenType::kControl || (added && (is_end || LooksLikeControl(piece))) ||
         (NamesEndOfGeneration(piece) && (added || piece != "</s>"));
}

// What the files beside the model call a piece; unused: they do not list it.
TokenType TypeListed(const TokenizerSpec& files_beside, size_t id) {
  return id < files_beside.token_types.size() ? files_beside.token_types[id] : TokenType::kUnused;
}

TokenType TypeOfPiece(std::string_view piece, PieceType type, bool is_end) {
  switch (type) {
    case PieceType::kNormal:
    case PieceType::kUserDefined:
      if (!IsReservedPiece(piece, type, TokenType::kUnused, is_end)) {
        return TokenType::kNormal;  // user-defined ones the library finds in a text
      }
      return is_end || NamesEndOfGeneration(piece) ? TokenType::kControl : TokenType::kUserDefined;
    case PieceType::kUnknown:
      return TokenType::kUnknown;
    case PieceType::kControl:
      return TokenType::kControl;
    case PieceType::kUnused:
      return TokenType::kUnused;
    case PieceType::kByte:
      return TokenType::kByte;
  }
  return TokenType::kUnused;
}

TokenizerSpec SpecOf(const SentencePieceModel& model, const std::set<kvcache::TokenId>& ends) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  for (int id = 0; id < model.num_pieces(); ++id) {
    spec.tokens.push_back(model.Piece(id));
    spec.scores.push_back(model.Score(id));
    spec.token_types.push_back(
        TypeOfPiece(spec.tokens.back(), model.Type(id), ends.contains(kvcache::TokenId{id})));
  }
  const auto id_or_none = [](int id) {
    return id >= 0 ? std::optional(kvcache::TokenId{id}) : std::nullopt;
  };
  spec.unk = id_or_none(model.unk_id());
  spec.bos = id_or_none(model.bos_id());
  spec.eos = id_or_none(model.eos_id());
  spec.add_space_prefix = model.settings().adds_space_prefix;
  return spec;
}

// A token of the files beside the model is one more, or says what the model's own is for.
absl::Status PutTokensAbove(const TokenizerSpec& files_beside, TokenizerSpec& spec) {
  for (size_t id = 0; id < files_beside.tokens.size(); ++id) {
    const std::string& token = files_beside.tokens[id];
    const TokenType type = files_beside.token_types[id];
    if (id == spec.tokens.size()) {
      spec.tokens.push_back(token);
      spec.scores.push_back(0);
      spec.token_types.push_back(type);
    } else if (!token.empty() && token != spec.tokens[id]) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, " is '", spec.tokens[id],
                                                     "' in the SentencePiece model and '", token,
                                                     "' in the files beside it"));
    } else if (!token.empty() && spec.token_types[id] != TokenType::kControl &&
               spec.token_types[id] != TokenType::kByte) {  // listed or not, text is made of bytes
      spec.token_types[id] = type;
    }
  }
  spec.added_token_rules = files_beside.added_token_rules;
  return absl::OkStatus();
}

void PutAbove(const TokenizerSpec& files_beside, TokenizerSpec& spec) {
  if (files_beside.add_space_prefix.has_value()) {
    spec.add_space_prefix = files_beside.add_space_prefix;
  }
  spec.space_prefix_at_start_only = files_beside.space_prefix_at_start_only;
  spec.space_prefix_unless_present = files_beside.space_prefix_unless_present;
  spec.end_of_generation = files_beside.end_of_generation;
  if (files_beside.eos.has_value() && spec.eos.has_value()) {
    spec.end_of_generation.push_back(*spec.eos);
  }
  if (files_beside.eos.has_value()) spec.eos = files_beside.eos;
  if (files_beside.bos.has_value()) spec.bos = files_beside.bos;
  spec.add_bos = files_beside.add_bos.value_or(spec.bos.has_value());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view model_bytes, const TokenizerSpec& files_beside, SentencePieceMerging merging) {
  const std::set<kvcache::TokenId> ends = EndTokens(files_beside);
  std::string error;
  std::unique_ptr<SentencePieceModel> model = SentencePieceModel::LoadOrNull(
      model_bytes,
      [&](size_t id, std::string_view piece, PieceType type) {
        return IsReservedPiece(piece, type, TypeListed(files_beside, id),
                               ends.contains(kvcache::TokenId{static_cast<int32_t>(id)}));
      },
      &error);
  if (model == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("SentencePiece model: ", error));
  }
  TokenizerSpec spec = SpecOf(*model, ends);
  absl::Status status = PutTokensAbove(files_beside, spec);
  if (!status.ok()) return status;
  PutAbove(files_beside, spec);
  MarkEndTokens(&spec);
  if (merging == SentencePieceMerging::kOwnWhereEqual && model->settings().is_plain_bpe) {
    return CreatePieceTokenizer(spec);
  }
  if (spec.space_prefix_at_start_only) {
    return absl::UnimplementedError(
        "tokenizer_config.json: legacy false is supported beside plain byte-pair SentencePiece "
        "models only; a tokenizer.json may serve in its place");
  }
  Vocabulary vocabulary;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& piece = spec.tokens[id];
    const TokenType type = spec.token_types[id];
    if (type == TokenType::kByte) {
      const absl::StatusOr<uint8_t> byte = ParseByteToken(id, piece);
      if (!byte.ok()) return byte.status();
      const char c = static_cast<char>(*byte);
      vocabulary.tokens.Add(std::string_view(&c, 1), type);
    } else if (type == TokenType::kControl) {
      vocabulary.tokens.Add(piece, type);
    } else {
      vocabulary.tokens.Add(SpacesForMarks(piece), type);
    }
  }
  vocabulary.adds_bos = *spec.add_bos;
  vocabulary.adds_space_prefix = spec.add_space_prefix.value_or(true);
  vocabulary.adds_space_after_specials = vocabulary.adds_space_prefix;
  status = ApplySpecialTokens(spec, &vocabulary);
  if (!status.ok()) return status;
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), std::move(model));
}

}  // namespace refrain::engine
