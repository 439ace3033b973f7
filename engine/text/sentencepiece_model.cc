#include "engine/text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

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
  if (!key.has_value()) return std::nullopt;
  WireField field{*key >> 3, *key & 7, {}};
  uint64_t size_bytes = 0;
  if (field.wire_type == 0) {
    if (!TakeVarint(bytes).has_value()) return std::nullopt;
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

// The library trusts some of what it reads: the character map of a normalizer is used as an index
// into itself. So the frame is checked here, and models that have such a map are refused (none of
// the Llama family has). Empty when all is well.
std::string FindUnsafePart(std::string_view model_bytes) {
  constexpr uint64_t kPieces = 1, kNormalizerSpec = 3, kDenormalizerSpec = 5;
  constexpr uint64_t kPrecompiledCharsMap = 2;
  size_t num_pieces = 0;
  while (!model_bytes.empty()) {
    const std::optional<WireField> field = TakeField(&model_bytes);
    if (!field.has_value()) return "the file is cut off or no SentencePiece model";
    if (field->number == kPieces) ++num_pieces;
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

class LibraryModel : public SentencePieceModel {
 public:
  explicit LibraryModel(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
      : processor_(std::move(processor)) {}

  int num_pieces() const override { return processor_->GetPieceSize(); }
  std::string Piece(int id) const override { return processor_->IdToPiece(id); }
  PieceType Type(int id) const override {
    if (processor_->IsControl(id)) return PieceType::kControl;
    if (processor_->IsUnknown(id)) return PieceType::kUnknown;
    if (processor_->IsByte(id)) return PieceType::kByte;
    if (processor_->IsUnused(id)) return PieceType::kUnused;
    return PieceType::kNormal;
  }
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
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::LoadOrNull(std::string_view model_bytes,
                                                                   std::string* error) {
  *error = FindUnsafePart(model_bytes);
  if (!error->empty()) return nullptr;
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(model_bytes);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  return std::make_unique<LibraryModel>(std::move(processor));
}

}  // namespace refrain::engine
