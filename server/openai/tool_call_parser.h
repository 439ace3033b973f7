#ifndef REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_
#define REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tool_format.h"
#include "server/openai/call_follower.h"

namespace refrain::server::openai {

// One call that the model made. A value.
struct ToolCall {
  std::string name;
  std::string arguments;  // the JSON text of an object
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// What is new of a call. The pieces of one call's arguments, joined, are their JSON text as the
// model wrote it.
struct ToolCallDelta {
  int32_t index = 0;                // of the call, among those of its choice
  std::optional<std::string> name;  // with the first piece
  std::string arguments;
  friend bool operator==(const ToolCallDelta&, const ToolCallDelta&) = default;
};

// Adds `delta` to the calls that came before.
void AppendToCalls(const ToolCallDelta& delta, std::vector<ToolCall>* calls);

// Finds the tool calls in the text that a model generates, piece after piece, however it is cut.
//
//   kHermes   text <tool_call>{"name": "f", "arguments": {...}}</tool_call> <tool_call>...
//   kLlama3   [<|python_tag|>] {"name": "f", "parameters": {...}} [; {...}]   and nothing else
//
// Text that may yet become part of a call is held back. A call is told as soon as its last brace is
// there, in one piece; with `streams`, once its name and the first brace of its arguments are
// there, the name first and then the arguments as they come. What looked like a call and is none
// (no JSON object, no name, arguments that are no object, for kLlama3 none at all) becomes text
// again, unchanged; but not once its name has been told: a model that then breaks its JSON, or is
// cut short, leaves arguments to match. Such a call ends where it breaks behind its arguments, and
// what follows is looked through as text; in arguments that are never closed all that follows is
// theirs. A call that lacks only the last brace before its closing tag is one. Space before a call
// belongs to it, the last KiB at most; more inside one ends it.
//
// One parser per choice, one thread. Cannot fail. Time is linear in the text.
class ToolCallParser {
 public:
  struct Output {
    std::string text;
    std::vector<ToolCallDelta> calls;
    std::vector<size_t> calls_at;  // [calls] so many bytes of `text` stand in front of each

    void AddCall(ToolCallDelta delta);
    // `later` comes behind all of it.
    void Append(Output later);
  };
  struct Options {
    size_t max_calls = SIZE_MAX;  // the others are dropped (`parallel_tool_calls` false: 1)
    bool streams = false;
  };

  ToolCallParser(engine::ToolFormat format, Options options);

  // What may be told now.
  Output Add(std::string_view text);
  // The model has ended: what is held is a call, or text.
  Output Finish();

  // Whether a control token of this spelling is part of the format, and not just left out.
  static bool IsMarker(std::string_view token);
  // A call has been told, and the arguments of the last one up to their last brace.
  bool told_whole_calls() const { return told_whole_calls_; }

 private:
  enum class State : uint8_t { kText, kCall, kOnlyText };

  // Each takes one step on `held_`; false when more text is needed.
  bool StepHermes(Output* output);
  bool StepLlama3(Output* output);
  // False when `held_` up to `end` was no call, and is text therefore.
  bool EndCall(size_t json_begin, size_t json_end, size_t end, Output* output);
  CallFollower MakeFollower() const;
  // Follows the JSON object that begins at `begin`, tells of it what may be told; its end when it
  // is there.
  std::optional<size_t> FollowObject(size_t begin, Output* output);
  void TellName(std::string name, Output* output);
  // More of them; `whole`: there are no others.
  void TellArguments(std::string_view arguments, bool whole, Output* output);
  bool called() const { return calls_made_ > 0; }

  const engine::ToolFormat format_;
  const Options options_;
  size_t calls_made_ = 0;  // the dropped ones too
  bool told_whole_calls_ = false;
  State state_ = State::kText;
  std::string held_;
  std::string space_;  // between the text and what may be a call: shown if it is none
  // Of the object that is followed.
  CallFollower follower_;
  bool name_told_ = false;
  size_t arguments_told_ = 0;  // bytes
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_
