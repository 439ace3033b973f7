#ifndef REFRAIN_ENGINE_TEXT_TOOL_FORMAT_H_
#define REFRAIN_ENGINE_TEXT_TOOL_FORMAT_H_

#include <cstdint>
#include <string_view>

namespace refrain::engine {

// How a model was taught to call tools.
enum class ToolFormat : uint8_t {
  kNone,     // its template has no place for tools
  kUnknown,  // it has; what the model says in answer is not understood, and stays text
  kHermes,   // <tool_call>{"name":...,"arguments":{...}}</tool_call>, Qwen 2 and later, Hermes
  kLlama3,   // {"name":...,"parameters":{...}} as the whole answer, Llama 3.1 and later
};

// From the text of the model's chat template: it shows the model what a call looks like. Pure.
ToolFormat DetectToolFormat(std::string_view chat_template);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_TOOL_FORMAT_H_
