#ifndef REFRAIN_ENGINE_GRAMMAR_OTHER_NAMES_H_
#define REFRAIN_ENGINE_GRAMMAR_OTHER_NAMES_H_

#include <span>
#include <string_view>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Draws the rule of the names of properties, with their quotes, that are none of `taken` (UTF-8).
// They have no escapes, by which a taken one could be spelled.
RuleId AddOtherNames(std::span<const std::string_view> taken, GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OTHER_NAMES_H_
