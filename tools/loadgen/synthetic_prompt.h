#ifndef REFRAIN_TOOLS_LOADGEN_SYNTHETIC_PROMPT_H_
#define REFRAIN_TOOLS_LOADGEN_SYNTHETIC_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

// Ids that a prompt may be made of: [low, high). Above the control tokens, below the vocabulary.
struct TokenRange {
  int32_t low = 1000;
  int32_t high = 30000;
};

// The same `count` ids for the same seed, evenly drawn from `range`.
std::vector<int32_t> SyntheticIds(uint64_t seed, int32_t count, TokenRange range);

// `count` common English words, each with a blank before it: about as many tokens, as the
// vocabularies in use have each of them as one token. The same for the same seed.
std::string SyntheticText(uint64_t seed, int32_t count);

// One seed out of two, so that neighbours are unrelated.
uint64_t MixSeed(uint64_t a, uint64_t b);

// Appends `count` tokens to a turn as its form wants them: ids, or words in a message of `role`.
void AppendSynthetic(PromptForm form, uint64_t seed, int32_t count, TokenRange range,
                     const char* role, Turn* turn);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SYNTHETIC_PROMPT_H_
