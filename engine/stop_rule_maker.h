#ifndef REFRAIN_ENGINE_STOP_RULE_MAKER_H_
#define REFRAIN_ENGINE_STOP_RULE_MAKER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/recent_results.h"
#include "engine/shared_list.h"
#include "engine/stop_criteria.h"

namespace refrain::engine {

// Makes the rules by which the choices of a request end. Every prompt of a call has the same stop
// tokens: the sets that are made of them are made once and shared. Any thread. Cannot fail.
class StopRuleMaker {
 public:
  explicit StopRuleMaker(std::vector<TokenId> end_of_generation)
      : end_of_generation_(std::move(end_of_generation)) {}

  // `max_tokens` in place of the parameters' own.
  std::shared_ptr<const StopRules> Make(const StopParams& params, int32_t max_tokens) const;

 private:
  struct Key {
    SharedList<std::string> strings;  // the rules have them, too
    SharedList<TokenId> token_ids;
    bool ignore_eos;
    friend bool operator==(const Key& a, const Key& b) {
      return a.strings.IsCopyOf(b.strings) && a.token_ids.IsCopyOf(b.token_ids) &&
             a.ignore_eos == b.ignore_eos;
    }
  };

  std::vector<TokenId> end_of_generation_;
  mutable RecentResults<Key, StopRules> kept_;  // their numbers are another prompt's
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STOP_RULE_MAKER_H_
