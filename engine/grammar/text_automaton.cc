#include "engine/grammar/text_automaton.h"

#include <algorithm>
#include <set>
#include <utility>

namespace refrain::engine {
TextAutomaton::TextAutomaton(Grammar grammar) : grammar_(std::move(grammar)) {
  Intern({{grammar_.start(grammar_.root())}});
}

std::optional<TextAutomaton::State> TextAutomaton::Next(State state, uint8_t byte) {
  int32_t next = states_[state].next[byte];
  if (next == kUnknown) {
    next = Walk(*states_[state].places, byte);
    states_[state].next[byte] = next;
  }
  if (next == kNowhere) return std::nullopt;
  return static_cast<State>(next);
}

const std::array<int32_t, 256>& TextAutomaton::Row(State state) {
  const Places& places = *states_[state].places;
  std::array<bool, 257> is_border{};  // bytes from one to the next lead to the same
  for (const Place& place : places) {
    for (const Grammar::ByteEdge& edge : grammar_.bytes(place.back())) {
      is_border[edge.first] = is_border[edge.last + size_t{1}] = true;
    }
  }
  int32_t next = kNowhere;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (is_border[byte]) {
      Next(state, static_cast<uint8_t>(byte));
      next = states_[state].next[byte];
    }
    states_[state].next[byte] = next;
  }
  return states_[state].next;
}

int32_t TextAutomaton::Walk(const Places& places, uint8_t byte) {
  Places next;
  for (const Place& place : places) {
    for (const Grammar::ByteEdge& edge : grammar_.bytes(place.back())) {
      if (byte < edge.first || byte > edge.last) continue;
      next.push_back(place);
      next.back().back() = edge.to;
    }
  }
  return next.empty() ? kNowhere : Intern(std::move(next));
}

int32_t TextAutomaton::Intern(Places places) {
  if (is_overrun_) return kNowhere;
  std::set<Place> closed;
  bool accepts = false;
  while (!places.empty()) {
    const auto [inserted, is_new] = closed.insert(std::move(places.back()));
    places.pop_back();
    if (!is_new) continue;
    const Place& place = *inserted;
    if (place.size() >= work_left_) {
      is_overrun_ = true;
      return kNowhere;
    }
    work_left_ -= place.size();
    for (const Grammar::CallEdge& call : grammar_.calls(place.back())) {
      places.push_back(place);
      places.back().back() = call.to;
      places.back().push_back(grammar_.start(call.rule));
    }
    if (!grammar_.accepts(place.back())) continue;
    if (place.size() == 1) {
      accepts = true;
    } else {
      places.emplace_back(place.begin(), place.end() - 1);
    }
  }
  const auto [found, is_new] = state_of_.try_emplace(Places(closed.begin(), closed.end()),
                                                     static_cast<State>(states_.size()));
  if (is_new && states_.size() == kMostStates) {
    state_of_.erase(found);
    is_overrun_ = true;
    return kNowhere;
  }
  if (is_new) {
    Node& node = states_.emplace_back(Node{.places = &found->first, .accepts = accepts});
    node.next.fill(kUnknown);
  }
  return static_cast<int32_t>(found->second);
}

}  // namespace refrain::engine
