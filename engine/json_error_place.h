#ifndef REFRAIN_ENGINE_JSON_ERROR_PLACE_H_
#define REFRAIN_ENGINE_JSON_ERROR_PLACE_H_

#include <string>
#include <string_view>

namespace refrain::engine {

// Where a text that a parser has refused stops being JSON: "wrong at byte 12 of 40", counted from
// 1, "ends too early, after 40 bytes", or "the number that ends at byte 12 of 40 is too large" for
// what a double cannot hold. Parses it anew, any number of containers deep. Nothing of the text is
// shown: it may be any file's, of any length. Throws nothing.
std::string JsonErrorPlace(std::string_view text);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_JSON_ERROR_PLACE_H_
