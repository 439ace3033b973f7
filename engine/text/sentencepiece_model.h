#ifndef REFRAIN_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_
#define REFRAIN_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace refrain::engine {

// libsentencepiece behind standard types only: its header declares names in namespace absl that
// abseil's own headers declare otherwise, so no file may include both. Errors are text, not Status,
// for the same reason.
// Called by the SentencePiece tokenizer. Immutable after Load; any thread.
class SentencePieceModel {
 public:
  enum class PieceType { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

  // What the file says about how texts are read, beside its pieces.
  struct Settings {
    // Byte-pair encoding over texts as they are but for the space prefix, by pieces that are all
    // merged alike: nothing that the library would know better than PieceTokenizer.
    bool is_plain_bpe = false;
    bool adds_space_prefix = true;
  };

  // Whether no text may spell a piece.
  using IsReserved = std::function<bool(size_t id, std::string_view piece, PieceType type)>;

  // Null and `error` set when the bytes are no model. The library finds no reserved piece in a
  // text; what the file calls it Type still tells.
  static std::unique_ptr<SentencePieceModel> LoadOrNull(std::string_view model_bytes,
                                                        const IsReserved& is_reserved,
                                                        std::string* error);
  virtual ~SentencePieceModel() = default;

  virtual int num_pieces() const = 0;
  virtual std::string Piece(int id) const = 0;  // id in [0, num_pieces)
  virtual PieceType Type(int id) const = 0;
  virtual float Score(int id) const = 0;
  virtual const Settings& settings() const = 0;
  virtual int unk_id() const = 0;
  virtual int bos_id() const = 0;  // -1: none
  virtual int eos_id() const = 0;  // -1: none

  // False and `error` set when the library reports one.
  virtual bool Encode(std::string_view text, std::vector<int>* ids, std::string* error) const = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_
