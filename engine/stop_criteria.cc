#include "engine/stop_criteria.h"

#include <algorithm>
#include <utility>

namespace refrain::engine {

StopStrings::StopStrings(std::span<const std::string> strings) : nodes_(1) {
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) continue;
    State at = kStart;
    for (const char byte : strings[i]) {
      State child = ChildOrNone(at, byte);
      if (child < 0) {
        child = static_cast<State>(nodes_.size());
        Node& parent = nodes_[static_cast<size_t>(at)];
        nodes_.push_back(
            {.next_sibling = parent.first_child, .depth = parent.depth + 1, .byte = byte});
        nodes_[static_cast<size_t>(at)].first_child = child;
      }
      at = child;
    }
    int32_t& match = nodes_[static_cast<size_t>(at)].match;
    if (match < 0) match = static_cast<int32_t>(i);
  }
  LinkFailures();
}

void StopStrings::LinkFailures() {
  std::vector<State> queue = {kStart};  // breadth first: a failure link leads to a lesser depth
  for (size_t i = 0; i < queue.size(); ++i) {
    const State at = queue[i];
    Node& node = nodes_[static_cast<size_t>(at)];
    const Node& fail = nodes_[static_cast<size_t>(node.fail)];
    if (at != kStart) {
      node.held_bytes = node.first_child >= 0 ? node.depth : fail.held_bytes;
      if (node.match < 0) node.match = fail.match;
    }
    for (State child = node.first_child; child >= 0;) {
      Node& below = nodes_[static_cast<size_t>(child)];
      below.fail = at == kStart ? kStart : Next(node.fail, below.byte);
      queue.push_back(child);
      child = below.next_sibling;
    }
  }
}

StopStrings::State StopStrings::ChildOrNone(State state, char byte) const {
  State child = nodes_[static_cast<size_t>(state)].first_child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

StopStrings::State StopStrings::Next(State state, char byte) const {
  for (;;) {
    const State child = ChildOrNone(state, byte);
    if (child >= 0) return child;
    if (state == kStart) return kStart;
    state = nodes_[static_cast<size_t>(state)].fail;
  }
}

std::optional<size_t> StopStrings::Match(State state) const {
  const int32_t match = nodes_[static_cast<size_t>(state)].match;
  if (match < 0) return std::nullopt;
  return static_cast<size_t>(match);
}

namespace {

// The tokens of both, each once, ascending.
SharedList<TokenId> SetOf(std::span<const TokenId> some, std::span<const TokenId> others) {
  std::vector<TokenId> set(some.begin(), some.end());
  set.insert(set.end(), others.begin(), others.end());
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return SharedList<TokenId>(std::move(set));
}

}  // namespace

StopRules::StopRules(const StopParams& params, int32_t max_tokens,
                     std::span<const TokenId> end_of_generation)
    : min_tokens(params.min_tokens),
      max_tokens(max_tokens),
      include_stop_in_output(params.include_stop_in_output),
      late_tokens(SetOf(params.stop_token_ids, end_of_generation)),
      strings(params.stop),
      automaton(std::make_shared<const StopStrings>(strings)) {
  end_tokens = params.ignore_eos ? SetOf(params.stop_token_ids, {}) : late_tokens;
}

bool StopCriteria::IsEndToken(TokenId token) const {
  return std::binary_search(rules_->end_tokens.begin(), rules_->end_tokens.end(), token);
}

std::optional<ChoiceEnd> StopCriteria::Accept(TokenEvent event, std::string_view bytes,
                                              std::vector<TokenEvent>* released) {
  ++accepted_tokens_;
  ChoiceEnd end{.choice = event.choice};
  if (accepted_tokens_ > rules_->min_tokens && IsEndToken(event.token)) {
    ReleaseAll(released);
    end.stop_token = event.token;
    end.stop_logprob = event.logprob;
    end.stop_top = std::move(event.top);
    return end;
  }
  const int64_t begin_byte = output_bytes_;
  output_bytes_ += static_cast<int64_t>(bytes.size());
  held_.push_back({std::move(event), begin_byte, output_bytes_});
  if (!rules_->automaton->empty()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      state_ = rules_->automaton->Next(state_, bytes[i]);
      const std::optional<size_t> match = rules_->automaton->Match(state_);
      if (!match.has_value() || accepted_tokens_ <= rules_->min_tokens) continue;
      const std::string& stop = rules_->strings[*match];
      const int64_t match_end = begin_byte + static_cast<int64_t>(i) + 1;
      ReleaseCut(rules_->include_stop_in_output ? match_end
                                                : match_end - static_cast<int64_t>(stop.size()),
                 released, &end.hidden_tokens);
      end.matched_stop = stop;
      return end;
    }
  }
  if (accepted_tokens_ >= rules_->max_tokens) {
    ReleaseAll(released);
    end.reason = FinishReason::kLength;
    return end;
  }
  ReleaseUpTo(output_bytes_ - rules_->automaton->HeldBytes(state_), released);
  return std::nullopt;
}

void StopCriteria::ReleaseUpTo(int64_t end_byte, std::vector<TokenEvent>* released) {
  while (!held_.empty() && held_.front().end_byte <= end_byte) {
    released->push_back(std::move(held_.front().event));
    held_.pop_front();
  }
}

void StopCriteria::ReleaseCut(int64_t end_byte, std::vector<TokenEvent>* released,
                              std::vector<TokenId>* hidden) {
  ReleaseUpTo(end_byte, released);
  if (!held_.empty() && held_.front().begin_byte < end_byte) {
    TokenEvent& cut = held_.front().event;
    cut.shown_bytes = static_cast<int32_t>(end_byte - held_.front().begin_byte);
    released->push_back(std::move(cut));
    held_.pop_front();
  }
  for (const Held& rest : held_) hidden->push_back(rest.event.token);
  held_.clear();
}

void StopCriteria::ReleaseAll(std::vector<TokenEvent>* released) {
  ReleaseUpTo(output_bytes_, released);
}

}  // namespace refrain::engine
