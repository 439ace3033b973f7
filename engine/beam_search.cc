#include "engine/beam_search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace refrain::engine {

BeamSearch::BeamSearch(const BeamParams& params, int32_t width, int32_t max_tokens)
    : params_(params), width_(static_cast<size_t>(width)), max_tokens_(max_tokens) {
  assert(width >= 1 && max_tokens >= 1);
}

void BeamSearch::Advance(std::span<const std::vector<BeamCandidate>> candidates) {
  assert(!over_ && candidates.size() == running_.size());
  const std::vector<Ranked> ranked = Rank(candidates);
  ++length_;
  const bool last = length_ == max_tokens_;
  std::vector<Beam> next;
  std::vector<int32_t> next_nodes;
  ended_parents_.clear();
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    if (rank >= width_ && (last || next.size() == width_)) break;
    const Ranked& one = ranked[rank];
    if (one.candidate.ends || last) {
      if (rank < width_) Finish(one);
    } else if (next.size() < width_) {
      next_nodes.push_back(AddNode(one));
      next.push_back({one.parent, one.candidate.token, one.sum});
    }
  }
  running_ = std::move(next);
  running_nodes_ = std::move(next_nodes);
  over_ = MustEnd();
}

std::vector<BeamSearch::Ranked> BeamSearch::Rank(
    std::span<const std::vector<BeamCandidate>> candidates) const {
  std::vector<Ranked> ranked;
  for (size_t parent = 0; parent < candidates.size(); ++parent) {
    for (const BeamCandidate& candidate : candidates[parent]) {
      if (!std::isfinite(candidate.logprob)) continue;
      ranked.push_back(
          {static_cast<int32_t>(parent), candidate, running_[parent].sum + candidate.logprob});
    }
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    if (a.parent != b.parent) return a.parent < b.parent;
    return a.candidate.token < b.candidate.token;
  });
  return ranked;
}

int32_t BeamSearch::AddNode(const Ranked& ranked) {
  nodes_.push_back(
      {running_nodes_[static_cast<size_t>(ranked.parent)], {ranked.parent, ranked.candidate}});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

double BeamSearch::Score(double sum) const {
  return sum / std::pow(length_, params_.length_penalty);
}

void BeamSearch::Finish(const Ranked& ranked) {
  const double score = Score(ranked.sum);
  const auto place =
      std::upper_bound(finished_.begin(), finished_.end(), score,
                       [](double value, const End& other) { return value > other.score; });
  if (finished_.size() == width_ && place == finished_.end()) return;
  finished_.insert(place, {AddNode(ranked), ranked.sum, score});
  ended_parents_.push_back(ranked.parent);
  if (finished_.size() > width_) finished_.pop_back();
}

bool BeamSearch::MustEnd() const {
  if (running_.empty()) return true;
  if (finished_.size() < width_) return false;
  return params_.early_stopping || Score(running_.front().sum) <= finished_.back().score;
}

std::vector<BeamSearch::Hypothesis> BeamSearch::Finished() const {
  std::vector<Hypothesis> hypotheses;
  for (const End& end : finished_) {
    Hypothesis& one = hypotheses.emplace_back();
    one.sum = end.sum;
    one.score = end.score;
    for (int32_t node = end.node; node >= 0; node = nodes_[static_cast<size_t>(node)].previous) {
      one.steps.push_back(nodes_[static_cast<size_t>(node)].step);
    }
    std::reverse(one.steps.begin(), one.steps.end());
  }
  return hypotheses;
}

}  // namespace refrain::engine
