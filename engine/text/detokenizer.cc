#include "engine/text/detokenizer.h"

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

std::string Detokenizer::Flush() {
  // What is held is a prefix of a character and therefore one maximal subpart.
  if (held_.empty()) return "";
  held_.clear();
  return std::string(kReplacementCharacter);
}

void Detokenizer::Release(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
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
