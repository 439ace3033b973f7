#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_GRAMMAR_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_GRAMMAR_H_

#include <random>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::testing {

// A few rules of a few states over the bytes a to d and 0xC3, which call each other as it comes:
// often ambiguous, with rules that may be empty, tail calls, and recursion.
engine::Grammar RandomGrammar(std::mt19937* random);

// Pieces of those bytes and of "e", some of them twice, and each byte by itself at times; "</s>".
std::vector<std::string> RandomVocabulary(std::mt19937* random);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_GRAMMAR_H_
