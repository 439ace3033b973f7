#ifndef REFRAIN_ENGINE_BEAM_GROUP_H_
#define REFRAIN_ENGINE_BEAM_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/beam_search.h"
#include "engine/request.h"
#include "engine/step_batch.h"
#include "engine/stop_criteria.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// A request's beam search between the steps of the engine: gathers the log-probabilities behind
// each beam's last token, which need not come from one step, and goes on when all are there.
//
//   Deliver(0, ..) false, Deliver(2, ..) false, Deliver(1, ..) true -> Advance -> Deliver ... over
//
// That barrier is all that ties beams together: each is an ordinary sequence that is scheduled,
// preempted and resumed for itself, and one that has delivered has nothing to do until the others
// have, so it may give up its chunks meanwhile.
//
// Knows indices of beams, not sequences. Engine thread only; cannot fail.
class BeamGroup {
 public:
  BeamGroup(const Request& request, std::shared_ptr<const StopRules> rules);

  int32_t size() const { return static_cast<int32_t>(search_.running().size()); }
  // That each row is to come with.
  int32_t top_logprobs() const { return top_logprobs_; }
  bool delivered(int32_t beam) const { return rows_[static_cast<size_t>(beam)].has_value(); }
  bool over() const { return search_.over(); }
  int32_t length() const { return search_.length(); }
  const std::vector<int32_t>& ended_parents() const { return search_.ended_parents(); }

  // The log-probabilities that follow the beam's last token; once per beam and step. True when
  // those of all beams are there.
  bool Deliver(int32_t beam, SampledToken row);
  // Then: the next beams, each to go on from one of the former. Empty when over.
  const std::vector<BeamSearch::Beam>& Advance();

  // The `n` best sequences, or as many as there are, best first.
  std::vector<BeamSearch::Hypothesis> Best(int32_t n) const;
  // The same as the choices of the request; an end for each, also where there are fewer.
  // Returns how many tokens they have.
  int32_t Output(int32_t n, std::vector<TokenEvent>* tokens, std::vector<ChoiceEnd>* ends) const;

 private:
  using Row = std::vector<TokenLogprob>;  // best first

  std::vector<BeamCandidate> Candidates(const Row& row) const;

  std::shared_ptr<const StopRules> rules_;
  const std::optional<int32_t> shown_logprobs_;
  BeamSearch search_;
  const int32_t top_logprobs_;
  std::vector<std::optional<Row>> rows_;  // [size()]
  int32_t delivered_ = 0;
  std::vector<std::vector<Row>> shown_rows_;  // [step][beam], the best few; only where asked for
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BEAM_GROUP_H_
