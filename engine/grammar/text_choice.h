#ifndef REFRAIN_ENGINE_GRAMMAR_TEXT_CHOICE_H_
#define REFRAIN_ENGINE_GRAMMAR_TEXT_CHOICE_H_

#include <string>
#include <vector>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Draws one of these texts between two nodes; what several begin with is drawn once.
void AddOneOf(std::vector<std::string> texts, NodeId from, NodeId to, GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_TEXT_CHOICE_H_
