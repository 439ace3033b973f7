#include "tests/engine/grammar/random_text.h"

#include <algorithm>

namespace refrain::testing {
namespace {

using engine::Grammar;
using engine::StateId;

constexpr uint32_t kFar = UINT32_MAX / 4;

}  // namespace

RandomTexts::RandomTexts(const Grammar* grammar, uint32_t seed)
    : grammar_(*grammar), random_(seed), to_end_(grammar->num_states(), kFar) {
  FindShortest();
}

// Until no state's way becomes shorter.
void RandomTexts::FindShortest() {
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = to_end_.size(); i-- > 0;) {
      const auto state = static_cast<StateId>(i);
      uint32_t shortest = grammar_.accepts(state) ? 0 : kFar;
      for (const Edge& edge : EdgesOf(state)) shortest = std::min(shortest, edge.bytes_to_end);
      changes = changes || shortest < to_end_[i];
      to_end_[i] = std::min(to_end_[i], shortest);
    }
  }
}

std::vector<RandomTexts::Edge> RandomTexts::EdgesOf(StateId state) const {
  std::vector<Edge> edges;
  for (const Grammar::ByteEdge& edge : grammar_.bytes(state)) {
    edges.push_back({edge.first, edge.last, nullptr, edge.to, 1 + At(edge.to)});
  }
  for (const Grammar::CallEdge& call : grammar_.calls(state)) {
    const uint32_t inside = At(grammar_.start(call.rule));
    edges.push_back({0, 0, &call, call.to, std::min(kFar, inside + At(call.to))});
  }
  return edges;
}

uint8_t RandomTexts::RandomByte(uint8_t first, uint8_t last) {
  return static_cast<uint8_t>(std::uniform_int_distribution<int>(first, last)(random_));
}

std::string RandomTexts::Next(size_t usual_bytes) {
  std::string text;
  std::vector<StateId> stack = {grammar_.start(grammar_.root())};
  // Calls without a byte between lead somewhere: no rule calls itself before one was read.
  while (!stack.empty()) {
    const StateId state = stack.back();
    std::vector<Edge> edges = EdgesOf(state);
    const bool is_long = text.size() >= usual_bytes;
    const bool ends = grammar_.accepts(state) && (edges.empty() || is_long || random_() % 3 == 0);
    if (ends) {
      stack.pop_back();
      continue;
    }
    if (is_long) {
      std::erase_if(edges, [&](const Edge& edge) { return edge.bytes_to_end != At(state); });
    }
    const Edge& edge = edges[random_() % edges.size()];
    stack.back() = edge.to;
    if (edge.call != nullptr) {
      stack.push_back(grammar_.start(edge.call->rule));
    } else {
      text += static_cast<char>(RandomByte(edge.first, edge.last));
    }
  }
  return text;
}

}  // namespace refrain::testing
