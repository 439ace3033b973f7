#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_TEXT_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::testing {

// Texts of a grammar, found by walks through it at random. One thread.
class RandomTexts {
 public:
  // The grammar outlives it.
  RandomTexts(const engine::Grammar* grammar, uint32_t seed);

  // Beyond about so many bytes it ends as soon as it can.
  std::string Next(size_t usual_bytes);

 private:
  struct Edge {
    uint8_t first, last;  // of bytes, where there is no call
    const engine::Grammar::CallEdge* call = nullptr;
    engine::StateId to;
    uint32_t bytes_to_end;  // over this edge
  };

  void FindShortest();
  std::vector<Edge> EdgesOf(engine::StateId state) const;
  uint32_t At(engine::StateId state) const { return to_end_[static_cast<size_t>(state)]; }
  uint8_t RandomByte(uint8_t first, uint8_t last);

  const engine::Grammar& grammar_;
  std::mt19937 random_;
  std::vector<uint32_t> to_end_;  // [states]: bytes to the end of its rule, at least
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_TEXT_H_
