#include "engine/text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace refrain::engine {
namespace {

// One field of a protobuf message: what follows its key, or the payload of a length-delimited one.
struct WireField {
  uint64_t number;
  uint64_t wire_type;
  std::string_view payload;
  uint64_t value = 0;  // of a varint
};

std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<WireField> TakeField(std::string_view* bytes) {
  const std::optional<uint64_t> key = TakeVarint(bytes);
  // Of a longer key the library sees the lower bits: another field than the one read here.
  if (!key.has_value() || *key > UINT32_MAX) return std::nullopt;
  WireField field{*key >> 3, *key & 7, {}};
  uint64_t size_bytes = 0;
  if (field.wire_type == 0) {
    const std::optional<uint64_t> value = TakeVarint(bytes);
    if (!value.has_value()) return std::nullopt;
    field.value = *value;
  } else if (field.wire_type == 1) {
    size_bytes = 8;
  } else if (field.wire_type == 5) {
    size_bytes = 4;
  } else if (field.wire_type == 2) {
    const std::optional<uint64_t> declared = TakeVarint(bytes);
    if (!declared.has_value()) return std::nullopt;
    size_bytes = *declared;
  } else {
    return std::nullopt;
  }
  if (size_bytes > bytes->size()) return std::nullopt;
  field.payload = bytes->substr(0, size_bytes);
  bytes->remove_prefix(size_bytes);
  return field;
}

// The file's messages and fields that matter here (sentencepiece_model.proto).
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kSelfTest = 4,
                   kDenormalizerSpec = 5;

// Whether TakeField gets to the end of the message.
bool IsReadable(std::string_view message) {
  while (!message.empty()) {
    if (!TakeField(&message).has_value()) return false;
  }
  return true;
}

// The library trusts some of what it reads: the character map of a normalizer is used as an index
// into itself. So the frame is checked here, and models that have such a map are refused (none of
// the Llama family has). So are pieces that cannot be read to their end: behind a group the library
// may find another type. Empty when all is well.
std::string FindUnsafePart(std::string_view model_bytes) {
  constexpr uint64_t kPrecompiledCharsMap = 2;
  size_t num_pieces = 0;
  while (!model_bytes.empty()) {
    const std::optional<WireField> field = TakeField(&model_bytes);
    if (!field.has_value()) return "the file is cut off or no SentencePiece model";
    if (field->number == kPieces) {
      if (!IsReadable(field->payload)) {
        return "piece " + std::to_string(num_pieces) + " cannot be read";
      }
      ++num_pieces;
    }
    if (field->number != kNormalizerSpec && field->number != kDenormalizerSpec) continue;
    std::string_view spec = field->payload;
    while (!spec.empty()) {
      const std::optional<WireField> part = TakeField(&spec);
      if (!part.has_value()) return "its normalizer is cut off";
      if (part->number == kPrecompiledCharsMap && !part->payload.empty()) {
        return "its normalizer has a character map of " + std::to_string(part->payload.size()) +
               " bytes; only the identity normalizer is supported";
      }
    }
  }
  return num_pieces > 0 ? "" : "it has no pieces";
}

// Of a message that FindUnsafePart has read through: of a field that comes again the last counts.
SentencePieceModel::Settings ReadSettings(std::string_view model_bytes) {
  constexpr uint64_t kModelType = 3, kTreatSpaceAsSuffix = 24;
  constexpr uint64_t kAddDummyPrefix = 3, kRemoveExtraSpaces = 4, kEscapeSpaces = 5;
  constexpr uint64_t kBytePairEncoding = 2;
  uint64_t model_type = 1, suffix = 0, prefix = 1, removes_spaces = 1, escapes_spaces = 1;
  while (!model_bytes.empty()) {
    const std::optional<WireField> message = TakeField(&model_bytes);
    if (!message.has_value()) return {};
    std::string_view rest = message->payload;
    const bool is_trainer = message->number == kTrainerSpec;
    if (!is_trainer && message->number != kNormalizerSpec) continue;
    while (!rest.empty()) {
      const std::optional<WireField> field = TakeField(&rest);
      if (!field.has_value()) return {};
      if (field->wire_type != 0) continue;
      if (is_trainer && field->number == kModelType) model_type = field->value;
      if (is_trainer && field->number == kTreatSpaceAsSuffix) suffix = field->value;
      if (!is_trainer && field->number == kAddDummyPrefix) prefix = field->value;
      if (!is_trainer && field->number == kRemoveExtraSpaces) removes_spaces = field->value;
      if (!is_trainer && field->number == kEscapeSpaces) escapes_spaces = field->value;
    }
  }
  return {.is_plain_bpe = model_type == kBytePairEncoding && suffix == 0 && removes_spaces == 0 &&
                          escapes_spaces != 0,
          .adds_space_prefix = prefix != 0};
}

// As protobuf reads an enumeration: the lower 32 bits, and what is none of its values is passed
// over.
std::optional<SentencePieceModel::PieceType> TypeOfNumber(uint64_t number) {
  using PieceType = SentencePieceModel::PieceType;
  switch (static_cast<uint32_t>(number)) {
    case 1:
      return PieceType::kNormal;
    case 2:
      return PieceType::kUnknown;
    case 3:
      return PieceType::kControl;
    case 4:
      return PieceType::kUserDefined;
    case 5:
      return PieceType::kUnused;
    case 6:
      return PieceType::kByte;
    default:
      return std::nullopt;
  }
}

struct Piece {
  std::string_view text;
  SentencePieceModel::PieceType type = SentencePieceModel::PieceType::kNormal;
};

Piece ReadPiece(std::string_view message) {
  constexpr uint64_t kText = 1, kType = 3;
  Piece piece;
  while (!message.empty()) {
    const std::optional<WireField> field = TakeField(&message);
    if (!field.has_value()) break;
    if (field->number == kText && field->wire_type == 2) piece.text = field->payload;
    if (field->number == kType && field->wire_type == 0) {
      piece.type = TypeOfNumber(field->value).value_or(piece.type);
    }
  }
  return piece;
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

struct PreparedModel {
  std::string bytes;                                 // for the library
  std::vector<SentencePieceModel::PieceType> types;  // as the file has them, [num_pieces]
  std::vector<std::string_view> user_defined;        // that the library looks for in texts
};

// Has the library take the reserved pieces for control pieces, and leaves the self-test out, which
// was made without that. Of a message that FindUnsafePart has read through.
PreparedModel Prepare(std::string_view model_bytes,
                      const SentencePieceModel::IsReserved& is_reserved) {
  constexpr std::string_view kControlType("\x18\x03", 2);  // of a field that comes again the last
  PreparedModel prepared;
  prepared.bytes.reserve(model_bytes.size());
  while (!model_bytes.empty()) {
    const std::string_view from = model_bytes;
    const std::optional<WireField> message = TakeField(&model_bytes);
    if (!message.has_value()) break;
    if (message->number == kSelfTest) continue;
    if (message->number == kPieces && message->wire_type == 2) {
      const Piece piece = ReadPiece(message->payload);
      prepared.types.push_back(piece.type);
      if (is_reserved(prepared.types.size() - 1, piece.text, piece.type)) {
        prepared.bytes.push_back(kPieces << 3 | 2);
        AppendVarint(message->payload.size() + kControlType.size(), &prepared.bytes);
        prepared.bytes.append(message->payload).append(kControlType);
        continue;
      }
      if (piece.type == SentencePieceModel::PieceType::kUserDefined) {
        prepared.user_defined.push_back(piece.text);
      }
    }
    prepared.bytes.append(from.substr(0, from.size() - model_bytes.size()));
  }
  return prepared;
}

// The library (0.1.97) has room for so many user-defined pieces that begin at one place of a text,
// and reads beyond it where there are more.
constexpr size_t kMaxPrefixes = 64;

// Whether more of these begin with one another than that. To the library a piece ends at a zero.
bool HaveTooManyPrefixes(std::vector<std::string_view> pieces) {
  for (std::string_view& piece : pieces) piece = piece.substr(0, piece.find('\0'));
  std::sort(pieces.begin(), pieces.end());
  std::vector<std::string_view> chain;  // each begins with the one before
  for (const std::string_view piece : pieces) {
    while (!chain.empty() && !piece.starts_with(chain.back())) chain.pop_back();
    if (!chain.empty() && piece == chain.back()) continue;
    chain.push_back(piece);
    if (chain.size() > kMaxPrefixes) return true;
  }
  return false;
}

class LibraryModel : public SentencePieceModel {
 public:
  LibraryModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
               const Settings& settings, std::vector<PieceType> types)
      : processor_(std::move(processor)), settings_(settings), types_(std::move(types)) {
    types_.resize(static_cast<size_t>(num_pieces()), PieceType::kUnused);
    for (const PieceType type : types_) {
      // The library looks for the former first and takes the latter apart again.
      if (type == PieceType::kUserDefined || type == PieceType::kUnused) {
        settings_.is_plain_bpe = false;
      }
    }
  }

  int num_pieces() const override { return processor_->GetPieceSize(); }
  std::string Piece(int id) const override { return processor_->IdToPiece(id); }
  PieceType Type(int id) const override { return types_[static_cast<size_t>(id)]; }
  float Score(int id) const override { return processor_->GetScore(id); }
  const Settings& settings() const override { return settings_; }
  int unk_id() const override { return processor_->unk_id(); }
  int bos_id() const override { return processor_->bos_id(); }
  int eos_id() const override { return processor_->eos_id(); }

  bool Encode(std::string_view text, std::vector<int>* ids, std::string* error) const override {
    const auto status = processor_->Encode(text, ids);
    if (status.ok()) return true;
    *error = status.ToString();
    return false;
  }

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Settings settings_;
  std::vector<PieceType> types_;  // [num_pieces]
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::LoadOrNull(std::string_view model_bytes,
                                                                   const IsReserved& is_reserved,
                                                                   std::string* error) {
  *error = FindUnsafePart(model_bytes);
  if (!error->empty()) return nullptr;
  PreparedModel prepared = Prepare(model_bytes, is_reserved);
  if (HaveTooManyPrefixes(std::move(prepared.user_defined))) {
    *error = "more than " + std::to_string(kMaxPrefixes) +
             " of its user-defined pieces begin with one another";
    return nullptr;
  }
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(prepared.bytes);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  return std::make_unique<LibraryModel>(std::move(processor), ReadSettings(model_bytes),
                                        std::move(prepared.types));
}

}  // namespace refrain::engine
