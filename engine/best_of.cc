#include "engine/best_of.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace refrain::engine {

BestOf::BestOf(const Request& request)
    : n_(request.n),
      shows_logprobs_(request.logprobs.top.has_value()),
      candidates_(static_cast<size_t>(request.sequences())) {}

void BestOf::Count(int32_t sequence, double logprob) {
  Candidate& candidate = candidates_[static_cast<size_t>(sequence)];
  candidate.sum += logprob;
  ++candidate.counted_tokens;
}

bool BestOf::End(int32_t sequence, ChoiceEnd end) {
  candidates_[static_cast<size_t>(sequence)].end = std::move(end);
  return ++ended_ == candidates_.size();
}

void BestOf::Output(std::vector<TokenEvent>* tokens, std::vector<ChoiceEnd>* ends) {
  std::vector<size_t> order(candidates_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return candidates_[a].mean() > candidates_[b].mean();
  });
  order.resize(static_cast<size_t>(n_));
  best_ = std::move(order);
  for (int32_t choice = 0; choice < n_; ++choice) {
    Candidate& best = candidates_[best_[static_cast<size_t>(choice)]];
    for (TokenEvent& event : best.tokens) {
      event.choice = choice;
      if (!shows_logprobs_) event.logprob.reset();
      tokens->push_back(std::move(event));
    }
    best.end.choice = choice;
    ends->push_back(std::move(best.end));
  }
}

}  // namespace refrain::engine
