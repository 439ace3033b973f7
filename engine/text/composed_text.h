#ifndef REFRAIN_ENGINE_TEXT_COMPOSED_TEXT_H_
#define REFRAIN_ENGINE_TEXT_COMPOSED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/text/encode_pace.h"

namespace refrain::engine {

// How many times as long as its composed form a text may be, in bytes of UTF-8: three jamo of 3
// bytes become one syllable of 3, KELVIN SIGN becomes K.
inline constexpr size_t kMaxBytesPerComposedByte = 3;

// Unicode's normalization form C (UAX 15) of well-formed UTF-8, by the tables of libutf8proc; what
// the normalizer NFC of Hugging Face `tokenizers` does. Where the text is composed already as far
// as can be seen at once (all its characters below U+0300), it is returned itself, else what was
// written to `*storage`. Time is O(n log n) whatever the text, marks without end included. `pace`
// may be null; once it has stopped, the result is not complete. Pure; any thread.
std::string_view ComposeText(std::string_view utf8, EncodePace* pace, std::string* storage);

// Whether a text may be cut before this character and both parts composed by themselves. False only
// of few that never take part in what stands before them.
bool BeginsComposition(char32_t code_point);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_COMPOSED_TEXT_H_
