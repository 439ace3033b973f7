#ifndef REFRAIN_TESTS_SUPPORT_TOKEN_PROMPT_H_
#define REFRAIN_TESTS_SUPPORT_TOKEN_PROMPT_H_

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace refrain::testing {

inline engine::TokenPrompt PromptOf(const std::vector<int32_t>& ids) {
  engine::TokenPrompt prompt;
  prompt.ids.reserve(ids.size());
  for (const int32_t id : ids) prompt.ids.push_back(engine::TokenId{id});
  return prompt;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_TOKEN_PROMPT_H_
