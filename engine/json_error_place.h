#ifndef REFRAIN_ENGINE_JSON_ERROR_PLACE_H_
#define REFRAIN_ENGINE_JSON_ERROR_PLACE_H_

#include <string>
#include <string_view>

namespace refrain::engine {

// Where a text that a parser has refused stops being JSON: "wrong at byte 12 of 40", counted from
// 1, or "ends too early, after 40 bytes". Parses it anew. Nothing of the text is shown: it may be
// any file's, of any length.
std::string JsonErrorPlace(std::string_view text);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_JSON_ERROR_PLACE_H_
