#include "engine/grammar/output_grammar.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/ebnf_rules.h"
#include "engine/grammar/grammar_builder.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex_rule.h"

namespace refrain::engine {
namespace {

// Between a thought and the answer; unbounded, some models would write nothing else.
constexpr int kMostLineEndsBehindThought = 8;

absl::Status Named(std::string_view what, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(std::string(what), ": ", std::string(status.message())));
}

std::string JsonString(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false,
                                   nlohmann::json::error_handler_t::replace);
}

// A tag, as text or as one control token.
NodeId AddTag(GrammarBuilder& builder, NodeId from, std::string_view tag) {
  const NodeId end = builder.AddLiteral(from, tag);
  builder.AddSkip(
      builder.AddLiteral(from, absl::StrCat(std::string(1, kControlMark), std::string(tag))), end);
  return end;
}

// Any text up to the closing tag and with it: Knuth, Morris and Pratt's automaton. `begun` bytes of
// the tag are there already.
void AddThought(GrammarBuilder& builder, RuleId rule, NodeId from, size_t begun, NodeId to) {
  constexpr std::string_view kTag = kThinkClose;
  std::array<NodeId, kTag.size()> matched;  // so many bytes of the tag
  for (NodeId& node : matched) node = builder.AddNode(rule);
  builder.AddSkip(from, matched[begun]);
  const auto next = [&](size_t state, char byte) {
    const std::string seen = std::string(kTag.substr(0, state)) + byte;
    size_t longest = seen.size();
    while (!kTag.starts_with(std::string_view(seen).substr(seen.size() - longest))) --longest;
    return longest;
  };
  for (size_t state = 0; state < kTag.size(); ++state) {
    for (int first = 0; first < static_cast<uint8_t>(kControlMark);) {
      const size_t target = next(state, static_cast<char>(first));
      int last = first;
      while (last + 1 < static_cast<uint8_t>(kControlMark) &&
             next(state, static_cast<char>(last + 1)) == target) {
        ++last;
      }
      builder.AddBytes(matched[state], static_cast<uint8_t>(first), static_cast<uint8_t>(last),
                       target == kTag.size() ? to : matched[target]);
      first = last + 1;
    }
    builder.AddSkip(builder.AddLiteral(matched[state], absl::StrCat(std::string(1, kControlMark),
                                                                    std::string(kTag))),
                    to);
  }
}

// Line ends alone: the answer's reader takes them for the thought's, and a space for the answer's.
void AddLineEndsBehindThought(GrammarBuilder& builder, RuleId rule, NodeId from, NodeId to) {
  NodeId place = from;
  builder.AddSkip(place, to);
  for (int i = 0; i < kMostLineEndsBehindThought; ++i) {
    const NodeId next = builder.AddNode(rule);
    builder.AddBytes(place, '\n', '\n', next);
    builder.AddBytes(place, '\r', '\r', next);
    builder.AddSkip(next, to);
    place = next;
  }
}

absl::StatusOr<RuleId> ArgumentsRule(const OutputFormat::ToolCalls::Tool& tool, JsonRules* rules) {
  if (tool.parameters.empty()) return rules->Object();
  absl::StatusOr<RuleId> arguments = AddJsonSchema(
      tool.parameters, rules, tool.is_strict ? SchemaHold::kAll : SchemaHold::kWhatItCan);
  if (!arguments.ok()) {
    return Named(absl::StrCat("the parameters of ", tool.name), arguments.status());
  }
  return arguments;
}

// What stands around a call's name and arguments.
struct CallForm {
  std::string_view begin, between, end;
  bool has_tags;
};

absl::StatusOr<RuleId> CallsRule(const OutputFormat::ToolCalls& calls, const CallForm& form,
                                 JsonRules* rules) {
  GrammarBuilder& builder = rules->builder();
  const RuleId all = builder.AddRule();
  const RuleId call = builder.AddRule();
  NodeId begin = builder.begin(call);
  if (form.has_tags) begin = builder.AddLiteral(AddTag(builder, begin, "<tool_call>"), "\n");
  begin = builder.AddLiteral(begin, form.begin);
  const NodeId behind = builder.AddNode(call);
  for (const OutputFormat::ToolCalls::Tool& tool : calls.tools) {
    const absl::StatusOr<RuleId> arguments = ArgumentsRule(tool, rules);
    if (!arguments.ok()) return arguments.status();
    const NodeId named =
        builder.AddLiteral(begin, absl::StrCat(JsonString(tool.name), std::string(form.between)));
    builder.AddCall(named, *arguments, behind);
  }
  NodeId end = builder.AddLiteral(behind, form.end);
  if (form.has_tags) end = AddTag(builder, builder.AddLiteral(end, "\n"), "</tool_call>");
  builder.AddSkip(end, builder.end(call));

  builder.AddCall(builder.begin(all), call, builder.end(all));
  if (calls.several && form.has_tags) {
    const NodeId again = builder.AddLiteral(builder.end(all), "\n");
    builder.AddCall(again, call, builder.end(all));
  }
  return all;
}

absl::StatusOr<RuleId> ToolCallsRule(const OutputFormat::ToolCalls& calls, ToolFormat format,
                                     JsonRules* rules) {
  switch (format) {
    case ToolFormat::kHermes:
      return CallsRule(calls, {"{\"name\": ", ", \"arguments\": ", "}", true}, rules);
    case ToolFormat::kLlama3:
      return CallsRule(calls, {"{\"name\": ", ", \"parameters\": ", "}", false}, rules);
    case ToolFormat::kNone:
    case ToolFormat::kUnknown:
      break;
  }
  return absl::InvalidArgumentError(
      "calls cannot be asked for: the model's chat template shows no way of calling tools that is "
      "understood");
}

absl::StatusOr<RuleId> TextRule(const OutputFormat& format, ToolFormat tools, JsonRules* rules) {
  GrammarBuilder& builder = rules->builder();
  using Result = absl::StatusOr<RuleId>;
  return std::visit(
      [&](const auto& form) -> Result {
        using Form = std::decay_t<decltype(form)>;
        if constexpr (std::is_same_v<Form, OutputFormat::JsonObject>) {
          return rules->Object();
        } else if constexpr (std::is_same_v<Form, OutputFormat::JsonSchema>) {
          return AddJsonSchema(form.schema, rules);
        } else if constexpr (std::is_same_v<Form, OutputFormat::Regex>) {
          const RuleId rule = builder.AddRule();
          absl::Status status = AddRegex(form.pattern, RegexText::kPlain, builder.begin(rule),
                                         builder.end(rule), rules);
          if (!status.ok()) return status;
          return rule;
        } else if constexpr (std::is_same_v<Form, OutputFormat::Ebnf>) {
          return AddEbnf(form.grammar, &builder);
        } else if constexpr (std::is_same_v<Form, OutputFormat::Choice>) {
          const RuleId rule = builder.AddRule();
          for (const std::string& text : form.texts) {
            builder.AddSkip(builder.AddLiteral(builder.begin(rule), text), builder.end(rule));
          }
          return rule;
        } else {
          return ToolCallsRule(form, tools, rules);
        }
      },
      format.form);
}

absl::StatusOr<RuleId> AnswerRule(const OutputFormat& format, ToolFormat tools, JsonRules* rules) {
  absl::StatusOr<RuleId> text = TextRule(format, tools, rules);
  if (!text.ok() || !format.or_calls.has_value()) return text;
  absl::StatusOr<RuleId> calls = ToolCallsRule(*format.or_calls, tools, rules);
  if (!calls.ok()) return calls;
  GrammarBuilder& builder = rules->builder();
  const RuleId rule = builder.AddRule();
  builder.AddCall(builder.begin(rule), *text, builder.end(rule));
  builder.AddCall(builder.begin(rule), *calls, builder.end(rule));
  return rule;
}

RuleId WithThought(ReasoningStart start, RuleId text, GrammarBuilder& builder) {
  if (start.place == ReasoningStart::kBehind) return text;
  const RuleId rule = builder.AddRule();
  const NodeId behind_thought = builder.AddNode(rule);
  const NodeId answer = builder.AddNode(rule);
  if (start.is_inside()) {
    AddThought(builder, rule, builder.begin(rule), start.close_bytes, behind_thought);
  } else {
    builder.AddSkip(builder.begin(rule), answer);
    AddThought(builder, rule, AddTag(builder, builder.begin(rule), kThinkOpen), 0, behind_thought);
  }
  AddLineEndsBehindThought(builder, rule, behind_thought, answer);
  builder.AddCall(answer, text, builder.end(rule));
  return rule;
}

}  // namespace

absl::StatusOr<Grammar> MakeOutputGrammar(const OutputFormat& format, const OutputPlace& place,
                                          EncodePace* pace) {
  GrammarBuilder builder(GrammarBuilder::Limits{.pace = pace});
  JsonRules rules(&builder);
  const absl::StatusOr<RuleId> answer = AnswerRule(format, place.tools, &rules);
  if (!answer.ok()) return Named(format.field, answer.status());
  const RuleId root = WithThought(place.reasoning, *answer, builder);
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  if (absl::IsInvalidArgument(grammar.status())) return Named(format.field, grammar.status());
  return grammar;
}

}  // namespace refrain::engine
