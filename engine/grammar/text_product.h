#ifndef REFRAIN_ENGINE_GRAMMAR_TEXT_PRODUCT_H_
#define REFRAIN_ENGINE_GRAMMAR_TEXT_PRODUCT_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Texts of JSON strings, without quotes, that several grammars describe at once, so many characters
// of them (an escape is one).
struct TextProduct {
  std::vector<Grammar> all_of;   // at least one; none calls itself
  std::vector<Grammar> none_of;  // where there are any, no text has an escape with `\u`
  int min_characters = 0;
  std::optional<int> max_characters;
};

// Draws them between two nodes. NOT_FOUND where there is no such text, INVALID_ARGUMENT where it
// would take too many states; messages go on where a place stands.
absl::Status AddTextProduct(TextProduct product, NodeId from, NodeId to, GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_TEXT_PRODUCT_H_
