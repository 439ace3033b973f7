#include "engine/grammar/state_digests.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/sip_hash.h"
#include "engine/text/seeded_hash.h"

namespace refrain::engine {
namespace {

using Digest = Grammar::Digest;

template <typename Id>
size_t Index(Id id) {
  return static_cast<size_t>(id);
}

// What is hashed: fields of fixed size, and lists behind their sizes, so that no two things are
// written alike.
class Writing {
 public:
  template <typename Value>
  void Add(const Value& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // And begins anew.
  Digest TakeHash() {
    static const SipKey kSecrets[2] = {{RandomSeed(), RandomSeed()}, {RandomSeed(), RandomSeed()}};
    const Digest hash = {SipHash(kSecrets[0], text_), SipHash(kSecrets[1], text_)};
    text_.clear();
    return hash;
  }

 private:
  std::string text_;
};

// The states that a state depends on: those behind its edges, and the starts of what it calls.
class Dependencies {
 public:
  explicit Dependencies(const Grammar& grammar) : grammar_(grammar) {}

  size_t size(StateId state) const {
    return grammar_.bytes(state).size() + 2 * grammar_.calls(state).size();
  }
  StateId at(StateId state, size_t i) const {
    const auto bytes = grammar_.bytes(state);
    if (i < bytes.size()) return bytes[i].to;
    const Grammar::CallEdge& call = grammar_.calls(state)[(i - bytes.size()) / 2];
    return (i - bytes.size()) % 2 == 0 ? call.to : grammar_.start(call.rule);
  }

 private:
  const Grammar& grammar_;
};

// The strongly connected components of the dependencies, each behind those that it depends on
// (Tarjan 1972). Without recursion: a client chooses the depth.
class ComponentSearch {
 public:
  ComponentSearch(const Grammar& grammar, std::vector<std::vector<StateId>>* components)
      : dependencies_(grammar), marks_(grammar.num_states()), components_(*components) {
    for (size_t state = 0; state < marks_.size(); ++state) {
      if (marks_[state].order == 0) SearchFrom(static_cast<StateId>(state));
    }
  }

 private:
  struct Mark {
    uint32_t order = 0;    // in which the search met the state, from 1
    uint32_t low = 0;      // the earliest that it leads back to
    bool is_open = false;  // in no component yet
  };
  struct Visit {
    StateId state;
    size_t next = 0;  // dependency to look at
  };

  void Open(StateId state) {
    ++num_met_;
    marks_[Index(state)] = {num_met_, num_met_, true};
    open_.push_back(state);
    visits_.push_back({state});
  }

  void SearchFrom(StateId from) {
    Open(from);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const StateId state = visit.state;
      Mark& mark = marks_[Index(state)];
      if (visit.next < dependencies_.size(state)) {
        const StateId other = dependencies_.at(state, visit.next++);
        const Mark& seen = marks_[Index(other)];
        if (seen.order == 0) {
          Open(other);
        } else if (seen.is_open) {
          mark.low = std::min(mark.low, seen.order);
        }
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) {
        Mark& before = marks_[Index(visits_.back().state)];
        before.low = std::min(before.low, mark.low);
      }
      if (mark.low == mark.order) Close(state);
    }
  }

  // All that was opened since this state was are one component with it.
  void Close(StateId first) {
    std::vector<StateId>& component = components_.emplace_back();
    do {
      component.push_back(open_.back());
      marks_[Index(open_.back())].is_open = false;
      open_.pop_back();
    } while (component.back() != first);
  }

  const Dependencies dependencies_;
  std::vector<Mark> marks_;  // [num_states]
  std::vector<StateId> open_;
  std::vector<Visit> visits_;
  uint32_t num_met_ = 0;
  std::vector<std::vector<StateId>>& components_;
};

class DigestMaker {
 public:
  explicit DigestMaker(const Grammar& grammar)
      : grammar_(grammar), digests_(grammar.num_states()), places_(grammar.num_states()) {}

  std::vector<Digest> Make() && {
    std::vector<std::vector<StateId>> components;
    const ComponentSearch search(grammar_, &components);
    const Dependencies dependencies(grammar_);
    for (const std::vector<StateId>& component : components) {
      ++component_;
      for (const StateId state : component) places_[Index(state)].component = component_;
      bool is_loop = component.size() > 1;
      for (size_t i = 0; !is_loop && i < dependencies.size(component[0]); ++i) {
        is_loop = dependencies.at(component[0], i) == component[0];
      }
      if (is_loop) {
        DigestLoop(component);
      } else {
        Write(component[0]);
        digests_[Index(component[0])] = writing_.TakeHash();
      }
    }
    return std::move(digests_);
  }

 private:
  // What chooses where a component is numbered from lies at most so many edges away.
  static constexpr int kColourRounds = 8;

  struct Place {
    uint32_t component = 0;
    uint32_t number = 0;  // in the component, from 1; 0 as long as it has none
  };

  void DigestLoop(const std::vector<StateId>& component) {
    Colour(component);
    Number(*std::min_element(component.begin(), component.end(), [this](StateId a, StateId b) {
      return digests_[Index(a)] < digests_[Index(b)];
    }));
    writing_.Add(numbered_.size());
    for (const StateId state : numbered_) Write(state);
    const Digest graph = writing_.TakeHash();
    for (const StateId state : numbered_) {
      writing_.Add(graph);
      writing_.Add(places_[Index(state)].number);
      digests_[Index(state)] = writing_.TakeHash();
    }
  }

  // Until it is done, the digests of a component's states are hashes of what surrounds them.
  void Colour(const std::vector<StateId>& component) {
    std::vector<Digest> next(component.size());
    for (int round = 0; round < kColourRounds; ++round) {
      for (size_t i = 0; i < component.size(); ++i) {
        Write(component[i]);
        next[i] = writing_.TakeHash();
      }
      for (size_t i = 0; i < component.size(); ++i) digests_[Index(component[i])] = next[i];
    }
  }

  // In the order in which a breadth-first search from there meets them.
  void Number(StateId first) {
    numbered_.clear();
    const auto meet = [this](StateId state) {
      Place& place = places_[Index(state)];
      if (place.component != component_ || place.number != 0) return;
      numbered_.push_back(state);
      place.number = static_cast<uint32_t>(numbered_.size());
    };
    meet(first);
    for (size_t i = 0; i < numbered_.size(); ++i) {
      const StateId state = numbered_[i];
      for (const Grammar::ByteEdge& edge : grammar_.bytes(state)) meet(edge.to);
      for (const auto& [start, to] : SortedCalls(state)) {
        meet(start);
        meet(to);
      }
    }
  }

  // Where a state's calls start and where they lead, in an order that does not depend on how the
  // grammar numbers its rules (as far as colours tell them apart).
  const std::vector<std::pair<StateId, StateId>>& SortedCalls(StateId state) {
    calls_.clear();
    for (const Grammar::CallEdge& call : grammar_.calls(state)) {
      calls_.emplace_back(grammar_.start(call.rule), call.to);
    }
    std::stable_sort(calls_.begin(), calls_.end(), [this](const auto& a, const auto& b) {
      const Digest& a_start = digests_[Index(a.first)];
      const Digest& b_start = digests_[Index(b.first)];
      return a_start != b_start ? a_start < b_start
                                : digests_[Index(a.second)] < digests_[Index(b.second)];
    });
    return calls_;
  }

  void Write(StateId state) {
    writing_.Add(grammar_.accepts(state));
    writing_.Add(grammar_.bytes(state).size());
    for (const Grammar::ByteEdge& edge : grammar_.bytes(state)) {
      writing_.Add(edge.first);
      writing_.Add(edge.last);
      WriteReference(edge.to);
    }
    writing_.Add(grammar_.calls(state).size());
    for (const auto& [start, to] : SortedCalls(state)) {
      WriteReference(start);
      WriteReference(to);
    }
  }

  void WriteReference(StateId state) {
    const Place& place = places_[Index(state)];
    const uint32_t number = place.component == component_ ? place.number : 0;
    writing_.Add(number);
    if (number == 0) writing_.Add(digests_[Index(state)]);
  }

  const Grammar& grammar_;
  std::vector<Digest> digests_;  // [num_states]
  std::vector<Place> places_;    // [num_states]
  uint32_t component_ = 0;       // number of the one that is looked at, from 1
  std::vector<StateId> numbered_;
  std::vector<std::pair<StateId, StateId>> calls_;
  Writing writing_;
};

}  // namespace

std::vector<Digest> MakeStateDigests(const Grammar& grammar) { return DigestMaker(grammar).Make(); }

}  // namespace refrain::engine
