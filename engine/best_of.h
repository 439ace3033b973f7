#ifndef REFRAIN_ENGINE_BEST_OF_H_
#define REFRAIN_ENGINE_BEST_OF_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// Holds back the output of a request that samples more sequences than it returns, and names the
// best when all have ended: those with the highest mean log-probability per generated token (the
// model's own, before penalties and temperature; what no client is shown, such as an end token,
// counts as well). Equal means: the lower number. Engine thread only; cannot fail.
class BestOf {
 public:
  explicit BestOf(const Request& request);

  // A token of a sequence, shown or not.
  void Count(int32_t sequence, double logprob);
  // Where the sequence's events go.
  std::vector<TokenEvent>* output(int32_t sequence) {
    return &candidates_[static_cast<size_t>(sequence)].tokens;
  }
  // True when it was the last.
  bool End(int32_t sequence, ChoiceEnd end);

  // Then: the n best, renumbered as choices 0 to n - 1.
  void Output(std::vector<TokenEvent>* tokens, std::vector<ChoiceEnd>* ends);
  // Their sequences, best first; empty before.
  const std::vector<size_t>& best() const { return best_; }

 private:
  struct Candidate {
    double sum = 0;
    int32_t counted_tokens = 0;
    std::vector<TokenEvent> tokens;
    ChoiceEnd end;
    double mean() const { return counted_tokens == 0 ? 0 : sum / counted_tokens; }
  };

  const int32_t n_;
  const bool shows_logprobs_;
  std::vector<Candidate> candidates_;  // [sequences]
  size_t ended_ = 0;
  std::vector<size_t> best_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_BEST_OF_H_
