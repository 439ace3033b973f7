#ifndef REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_
#define REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tool_format.h"

namespace refrain::server::openai {

// One call that the model made. A value.
struct ToolCall {
  std::string name;
  std::string arguments;  // the JSON text of an object
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// Finds the tool calls in the text that a model generates, piece after piece, however it is cut.
//
//   kHermes   text <tool_call>{"name": "f", "arguments": {...}}</tool_call> <tool_call>...
//   kLlama3   [<|python_tag|>] {"name": "f", "parameters": {...}} [; {...}]   and nothing else
//
// Text that may yet become part of a call is held back; a call is told as soon as its last brace
// is there, in one piece. What looked like a call and is none (no JSON object, no name, arguments
// that are no object) becomes text again, unchanged. Space before a call belongs to it.
//
// One parser per choice, one thread. Cannot fail. Time is linear in the text.
class ToolCallParser {
 public:
  struct Output {
    std::string text;
    std::vector<ToolCall> calls;
  };

  // Calls beyond `max_calls` are dropped (`parallel_tool_calls` false: 1).
  ToolCallParser(engine::ToolFormat format, size_t max_calls);

  // What may be told now.
  Output Add(std::string_view text);
  // The model has ended: what is held is a call, or text.
  Output Finish();

  // Whether a control token of this spelling is part of the format, and not just left out.
  static bool IsMarker(std::string_view token);
  bool called() const { return calls_made_ > 0; }

 private:
  enum class State : uint8_t { kText, kCall, kOnlyText };

  // Each takes one step on `held_`; false when more text is needed.
  bool StepHermes(Output* output);
  bool StepLlama3(Output* output);
  // False when `held_` up to `end` was no call, and is text therefore.
  bool EndCall(size_t json_begin, size_t json_end, size_t end, Output* output);
  // Follows the braces of the JSON object that begins at `begin`; its end when it is there.
  std::optional<size_t> FindObjectEnd(size_t begin);
  void StartScan() { scan_ = {}; }

  struct Scan {
    size_t at = 0;  // how far `held_` has been looked at, from the object's begin
    int depth = 0;
    bool in_string = false;
    bool escaped = false;
  };

  const engine::ToolFormat format_;
  const size_t max_calls_;
  size_t calls_made_ = 0;
  State state_ = State::kText;
  std::string held_;
  Scan scan_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOOL_CALL_PARSER_H_
