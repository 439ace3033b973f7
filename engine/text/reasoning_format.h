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
struct ReasoningStart {
  enum Place : uint8_t {
    kBefore,     // in front of its answer: it opens a thought itself, or does not think
    kBesideTag,  // in a thought that the prompt has opened, on the line of the tag
    kInside,     // the same behind a line end
    kAmid,       // the same behind words of the thought
    kBehind,     // in the answer: the prompt closed the thought, or has words of the answer; and
                 // wherever nothing is known of thoughts
  };

  // NOLINTNEXTLINE(google-explicit-constructor): nearly always the place is all there is
  constexpr ReasoningStart(Place where, uint8_t begun_close_bytes = 0)
      : place(where), close_bytes(begun_close_bytes) {}
  bool is_inside() const { return place != kBefore && place != kBehind; }
  friend bool operator==(const ReasoningStart&, const ReasoningStart&) = default;

  Place place;
  uint8_t close_bytes;  // of kThinkClose, with which a prompt ends that is kAmid
};

// From the text of the model's chat template. Pure, as what follows.
ReasoningFormat DetectReasoningFormat(std::string_view chat_template);

// Of a prompt that ends with what a template puts in front of an answer: by the tag that stands
// last in it. Words behind a closing tag are none of the answer: they may be instructions. A tag
// that begins before `template_begin` is not the template's.
ReasoningStart ReasoningStartOf(std::string_view prompt, size_t template_begin);

// Of a prompt that ends with `answer`, which the model is to continue and which says something.
// `opened`: the template has opened a thought in front of it.
ReasoningStart ReasoningStartWithin(std::string_view answer, bool opened = false);

// What of all that was generated is no thought.
std::string_view WithoutReasoning(std::string_view generated, ReasoningStart start);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_REASONING_FORMAT_H_
