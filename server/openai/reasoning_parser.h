#ifndef REFRAIN_SERVER_OPENAI_REASONING_PARSER_H_
#define REFRAIN_SERVER_OPENAI_REASONING_PARSER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/reasoning_format.h"

namespace refrain::server::openai {

// Tells what a model thinks from its answer, in the text that it generates, piece after piece,
// however it is cut.
//
//   <think> thought </think> answer        where the prompt ends in front of both
//   [<think>] thought </think> answer      where the prompt has opened the thought
//
// There is one thought at most, at the beginning: a tag that comes later is text, as is one inside
// of the thought, and a closing tag that nothing has opened. Without a closing tag all of it is the
// thought. Space around the tags belongs to neither part; but where it has line ends only these and
// what stands between them and the tag: what is left is what templates put line ends around when
// the thought comes back, so that the same text results. What may yet become a tag, and up to a KiB
// of space in front of it or behind the line ends of one, is held back; more space is text. What
// the prompt has of the thought or of its tags is not told.
//
// Not for an answer of which nothing is a thought (ReasoningStart::kBehind). One parser per choice,
// one thread. Cannot fail. Time is linear in the text.
class ReasoningParser {
 public:
  struct Output {
    std::string reasoning;
    std::string answer;  // behind it
  };

  explicit ReasoningParser(engine::ReasoningStart start)
      : state_(start.place == engine::ReasoningStart::kAmid ? State::kThought : State::kBefore),
        opened_(start.is_inside()),
        behind_line_end_(start.place == engine::ReasoningStart::kInside),
        tag_bytes_(start.close_bytes),
        prompt_bytes_(start.close_bytes) {}

  // What may be told now.
  Output Add(std::string text);
  // The model has ended.
  Output Finish();

  // Whether a control token of this spelling is a tag here, and not just left out.
  bool IsTag(std::string_view token) const;
  // A thought has begun.
  bool has_thought() const { return opened_; }
  // Nothing that is to come is of the thought or its tags.
  bool is_behind() const { return state_ == State::kBehind || state_ == State::kAnswer; }

 private:
  enum class State : uint8_t {
    kBefore,  // nothing but space and the beginning of a tag
    kOpened,  // space behind the opening tag
    kThought,
    kBehind,  // space behind the closing tag
    kAnswer,
  };

  void Take(char byte, Output* output);
  // Of what stands behind a tag.
  void HoldSpace(char byte);
  void TakeBefore(char byte, Output* output);
  void TakeThought(char byte, Output* output);
  // True: the byte goes on with `tag`. With its last one, `in_front` gets what of the space in
  // front of the tag is not the tag's.
  bool GoesOn(char byte, std::string_view tag, std::string* in_front);
  // What the model has said of it, which is no tag then.
  std::string_view TakeBegun(std::string_view tag);

  State state_;
  bool opened_;
  bool behind_line_end_;  // behind a tag: a line end has come since
  std::string space_;     // held back
  size_t tag_bytes_;      // of a tag that may have begun behind it
  size_t prompt_bytes_;   // of these, that the prompt has
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_REASONING_PARSER_H_
