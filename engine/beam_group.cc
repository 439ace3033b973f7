#include "engine/beam_group.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

namespace refrain::engine {

BeamGroup::BeamGroup(const Request& request, std::shared_ptr<const StopRules> rules)
    : rules_(std::move(rules)),
      shown_logprobs_(request.logprobs.top),
      search_(*request.beam, request.sequences(), std::max(1, rules_->max_tokens)),
      top_logprobs_(
          std::max(BeamSearch::CandidatesPerBeam(request.sequences(),
                                                 static_cast<int32_t>(rules_->late_tokens.size())),
                   shown_logprobs_.value_or(0))),
      rows_(1) {}

bool BeamGroup::Deliver(int32_t beam, SampledToken row) {
  std::optional<Row>& place = rows_[static_cast<size_t>(beam)];
  assert(!place.has_value());
  place = std::move(row.top);
  return ++delivered_ == size();
}

const std::vector<BeamSearch::Beam>& BeamGroup::Advance() {
  assert(delivered_ == size());
  std::vector<std::vector<BeamCandidate>> candidates;
  for (const std::optional<Row>& row : rows_) candidates.push_back(Candidates(*row));
  if (shown_logprobs_.has_value()) {
    std::vector<Row>& shown = shown_rows_.emplace_back();
    for (const std::optional<Row>& row : rows_) {
      const auto count = std::min(row->size(), static_cast<size_t>(*shown_logprobs_));
      shown.emplace_back(row->begin(), row->begin() + static_cast<ptrdiff_t>(count));
    }
  }
  search_.Advance(candidates);
  rows_.assign(search_.running().size(), std::nullopt);
  delivered_ = 0;
  return search_.running();
}

std::vector<BeamCandidate> BeamGroup::Candidates(const Row& row) const {
  const auto is_of = [](std::span<const TokenId> tokens, const TokenLogprob& entry) {
    return std::binary_search(tokens.begin(), tokens.end(), entry.token);
  };
  const auto is_late = [&](const TokenLogprob& entry) { return is_of(rules_->late_tokens, entry); };
  const bool late_comes = search_.length() >= rules_->min_tokens;
  // Nothing else is left: a token must come, which then ends nothing, as in sampling.
  const bool all_late = std::ranges::all_of(row, is_late);
  std::vector<BeamCandidate> candidates;
  for (const TokenLogprob& entry : row) {
    if (!late_comes && !all_late && is_late(entry)) continue;
    const bool ends = late_comes && is_of(rules_->end_tokens, entry);
    candidates.push_back(
        {.token = entry.token, .logprob = entry.logprob, .ends = ends, .rank = entry.rank});
  }
  return candidates;
}

std::vector<BeamSearch::Hypothesis> BeamGroup::Best(int32_t n) const {
  std::vector<BeamSearch::Hypothesis> best = search_.Finished();
  if (best.size() > static_cast<size_t>(n)) best.resize(static_cast<size_t>(n));
  return best;
}

int32_t BeamGroup::Output(int32_t n, std::vector<TokenEvent>* tokens,
                          std::vector<ChoiceEnd>* ends) const {
  const std::vector<BeamSearch::Hypothesis> found = Best(n);
  int32_t generated = 0;
  for (int32_t choice = 0; choice < n; ++choice) {
    ChoiceEnd& end = ends->emplace_back();
    end.choice = choice;
    end.reason = FinishReason::kLength;
    if (static_cast<size_t>(choice) >= found.size()) continue;
    const std::vector<BeamSearch::Step>& steps = found[static_cast<size_t>(choice)].steps;
    generated += static_cast<int32_t>(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& [parent, chosen] = steps[i];
      std::optional<TokenLogprob> logprob;
      std::vector<TokenLogprob> top;
      if (shown_logprobs_.has_value()) {
        logprob = {chosen.token, static_cast<float>(chosen.logprob), chosen.rank};
        top = shown_rows_[i][static_cast<size_t>(parent)];
      }
      if (chosen.ends) {  // the last one
        end.reason = FinishReason::kStop;
        end.stop_token = chosen.token;
        end.stop_logprob = logprob;
        end.stop_top = std::move(top);
        break;
      }
      TokenEvent& event = tokens->emplace_back();
      event.choice = choice;
      event.token = chosen.token;
      event.logprob = logprob;
      event.top = std::move(top);
    }
  }
  return generated;
}

}  // namespace refrain::engine
