#include "server/openai/tool_call_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/json.h"

namespace refrain::server::openai {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

size_t SkipSpace(std::string_view text, size_t begin) {
  return std::min(text.size(), text.find_first_not_of(kSpace, begin));
}

size_t WithoutSpaceBehind(std::string_view text) { return text.find_last_not_of(kSpace) + 1; }

// How many of the last bytes of `text` are the beginning of `marker`.
size_t BegunMarker(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return length;
  }
  return 0;
}

std::optional<ToolCall> ReadCall(std::string_view json) {
  const absl::StatusOr<Json> parsed = ParseJson(json);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  const auto name = parsed->find("name");
  if (name == parsed->end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  ToolCall call{.name = name->get<std::string>(), .arguments = "{}"};
  for (const char* member : {"arguments", "parameters"}) {
    const auto arguments = parsed->find(member);
    if (arguments == parsed->end() || arguments->is_null()) continue;
    if (!arguments->is_object()) return std::nullopt;
    call.arguments = arguments->dump();
    break;
  }
  return call;
}

}  // namespace

ToolCallParser::ToolCallParser(engine::ToolFormat format, size_t max_calls)
    : format_(format), max_calls_(max_calls) {}

bool ToolCallParser::IsMarker(std::string_view token) {
  return token == kOpen || token == kClose || token == kPythonTag;
}

ToolCallParser::Output ToolCallParser::Add(std::string_view text) {
  Output output;
  held_.append(text);
  while (state_ != State::kOnlyText &&
         (format_ == engine::ToolFormat::kHermes ? StepHermes(&output) : StepLlama3(&output))) {
  }
  if (state_ == State::kOnlyText) output.text += std::exchange(held_, {});
  return output;
}

ToolCallParser::Output ToolCallParser::Finish() {
  Output output;
  if (state_ == State::kCall && format_ == engine::ToolFormat::kHermes) {
    // The closing tag may be missing: some models end right behind the object.
    const size_t begin = SkipSpace(held_, kOpen.size());
    const std::optional<size_t> end = FindObjectEnd(begin);
    if (end.has_value()) EndCall(begin, *end, held_.size(), &output);
  }
  const bool only_space = held_.find_first_not_of(kSpace) == std::string::npos;
  if (!(called() && only_space)) output.text += held_;
  held_.clear();
  return output;
}

bool ToolCallParser::EndCall(size_t json_begin, size_t json_end, size_t end, Output* output) {
  std::optional<ToolCall> call =
      ReadCall(std::string_view(held_).substr(json_begin, json_end - json_begin));
  if (!call.has_value()) {
    output->text.append(held_, 0, end);
  } else if (calls_made_ < max_calls_) {
    output->calls.push_back(*call);
    ++calls_made_;
  }
  held_.erase(0, end);
  state_ = State::kText;
  StartScan();
  return call.has_value();
}

std::optional<size_t> ToolCallParser::FindObjectEnd(size_t begin) {
  for (; begin + scan_.at < held_.size(); ++scan_.at) {
    const char c = held_[begin + scan_.at];
    if (scan_.in_string) {
      if (!std::exchange(scan_.escaped, !scan_.escaped && c == '\\') && c == '"') {
        scan_.in_string = false;
      }
    } else if (c == '"') {
      scan_.in_string = true;
    } else if (c == '{') {
      ++scan_.depth;
    } else if (c == '}' && --scan_.depth <= 0) {
      return begin + scan_.at + 1;
    }
  }
  return std::nullopt;
}

bool ToolCallParser::StepHermes(Output* output) {
  if (state_ == State::kText) {
    const size_t open = held_.find(kOpen);
    if (open == std::string::npos) {
      // Space may belong to a call behind it.
      const size_t sure = held_.size() - BegunMarker(held_, kOpen);
      const size_t shown = WithoutSpaceBehind(std::string_view(held_).substr(0, sure));
      output->text.append(held_, 0, shown);
      held_.erase(0, shown);
      return false;
    }
    output->text.append(held_, 0, WithoutSpaceBehind(std::string_view(held_).substr(0, open)));
    held_.erase(0, open);
    state_ = State::kCall;
    StartScan();
  }
  const size_t begin = SkipSpace(held_, kOpen.size());
  if (begin == held_.size()) return false;
  if (held_[begin] != '{') {  // no call: the tag is text
    output->text.append(held_, 0, begin);
    held_.erase(0, begin);
    state_ = State::kText;
    return true;
  }
  const std::optional<size_t> end = FindObjectEnd(begin);
  if (!end.has_value()) return false;
  const size_t close = SkipSpace(held_, *end);
  const std::string_view rest = std::string_view(held_).substr(close);
  if (rest.size() < kClose.size() && kClose.starts_with(rest)) return false;
  EndCall(begin, *end, rest.starts_with(kClose) ? close + kClose.size() : *end, output);
  return true;
}

bool ToolCallParser::StepLlama3(Output* output) {
  size_t begin = SkipSpace(held_, 0);
  if (called() && begin < held_.size() && held_[begin] == ';') begin = SkipSpace(held_, begin + 1);
  std::string_view rest = std::string_view(held_).substr(begin);
  if (rest.size() < kPythonTag.size() && kPythonTag.starts_with(rest)) return false;  // or empty
  if (rest.starts_with(kPythonTag)) {
    begin = SkipSpace(held_, begin + kPythonTag.size());
    if (begin == held_.size()) return false;
  }
  if (held_[begin] != '{') {
    state_ = State::kOnlyText;
    return false;
  }
  const std::optional<size_t> end = FindObjectEnd(begin);
  if (!end.has_value()) return false;
  if (EndCall(begin, *end, *end, output)) return true;
  state_ = State::kOnlyText;
  return false;
}

}  // namespace refrain::server::openai
