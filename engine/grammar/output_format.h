#ifndef REFRAIN_ENGINE_GRAMMAR_OUTPUT_FORMAT_H_
#define REFRAIN_ENGINE_GRAMMAR_OUTPUT_FORMAT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace refrain::engine {

// A form that an output has to have, as the client states it: no other token is chosen. A value;
// requests share one (Request::format).
struct OutputFormat {
  // Of what is stated, all texts together.
  static constexpr size_t kMostBytes = size_t{1} << 18;

  struct JsonObject {};  // any
  struct JsonSchema {
    std::string schema;  // JSON; what of it is understood: json_schema.h
  };
  struct Regex {
    std::string pattern;  // of the whole output
  };
  struct Ebnf {
    std::string grammar;  // of the whole output; ebnf_rules.h
  };
  struct Choice {
    std::vector<std::string> texts;  // the output is one of them
  };
  // One call at least, in the way in which the model was taught to call tools; nothing else.
  struct ToolCalls {
    struct Tool {
      std::string name;
      std::string parameters;  // a JSON Schema of its arguments; empty: any object
      bool is_strict = true;   // all that it says has to hold, or it is refused
    };
    std::vector<Tool> tools;
    bool several = true;  // more than one call may follow
  };

  std::variant<JsonObject, JsonSchema, Regex, Ebnf, Choice, ToolCalls> form;
  // Or these in its place, where the model may call tools before it answers.
  std::optional<ToolCalls> or_calls;
  // What the client calls it ("response_format.json_schema.schema"): messages begin with it.
  std::string field;

  size_t bytes() const;  // of all its texts
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OUTPUT_FORMAT_H_
