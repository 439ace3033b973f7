#ifndef REFRAIN_TOOLS_BENCH_GRAMMAR_WORKLOAD_H_
#define REFRAIN_TOOLS_BENCH_GRAMMAR_WORKLOAD_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"
#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::bench {

// A text that its grammar allows, as a model might write it.
struct GrammarDocument {
  std::string name;
  std::shared_ptr<const engine::Grammar> grammar;
  std::string text;
};

// Records, by a schema (once with bounded strings) and as any JSON, compact and indented; long
// strings; deep arrays.
std::vector<GrammarDocument> GrammarDocuments();

// `pieces` and pairs of them, as many as a vocabulary of 128,256 holds.
std::vector<std::string> LargeVocabulary(std::vector<std::string> pieces);

// At each place the longest token that the text has there. Empty where there is none.
std::vector<kvcache::TokenId> LongestTokens(const engine::TokenTrie& trie, std::string_view text);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GRAMMAR_WORKLOAD_H_
