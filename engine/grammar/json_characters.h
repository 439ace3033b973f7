#ifndef REFRAIN_ENGINE_GRAMMAR_JSON_CHARACTERS_H_
#define REFRAIN_ENGINE_GRAMMAR_JSON_CHARACTERS_H_

#include <array>
#include <cstdint>
#include <optional>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// How a character stands in a JSON string.
enum class JsonEscapes {
  kAll,    // in each way that JSON has
  kUsual,  // printable ASCII without `\u`: as itself, or with a backslash (\" \\ \/)
};

// Draws characters of a JSON string between two nodes, which may be the same. Surrogates are in
// pairs only. One thread; fails as the builder does.
class JsonCharacters {
 public:
  // The builder outlives it.
  JsonCharacters(NodeId from, NodeId to, JsonEscapes escapes, GrammarBuilder* builder);

  void Add(char32_t first, char32_t last);

 private:
  void AddPairs(char32_t first, char32_t last);
  // [first, last] as `num_digits` hexadecimal digits.
  void AddHex(NodeId from, uint32_t first, uint32_t last, int num_digits, NodeId to);
  NodeId AnyHex(int num_digits, NodeId to);
  NodeId Backslash();
  NodeId Code();          // behind `\u`
  NodeId LowSurrogate();  // from where any one leads to to_

  const NodeId from_, to_;
  const JsonEscapes escapes_;
  GrammarBuilder& builder_;
  std::optional<NodeId> backslash_, code_, low_surrogate_;
  // Those that lead to to_, and those that lead to LowSurrogate().
  std::array<std::optional<NodeId>, 4> any_hex_, any_hex_of_high_;  // [num_digits]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_JSON_CHARACTERS_H_
