#include "server/openai/reasoning_parser.h"

#include <utility>

namespace refrain::server::openai {
namespace {

using engine::kThinkClose;
using engine::kThinkOpen;

// Held back while a tag may follow; as much as the parser of tool calls holds.
constexpr size_t kMostSpace = 1024;

constexpr std::string_view kLineEnds = "\r\n";

bool IsLineEnd(char byte) { return kLineEnds.find(byte) != std::string_view::npos; }
bool IsSpace(char byte) { return byte == ' ' || byte == '\t' || IsLineEnd(byte); }

}  // namespace

bool ReasoningParser::IsTag(std::string_view token) const {
  const bool may_open = state_ == State::kBefore && tag_bytes_ == 0;
  const bool may_close = opened_ && !is_behind();
  return (may_open && token == kThinkOpen) || (may_close && token == kThinkClose);
}

ReasoningParser::Output ReasoningParser::Add(std::string text) {
  Output output;
  if (state_ == State::kAnswer) {
    output.answer = std::move(text);
    return output;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kAnswer) {
      output.answer.append(text, i);
      break;
    }
    Take(text[i], &output);
  }
  return output;
}

ReasoningParser::Output ReasoningParser::Finish() {
  Output output;
  if (state_ == State::kBefore) {
    const std::string_view tag = kThinkOpen.substr(0, tag_bytes_);
    if (opened_ && !tag.empty()) {
      output.reasoning = space_.append(tag);
    } else if (!opened_) {
      output.answer = space_.append(tag);
    }
  } else if (state_ == State::kThought) {
    output.reasoning = space_.append(TakeBegun(kThinkClose));
  }
  space_.clear();
  tag_bytes_ = 0;
  return output;
}

void ReasoningParser::Take(char byte, Output* output) {
  if (state_ == State::kOpened || state_ == State::kBehind) {
    if (IsSpace(byte) && space_.size() < kMostSpace) return HoldSpace(byte);
    state_ = state_ == State::kOpened ? State::kThought : State::kAnswer;
    if (state_ == State::kAnswer) output->answer += std::exchange(space_, {});
  }
  if (state_ == State::kBefore) {
    TakeBefore(byte, output);
  } else if (state_ == State::kThought) {
    TakeThought(byte, output);
  } else {
    output->answer.push_back(byte);
  }
}

void ReasoningParser::HoldSpace(char byte) {
  if (IsLineEnd(byte)) {
    behind_line_end_ = true;
    space_.clear();
  } else if (behind_line_end_) {
    space_.push_back(byte);
  }
}

std::string_view ReasoningParser::TakeBegun(std::string_view tag) {
  const size_t begin = std::exchange(prompt_bytes_, 0);
  return tag.substr(begin, std::exchange(tag_bytes_, 0) - begin);
}

bool ReasoningParser::GoesOn(char byte, std::string_view tag, std::string* in_front) {
  if (byte != tag[tag_bytes_]) return false;
  if (++tag_bytes_ < tag.size()) return true;
  const size_t line_end = space_.find_first_of(kLineEnds);
  if (line_end != std::string::npos) in_front->append(space_, 0, line_end);
  tag_bytes_ = 0;
  space_.clear();
  behind_line_end_ = false;
  state_ = state_ == State::kBefore ? State::kOpened : State::kBehind;
  opened_ = true;
  return true;
}

void ReasoningParser::TakeBefore(char byte, Output* output) {
  std::string nothing;
  if (GoesOn(byte, kThinkOpen, &nothing)) return;
  if (tag_bytes_ == 0 && IsSpace(byte) && space_.size() < kMostSpace) {
    return opened_ ? HoldSpace(byte) : space_.push_back(byte);  // behind the prompt's tag, or text
  }
  if (opened_) {
    state_ = State::kThought;
  } else {
    state_ = State::kAnswer;
    output->answer += std::exchange(space_, {});
  }
  for (const char held : TakeBegun(kThinkOpen)) Take(held, output);
  Take(byte, output);
}

void ReasoningParser::TakeThought(char byte, Output* output) {
  if (GoesOn(byte, kThinkClose, &output->reasoning)) return;
  if (tag_bytes_ > 0) {
    output->reasoning.append(std::exchange(space_, {})).append(TakeBegun(kThinkClose));
    return TakeThought(byte, output);
  }
  const bool holds = IsSpace(byte) && space_.size() < kMostSpace;
  if (!holds) output->reasoning += std::exchange(space_, {});
  (IsSpace(byte) ? space_ : output->reasoning).push_back(byte);
}

}  // namespace refrain::server::openai
