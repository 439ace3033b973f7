#include "engine/text/tool_format.h"

namespace refrain::engine {

ToolFormat DetectToolFormat(std::string_view chat_template) {
  const auto says = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (!says("tools")) return ToolFormat::kNone;
  if (says("<tool_call>")) {
    // The same tags around calls that are no JSON: Qwen3-Coder's and GLM's.
    return says("<function=") || says("<arg_key>") ? ToolFormat::kUnknown : ToolFormat::kHermes;
  }
  // The instruction that the templates of 3.1 to 3.3 have in common, and what begins a call of
  // those that also know built-in tools.
  if (says("dictionary of argument name and its value") || says("<|python_tag|>")) {
    return ToolFormat::kLlama3;
  }
  return ToolFormat::kUnknown;
}

}  // namespace refrain::engine
