#ifndef REFRAIN_ENGINE_TEXT_REASONING_FORMAT_H_
#define REFRAIN_ENGINE_TEXT_REASONING_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace refrain::engine {

// How a model was taught to think in front of its answers.
enum class ReasoningFormat : uint8_t {
  kNone,   // its template says nothing of it
  kThink,  // <think>...</think> and then the answer: Qwen3, SmolLM3, DeepSeek-R1 and its
           // distillates
};

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";

// Where a prompt leaves the model; one template may do each of these, by its variables.
enum class ReasoningStart : uint8_t {
  kBefore,  // in front of its answer: it opens a thought itself, or does not think
  kInside,  // in a thought that the prompt has opened
  kBehind,  // in the answer: the prompt closed the thought, or has words of the answer; and
            // wherever nothing is known of thoughts
};

// From the text of the model's chat template. Pure, as what follows.
ReasoningFormat DetectReasoningFormat(std::string_view chat_template);

// Of a prompt that ends with what a template puts in front of an answer: by the tag that stands
// last in it, but for space. A tag that begins before `template_begin` is not the template's.
ReasoningStart ReasoningStartOf(std::string_view prompt, size_t template_begin);

// Of a prompt that ends with `answer`, which the model is to continue and which says something.
ReasoningStart ReasoningStartWithin(std::string_view answer);

// What of all that was generated is no thought.
std::string_view WithoutReasoning(std::string_view generated, ReasoningStart start);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_REASONING_FORMAT_H_
