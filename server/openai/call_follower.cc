#include "server/openai/call_follower.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/json.h"

namespace refrain::server::openai {
namespace {

bool IsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

std::optional<size_t> CallFollower::Follow(std::string_view object) {
  for (; !end_.has_value() && at_ < object.size(); ++at_) {
    const char c = object[at_];
    if (!in_string_) {
      const std::string_view tag = options_.closing_tag;
      if (!tag.empty() && c == tag.front()) {
        const std::string_view rest = object.substr(at_);
        if (rest.starts_with(tag)) {
          end_ = at_;
          break;
        }
        if (tag.starts_with(rest)) break;  // may become the tag
      }
      Take(c);
      if (c == '}' && braces_ <= 0) end_ = at_ + 1;
    } else if (!std::exchange(escaped_, !escaped_ && c == '\\') && c == '"') {
      in_string_ = false;
      if (outermost()) EndString(object.substr(string_begin_, at_ + 1 - string_begin_));
    }
    streams_ = streams_ || (orderly_ && name_.has_value() && arguments_begin_.has_value());
    if (options_.ends_where_broken && streams_ && !orderly_) end_ = members_end_;
  }
  return end_;
}

std::string_view CallFollower::Arguments(std::string_view object) const {
  if (!arguments_begin_.has_value()) return {};
  return object.substr(*arguments_begin_, arguments_end_.value_or(at_) - *arguments_begin_);
}

void CallFollower::Take(char c) {
  if (c == '"') {
    in_string_ = true;
    string_begin_ = at_;
    if (outermost() && place_ != Place::kKey && place_ != Place::kValue) orderly_ = false;
  } else if (c == '{') {
    if (outermost()) {
      if (place_ != Place::kValue) orderly_ = false;
      if (IsArguments(key_) && !arguments_begin_.has_value()) arguments_begin_ = at_;
    }
    ++braces_;
  } else if (c == '}') {
    --braces_;
    if (!outermost()) return;
    if (arguments_begin_.has_value() && !arguments_end_.has_value()) arguments_end_ = at_ + 1;
    EndMember();
  } else if (braces_ == 1) {
    TakeOutermost(c);
  }
}

void CallFollower::TakeOutermost(char c) {
  switch (c) {
    case ' ':
    case '\t':
    case '\r':
    case '\n':
      return;
    case '[':
      if (brackets_++ == 0 && (place_ != Place::kValue || IsArguments(key_))) orderly_ = false;
      return;
    case ']':
      if (brackets_ == 0) {
        orderly_ = false;
      } else if (--brackets_ == 0) {
        EndMember();
      }
      return;
    default:
      break;
  }
  if (brackets_ != 0) return;
  if (c == ':') {
    if (std::exchange(place_, Place::kValue) != Place::kColon) orderly_ = false;
  } else if (c == ',') {
    const Place before = std::exchange(place_, Place::kKey);
    if (before == Place::kScalar) {
      members_end_ = at_;
    } else if (before != Place::kComma) {
      orderly_ = false;
    }
  } else if (place_ == Place::kValue || place_ == Place::kScalar) {
    place_ = Place::kScalar;
    if (key_ == "name" || IsArguments(key_)) orderly_ = false;
  } else {
    orderly_ = false;
  }
}

void CallFollower::EndString(std::string_view text) {
  const absl::StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok() || !parsed->is_string()) {
    orderly_ = false;
  } else if (place_ == Place::kKey) {
    // Of names and arguments the first ones count: they may have been told.
    key_ = streams_ ? std::string() : parsed->get<std::string>();
    place_ = Place::kColon;
    return;
  } else if (key_ == "name") {
    name_ = parsed->get<std::string>();
    if (name_->empty()) orderly_ = false;
  } else if (IsArguments(key_)) {
    orderly_ = false;
  }
  if (orderly_) EndMember();
}

void CallFollower::EndMember() {
  place_ = Place::kComma;
  members_end_ = at_ + 1;
}

}  // namespace refrain::server::openai
