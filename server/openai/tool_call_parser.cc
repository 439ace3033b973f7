#include "server/openai/tool_call_parser.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/concat.h"
#include "server/json.h"

namespace refrain::server::openai {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";
// Held back while it may belong to a call, and looked through again with each piece.
constexpr size_t kMostSpace = 1024;

size_t SkipSpace(std::string_view text, size_t begin) {
  return std::min(text.size(), text.find_first_not_of(kSpace, begin));
}

// What is not space that may belong to a call behind it.
size_t WithoutSpaceBehind(std::string_view text) {
  const size_t end = text.find_last_not_of(kSpace) + 1;
  return text.size() - end > kMostSpace ? text.size() - kMostSpace : end;
}

// How many of the last bytes of `text` are the beginning of `marker`.
size_t BegunMarker(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return length;
  }
  return 0;
}

bool IsObject(std::string_view json) {
  const absl::StatusOr<Json> parsed = ParseJson(json, {.as_python = true});
  return parsed.ok() && parsed->is_object();
}

// Nothing when `json`, which was followed, is no call.
std::optional<ToolCall> CallOf(std::string_view json, const CallFollower& follower,
                               engine::ToolFormat format) {
  const absl::StatusOr<Json> parsed = ParseJson(json, {.as_python = true});
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  ToolCall call{.name = {}, .arguments = std::string(follower.Arguments(json))};
  // Of names and arguments that occur twice the first ones, which a stream would have told.
  if (follower.streams()) {
    call.name = follower.name();
    return call;
  }
  const auto name = parsed->find("name");
  if (name == parsed->end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  bool has_arguments = false;
  for (const char* member : {"arguments", "parameters"}) {
    const auto arguments = parsed->find(member);
    if (arguments == parsed->end()) continue;
    if (arguments->is_string()) {
      // As OpenAI's API shows a call, which models have learnt from, too.
      const auto& text = arguments->get_ref<const std::string&>();
      if (!IsObject(text)) return std::nullopt;
      if (call.arguments.empty()) call.arguments = text;
    } else if (!arguments->is_object() && !arguments->is_null()) {
      return std::nullopt;
    }
    has_arguments = true;
  }
  // No tag tells a call of Llama 3 from an answer that is an object with a name.
  if (!has_arguments && format == engine::ToolFormat::kLlama3) return std::nullopt;
  call.name = name->get<std::string>();
  if (call.arguments.empty()) call.arguments = "{}";
  return call;
}

}  // namespace

ToolCallParser::ToolCallParser(engine::ToolFormat format, Options options)
    : format_(format), options_(options), follower_(MakeFollower()) {}

void AppendToCalls(const ToolCallDelta& delta, std::vector<ToolCall>* calls) {
  if (delta.name.has_value()) calls->push_back({.name = *delta.name, .arguments = {}});
  calls->back().arguments += delta.arguments;
}

void ToolCallParser::Output::AddCall(ToolCallDelta delta) {
  calls.push_back(std::move(delta));
  calls_at.push_back(text.size());
}

void ToolCallParser::Output::Append(Output later) {
  if (text.empty() && calls.empty()) {
    *this = std::move(later);
    return;
  }
  for (const size_t at : later.calls_at) calls_at.push_back(text.size() + at);
  text += later.text;
  calls.insert(calls.end(), std::make_move_iterator(later.calls.begin()),
               std::make_move_iterator(later.calls.end()));
}

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
    const std::optional<size_t> end = FollowObject(begin, &output);
    if (end.has_value()) EndCall(begin, *end, held_.size(), &output);
  }
  if (name_told_) {  // broken off
    space_.clear();
    held_.clear();
  }
  const bool only_space = held_.find_first_not_of(kSpace) == std::string::npos;
  if (!(called() && only_space)) output.text += space_ + held_;
  space_.clear();
  held_.clear();
  return output;
}

bool ToolCallParser::EndCall(size_t json_begin, size_t json_end, size_t end, Output* output) {
  const bool was_told = std::exchange(name_told_, false);
  const std::string_view json = std::string_view(held_).substr(json_begin, json_end - json_begin);
  std::optional<ToolCall> call;
  // The last brace of an object that is not whole may be all that it lacks.
  if (!was_told) {
    call = CallOf(follower_.whole() ? json : Concat(json, "}"), follower_, format_);
  }
  const bool is_call = was_told || call.has_value();
  if (call.has_value()) {
    TellName(std::move(call->name), output);
    TellArguments(call->arguments, /*whole=*/true, output);
  } else if (!was_told) {
    output->text += space_;
    output->text.append(held_, 0, end);
  }
  space_.clear();
  held_.erase(0, end);
  state_ = State::kText;
  follower_ = MakeFollower();
  name_told_ = false;
  arguments_told_ = 0;
  return is_call;
}

CallFollower ToolCallParser::MakeFollower() const {
  // A whole answer is text from the beginning where a call breaks.
  return CallFollower(
      {.closing_tag = format_ == engine::ToolFormat::kHermes ? kClose : std::string_view(),
       .ends_where_broken = options_.streams});
}

std::optional<size_t> ToolCallParser::FollowObject(size_t begin, Output* output) {
  const std::string_view object = std::string_view(held_).substr(begin);
  const std::optional<size_t> end = follower_.Follow(object);
  if (options_.streams && follower_.streams()) {
    if (!name_told_) TellName(follower_.name(), output);
    TellArguments(follower_.Arguments(object).substr(arguments_told_), follower_.closed_arguments(),
                  output);
  }
  if (!end.has_value()) return std::nullopt;
  return begin + *end;
}

void ToolCallParser::TellName(std::string name, Output* output) {
  name_told_ = true;
  if (++calls_made_ > options_.max_calls) return;
  output->AddCall(
      {.index = static_cast<int32_t>(calls_made_) - 1, .name = std::move(name), .arguments = {}});
}

void ToolCallParser::TellArguments(std::string_view arguments, bool whole, Output* output) {
  arguments_told_ += arguments.size();
  if (calls_made_ > options_.max_calls) return;
  told_whole_calls_ = whole;
  if (arguments.empty()) return;
  const int32_t index = static_cast<int32_t>(calls_made_) - 1;
  output->AddCall({.index = index, .name = {}, .arguments = std::string(arguments)});
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
    const size_t shown = WithoutSpaceBehind(std::string_view(held_).substr(0, open));
    output->text.append(held_, 0, shown);
    space_ = held_.substr(shown, open - shown);
    held_.erase(0, open);
    state_ = State::kCall;
  }
  const size_t begin = SkipSpace(held_, kOpen.size());
  const bool is_near = begin - kOpen.size() <= kMostSpace;
  if (is_near && begin == held_.size()) return false;
  if (!is_near || held_[begin] != '{') {  // no call: the tag is text
    output->text += std::exchange(space_, {});
    output->text.append(held_, 0, begin);
    held_.erase(0, begin);
    state_ = State::kText;
    return true;
  }
  const std::optional<size_t> end = FollowObject(begin, output);
  if (!end.has_value()) return false;
  const size_t close = SkipSpace(held_, *end);
  const std::string_view rest = std::string_view(held_).substr(close);
  const bool closes_near = close - *end <= kMostSpace;
  if (closes_near && rest.size() < kClose.size() && kClose.starts_with(rest)) return false;
  const bool is_closed = closes_near && rest.starts_with(kClose);
  EndCall(begin, *end, is_closed ? close + kClose.size() : *end, output);
  return true;
}

bool ToolCallParser::StepLlama3(Output* output) {
  size_t begin = SkipSpace(held_, 0);
  if (called() && begin < held_.size() && held_[begin] == ';') begin = SkipSpace(held_, begin + 1);
  const std::string_view rest = std::string_view(held_).substr(begin);
  size_t space = begin;
  if (space <= kMostSpace) {
    if (rest.size() < kPythonTag.size() && kPythonTag.starts_with(rest)) return false;  // or empty
    if (rest.starts_with(kPythonTag)) {
      const size_t behind_tag = begin + kPythonTag.size();
      begin = SkipSpace(held_, behind_tag);
      space = begin - behind_tag;
      if (space <= kMostSpace && begin == held_.size()) return false;
    }
  }
  if (space > kMostSpace || held_[begin] != '{') {
    state_ = State::kOnlyText;
    return false;
  }
  const std::optional<size_t> end = FollowObject(begin, output);
  if (!end.has_value()) return false;
  if (EndCall(begin, *end, *end, output)) return true;
  state_ = State::kOnlyText;
  return false;
}

}  // namespace refrain::server::openai
