#ifndef REFRAIN_ENGINE_BEAM_SEARCH_H_
#define REFRAIN_ENGINE_BEAM_SEARCH_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace refrain::engine {

// One possible next token of a beam.
struct BeamCandidate {
  TokenId token{};
  double logprob = 0;  // natural log; not a finite number = impossible
  bool ends = false;   // an end token: the sequence is finished with it
  int32_t rank = 0;    // 1 = the most probable of its beam; only passed on
};

// Beam search over the continuations of one prompt, as pure bookkeeping: it is given candidates and
// says which sequences go on. No model, no cache, no clock.
//
//   running:  at most `width` unfinished sequences of one length, best sum first. At the start one:
//             the prompt.
//   finished: at most `width` hypotheses, best score first. score = sum / length^length_penalty,
//             the end token counted in both.
//
// A step ranks the candidates of all running beams by their summed log-probability. Those among the
// first `width` that end are finished, later ones that end are dropped; the best `width` that do
// not end run on. At `max_tokens` the first `width` candidates are all finished. Equal sums: the
// better parent, then the lower token id; equal scores: who finished first.
//
// It is over at max_tokens, when nothing runs, or when `width` hypotheses are finished and either
// `early_stopping` is set or the best running sum, at its present length, scores no better than the
// worst of them. (With a length penalty above 0 a longer one might yet have won: this is the usual
// heuristic, and it ends searches early that would change little.)
//
// Whoever drives it owns one cache sequence per running beam: after Advance, beam i goes on from
// the sequence that was beam `running()[i].parent` before. One thread; cannot fail.
class BeamSearch {
 public:
  struct Beam {
    int32_t parent = -1;  // index in running() before the last step; -1 of the prompt
    TokenId token{};      // its last; of no meaning for the prompt
    double sum = 0;
  };

  struct Step {
    int32_t parent;  // the beam, at that step, that `chosen` was a candidate of
    BeamCandidate chosen;
  };
  struct Hypothesis {
    std::vector<Step> steps;  // [length]; the last one may be an end token
    double sum = 0;
    double score = 0;
  };

  // `width` and `max_tokens` are at least 1.
  BeamSearch(const BeamParams& params, int32_t width, int32_t max_tokens);

  // So many of a beam's best candidates are as good as all of them: `width` remain when every one
  // of `end_tokens` is among them.
  static int32_t CandidatesPerBeam(int32_t width, int32_t end_tokens) {
    return width + std::max(width, end_tokens);
  }

  const std::vector<Beam>& running() const { return running_; }
  bool over() const { return over_; }
  int32_t length() const { return length_; }  // of the running beams
  // Of which beams, as they were before the last step, a hypothesis was finished in it.
  const std::vector<int32_t>& ended_parents() const { return ended_parents_; }

  // The next token: candidates of each running beam, in any order. Not when over.
  void Advance(std::span<const std::vector<BeamCandidate>> candidates);

  // The best so far, best first; `width` of them once it is over, fewer only when there were not as
  // many possible continuations.
  std::vector<Hypothesis> Finished() const;

 private:
  // A token of some beam, with the way back to the prompt.
  struct Node {
    int32_t previous;  // in nodes_; -1: it follows the prompt
    Step step;
  };
  struct End {
    int32_t node;  // in nodes_
    double sum;
    double score;
  };
  struct Ranked {
    int32_t parent;
    BeamCandidate candidate;
    double sum;
  };

  std::vector<Ranked> Rank(std::span<const std::vector<BeamCandidate>> candidates) const;
  int32_t AddNode(const Ranked& ranked);
  double Score(double sum) const;
  void Finish(const Ranked& ranked);
  bool MustEnd() const;

  const BeamParams params_;
  const size_t width_;
  const int32_t max_tokens_;
  std::vector<Node> nodes_;
  std::vector<Beam> running_{Beam{}};
  std::vector<int32_t> running_nodes_{-1};  // [running_.size()]
  std::vector<End> finished_;
  std::vector<int32_t> ended_parents_;
  int32_t length_ = 0;
  bool over_ = false;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BEAM_SEARCH_H_
