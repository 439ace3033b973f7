#ifndef REFRAIN_ENGINE_TEXT_CHARACTER_CLASS_H_
#define REFRAIN_ENGINE_TEXT_CHARACTER_CLASS_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::engine {

// The classes `\s` and `\w` of Rust's `regex`, by which Hugging Face `tokenizers` looks at what
// stands beside an added token. Bytes that are no UTF-8 are in none. Pure; any thread.

// Bytes of the white space character that the text begins or ends with; 0: of none.
size_t SpaceBytesAtStart(std::string_view text);
size_t SpaceBytesAtEnd(std::string_view text);

// A megabyte and some tens of milliseconds to create; only few vocabularies need it.
class WordCharacters {
 public:
  // ResourceExhausted where there is no memory for PCRE2, which knows the properties.
  static absl::StatusOr<WordCharacters> Create();

  // Of the character that the text begins or ends with; false for an empty one.
  bool BeginWord(std::string_view text) const;
  bool EndWord(std::string_view text) const;

 private:
  WordCharacters() = default;

  std::vector<bool> is_word_;  // [kCodePoints]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CHARACTER_CLASS_H_
