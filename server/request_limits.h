#ifndef REFRAIN_SERVER_REQUEST_LIMITS_H_
#define REFRAIN_SERVER_REQUEST_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "engine/text/message_form.h"
#include "engine/text/reasoning_format.h"
#include "engine/text/tool_format.h"
#include "engine/text/utf8.h"
#include "server/concat.h"

namespace refrain::server {

// What the fields of a request may be, over HTTP and gRPC alike. Tighter than what the engine
// itself refuses (engine/request_checks.h).

struct Range {
  double min;
  double max;
  bool below_max = false;  // max itself is out

  bool Contains(double value) const {
    return value >= min && (below_max ? value < max : value <= max);
  }
  std::string Text() const {
    return Concat("at least ", min, below_max ? " and below " : " and at most ", max);
  }
};

// Limits, and defaults, that depend on the model and the configuration.
struct ModelLimits {
  std::string served_name;
  int32_t vocab_size = 0;
  int32_t max_context_tokens = 0;
  int32_t max_choices = 128;                             // `n` and `best_of`
  int32_t max_beams = 64;                                // engine.max_sequences
  engine::ToolFormat tools = engine::ToolFormat::kNone;  // of the model's chat template
  engine::MessageForms message_forms;                    // the same one's
  engine::ReasoningFormat reasoning = engine::ReasoningFormat::kNone;  // the same one's
  size_t max_prompts = SIZE_MAX;  // of one call: limits.queued_requests, or some would never enter
  size_t max_conversation_bytes = SIZE_MAX;  // of memory: limits.bodies_bytes, which bounds all
  engine::SamplingParams sampling;  // where a request says nothing of it; not for beam search
};

inline constexpr Range kInt64Range{-0x1p63, 0x1p63, true};
inline constexpr Range kTemperatureRange{0, 2};
inline constexpr Range kTopPRange{0, 1};
// top_p 0 asks for the best token alone; the engine's range is open at 0.
inline constexpr double kLeastTopP = 1e-9;
inline constexpr Range kMinPRange{0, 1};
// min_p 1 asks for what is as good as the best token; the engine's range is open at 1.
inline constexpr double kMostMinP = 1 - 1e-9;
inline constexpr Range kTopKRange{-1, INT32_MAX};  // -1 and 0 = all
// A log-probability that is divided by far less is no number any more.
inline constexpr Range kRepetitionPenaltyRange{0.01, 100};
inline constexpr Range kPenaltyRange{-2, 2};  // presence and frequency
inline constexpr Range kLogitBiasRange{-100, 100};
inline constexpr Range kThinkingBudgetRange{-1, INT32_MAX};  // tokens; -1 = as many as there are
inline constexpr Range kTopLogprobsRange{0, 20};
inline constexpr size_t kMaxLogitBiases = 4096;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopCharacters = 1024;
inline constexpr size_t kMaxStopTokenIds = 1024;
inline constexpr size_t kMaxFormChoices = 1024;  // texts of which an answer is one
inline constexpr size_t kMaxBadWords = 256;
inline constexpr size_t kMaxBadWordCharacters = 256;
// Spaces before a bad word do not matter, so there must be more to it.
inline bool IsBadWord(std::string_view text) {
  return engine::CountUtf8Characters(text) <= kMaxBadWordCharacters &&
         text.find_first_not_of(' ') != text.npos;
}
inline constexpr size_t kMaxCacheKeyCharacters = 1024;
inline constexpr double kMaxPromptLogprobs = 20;
inline constexpr size_t kMaxDetokenizedIds = 1 << 20;
inline constexpr int32_t kDefaultCompletionTokens = 16;
inline constexpr Range kTimeoutRange{0.001, 1e6};  // seconds

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_REQUEST_LIMITS_H_
