#include "engine/stop_criteria.h"

#include <algorithm>
#include <utility>

namespace refrain::engine {

bool StringFinder::Follow(std::string_view string, char byte) {
  while (matched_ > 0 && string[matched_] != byte) matched_ = borders_[matched_ - 1];
  if (string[matched_] != byte) return false;
  if (matched_ == borders_.size()) {
    size_t border = matched_ > 0 ? borders_[matched_ - 1] : 0;
    while (border > 0 && string[border] != byte) border = borders_[border - 1];
    const bool longer = border < matched_ && string[border] == byte;
    borders_.push_back(longer ? static_cast<uint32_t>(border + 1) : 0);
  }
  ++matched_;
  if (matched_ < string.size()) return false;
  matched_ = borders_.back();
  return true;
}

namespace {

// The tokens of both, each once, ascending.
SharedList<TokenId> SetOf(std::span<const TokenId> some, std::span<const TokenId> others) {
  std::vector<TokenId> set(some.begin(), some.end());
  set.insert(set.end(), others.begin(), others.end());
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return SharedList<TokenId>(std::move(set));
}

}  // namespace

StopRules::StopRules(const StopParams& params, int32_t max_tokens,
                     std::span<const TokenId> end_of_generation)
    : min_tokens(params.min_tokens),
      max_tokens(max_tokens),
      include_stop_in_output(params.include_stop_in_output),
      late_tokens(SetOf(params.stop_token_ids, end_of_generation)),
      strings(params.stop) {
  end_tokens = params.ignore_eos ? SetOf(params.stop_token_ids, {}) : late_tokens;
}

bool StopCriteria::IsEndToken(TokenId token) const {
  return std::binary_search(rules_->end_tokens.begin(), rules_->end_tokens.end(), token);
}

const std::string* StopCriteria::FindOrNull(char byte) {
  const std::string* longest = nullptr;
  const std::span<const std::string> strings = rules_->strings;
  for (size_t i = 0; i < finders_.size(); ++i) {
    const std::string& string = strings[i];
    if (string.empty() || !finders_[i].Next(string, byte)) continue;
    if (longest == nullptr || string.size() > longest->size()) longest = &string;
  }
  return longest;
}

int64_t StopCriteria::HeldBytes() const {
  size_t held = 0;
  for (const StringFinder& finder : finders_) held = std::max(held, finder.held_bytes());
  return static_cast<int64_t>(held);
}

std::optional<ChoiceEnd> StopCriteria::Accept(TokenEvent event, std::string_view bytes,
                                              std::vector<TokenEvent>* released) {
  ++accepted_tokens_;
  ChoiceEnd end{.choice = event.choice};
  if (accepted_tokens_ > rules_->min_tokens && IsEndToken(event.token)) {
    ReleaseAll(released);
    end.stop_token = event.token;
    end.stop_logprob = event.logprob;
    end.stop_top = std::move(event.top);
    return end;
  }
  const int64_t begin_byte = output_bytes_;
  output_bytes_ += static_cast<int64_t>(bytes.size());
  held_.push_back({std::move(event), begin_byte, output_bytes_});
  finders_.resize(rules_->strings.size());
  for (size_t i = 0; i < bytes.size() && !finders_.empty(); ++i) {
    const std::string* const stop = FindOrNull(bytes[i]);
    if (stop == nullptr || accepted_tokens_ <= rules_->min_tokens) continue;
    const int64_t match_end = begin_byte + static_cast<int64_t>(i) + 1;
    ReleaseCut(
        rules_->include_stop_in_output ? match_end : match_end - static_cast<int64_t>(stop->size()),
        released, &end.hidden_tokens);
    end.matched_stop = *stop;
    return end;
  }
  if (accepted_tokens_ >= rules_->max_tokens) {
    ReleaseAll(released);
    end.reason = FinishReason::kLength;
    return end;
  }
  ReleaseUpTo(output_bytes_ - HeldBytes(), released);
  return std::nullopt;
}

void StopCriteria::ReleaseUpTo(int64_t end_byte, std::vector<TokenEvent>* released) {
  while (!held_.empty() && held_.front().end_byte <= end_byte) {
    released->push_back(std::move(held_.front().event));
    held_.pop_front();
  }
}

void StopCriteria::ReleaseCut(int64_t end_byte, std::vector<TokenEvent>* released,
                              std::vector<TokenId>* hidden) {
  ReleaseUpTo(end_byte, released);
  if (!held_.empty() && held_.front().begin_byte < end_byte) {
    TokenEvent& cut = held_.front().event;
    cut.shown_bytes = static_cast<int32_t>(end_byte - held_.front().begin_byte);
    released->push_back(std::move(cut));
    held_.pop_front();
  }
  for (const Held& rest : held_) hidden->push_back(rest.event.token);
  held_.clear();
}

void StopCriteria::ReleaseAll(std::vector<TokenEvent>* released) {
  ReleaseUpTo(output_bytes_, released);
}

}  // namespace refrain::engine
