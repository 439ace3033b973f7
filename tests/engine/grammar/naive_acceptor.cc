#include "tests/engine/grammar/naive_acceptor.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace refrain::testing {

using engine::Grammar;
using engine::StateId;

NaiveAcceptor::NaiveAcceptor(const Grammar* grammar)
    : NaiveAcceptor(grammar, grammar->start(grammar->root())) {}

NaiveAcceptor::NaiveAcceptor(const Grammar* grammar, StateId from) : grammar_(grammar) {
  Insert({from}, &places_);
}

void NaiveAcceptor::Insert(Place place, Places* places) const {
  std::vector<Place> found = {std::move(place)};
  while (!found.empty()) {
    const Place next = std::move(found.back());
    found.pop_back();
    if (!places->insert(next).second) continue;
    for (const Grammar::CallEdge& call : grammar_->calls(next.back())) {
      Place inside = next;
      inside.back() = call.to;
      inside.push_back(grammar_->start(call.rule));
      found.push_back(std::move(inside));
    }
    if (grammar_->accepts(next.back()) && next.size() > 1) {
      found.emplace_back(next.begin(), next.end() - 1);
    }
  }
}

bool NaiveAcceptor::Accept(std::string_view bytes) {
  Places places = places_;
  for (const char c : bytes) {
    Places behind;
    for (const Place& place : places) {
      for (const Grammar::ByteEdge& edge : grammar_->bytes(place.back())) {
        if (static_cast<uint8_t>(c) < edge.first || static_cast<uint8_t>(c) > edge.last) continue;
        Place moved = place;
        moved.back() = edge.to;
        Insert(std::move(moved), &behind);
      }
    }
    if (behind.empty()) return false;
    places = std::move(behind);
  }
  places_ = std::move(places);
  return true;
}

bool NaiveAcceptor::CanEnd() const {
  return std::any_of(places_.begin(), places_.end(), [this](const Place& place) {
    return place.size() == 1 && grammar_->accepts(place.back());
  });
}

std::vector<StateId> NaiveAcceptor::StatesOutsideOfCalls() const {
  std::vector<StateId> states;
  for (const Place& place : places_) {
    if (place.size() == 1) states.push_back(place.back());
  }
  return states;
}

bool Accepts(const Grammar& grammar, std::string_view text) {
  NaiveAcceptor acceptor(&grammar);
  return acceptor.Accept(text) && acceptor.CanEnd();
}

std::optional<int> FindDifference(const Grammar& grammar, StateId a, StateId b,
                                  std::string_view alphabet, int most_bytes) {
  using Pair = std::pair<NaiveAcceptor, NaiveAcceptor>;
  std::set<Pair> met = {{NaiveAcceptor(&grammar, a), NaiveAcceptor(&grammar, b)}};
  std::vector<Pair> reached(met.begin(), met.end());
  for (int size_bytes = 0;; ++size_bytes) {
    for (const auto& [from_a, from_b] : reached) {
      if (from_a.CanEnd() != from_b.CanEnd()) return size_bytes;
    }
    if (size_bytes == most_bytes || reached.empty()) return std::nullopt;
    std::vector<Pair> next;
    for (const Pair& pair : reached) {
      for (const char& byte : alphabet) {
        Pair moved = pair;
        const bool a_takes = moved.first.Accept({&byte, 1});
        if (a_takes != moved.second.Accept({&byte, 1})) return size_bytes + 1;
        if (a_takes && met.insert(moved).second) next.push_back(std::move(moved));
      }
    }
    reached = std::move(next);
  }
}

}  // namespace refrain::testing
