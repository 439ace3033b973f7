#include "engine/text/detokenizer.h"

#include <cstdint>
#include <utility>

#include "engine/text/utf8.h"

namespace refrain::engine {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(options) {}

std::string Detokenizer::Append(kvcache::TokenId id) {
  if (!tokenizer_->IsControl(id)) return AppendBytes(tokenizer_->TokenBytes(id));
  std::string out = Flush();
  if (!options_.skip_special) {
    out += tokenizer_->TokenBytes(id);
    at_start_ = false;
  }
  return out;
}

std::string Detokenizer::AppendBytes(std::string_view bytes) {
  if (at_start_ && !bytes.empty()) {
    at_start_ = false;
    if (options_.drop_leading_space && bytes[0] == ' ') bytes.remove_prefix(1);
  }
  std::string out;
  if (held_.empty()) {
    Release(bytes, &out);
  } else {
    const std::string joined = std::exchange(held_, {}).append(bytes);
    Release(joined, &out);
  }
  return out;
}

std::string Detokenizer::Flush() { return ReplaceIllFormedUtf8(std::exchange(held_, {})); }

bool Detokenizer::BeginsSurrogate(std::string_view bytes) {
  return bytes.size() == 2 && bytes[0] == '\xED' && static_cast<uint8_t>(bytes[1]) >= 0xA0 &&
         static_cast<uint8_t>(bytes[1]) <= 0xBF;
}

void Detokenizer::Release(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    if (BeginsSurrogate(bytes)) {
      held_ = bytes;
      return;
    }
    const Utf8Unit unit = FirstUtf8Unit(bytes);
    switch (unit.kind) {
      case Utf8Unit::Kind::kCharacter:
        out->append(bytes.substr(0, unit.size_bytes));
        break;
      case Utf8Unit::Kind::kIllFormed:
        out->append(kReplacementCharacter);
        break;
      case Utf8Unit::Kind::kIncomplete:
        held_ = bytes;
        return;
    }
    bytes.remove_prefix(unit.size_bytes);
  }
}

}  // namespace refrain::engine
