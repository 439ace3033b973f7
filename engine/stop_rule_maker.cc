#include "engine/stop_rule_maker.h"

#include <optional>

namespace refrain::engine {

std::shared_ptr<const StopRules> StopRuleMaker::Make(const StopParams& params,
                                                     int32_t max_tokens) const {
  Key key{
      .strings = params.stop, .token_ids = params.stop_token_ids, .ignore_eos = params.ignore_eos};
  std::optional<StopRules> rules = kept_.FindOrNone(key);
  if (!rules.has_value()) {
    rules.emplace(params, max_tokens, end_of_generation_);
    kept_.Keep(std::move(key), *rules);
  }
  rules->min_tokens = params.min_tokens;
  rules->max_tokens = max_tokens;
  rules->include_stop_in_output = params.include_stop_in_output;
  return std::make_shared<const StopRules>(*std::move(rules));
}

}  // namespace refrain::engine
