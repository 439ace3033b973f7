#include "server/access/key_account.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/retry_after.h"
#include "server/concat.h"
#include "server/status_mapping.h"

namespace refrain::server::access {
namespace {

// OpenAI's word, so that clients tell their own limit from a server that is full.
absl::Status BeyondLimit(std::string_view message, double retry_after_s) {
  return engine::WithRetryAfter(
      WithCode(absl::ResourceExhaustedError(std::string(message)), "rate_limit_exceeded"),
      retry_after_s);
}

}  // namespace

KeyAccount::KeyAccount(std::string name, std::function<TimePoint()> now)
    : name_(std::move(name)), now_(std::move(now)), filled_(now_()) {}

void KeyAccount::SetLimits(const Limits& limits) {
  MutexLock lock(mutex_);
  if (limits_.tokens_per_s == 0) {  // starts with a full bucket
    tokens_ = limits.tokens_per_s;
    filled_ = now_();
  }
  limits_ = limits;
}

void KeyAccount::Fill(TimePoint now) {
  const double passed_s = std::chrono::duration<double>(now - filled_).count();
  tokens_ = std::min(limits_.tokens_per_s, tokens_ + passed_s * limits_.tokens_per_s);
  filled_ = now;
}

absl::Status KeyAccount::Enter() {
  MutexLock lock(mutex_);
  const TimePoint now = now_();
  if (limits_.requests > 0 && requests_ >= limits_.requests) {
    return BeyondLimit(Concat("too many requests of key \"", name_, "\": ", requests_,
                              " at once, its limit is ", limits_.requests),
                       ended_.SecondsFor(now, 1));
  }
  if (limits_.tokens_per_s > 0) {
    Fill(now);
    if (tokens_ <= 0) {
      return BeyondLimit(Concat("too many tokens of key \"", name_, "\": its limit is ",
                                limits_.tokens_per_s, " tokens per second"),
                         (1 - tokens_) / limits_.tokens_per_s);
    }
  }
  if (requests_ == 0) ended_.Begin(now);
  ++requests_;
  return absl::OkStatus();
}

void KeyAccount::Leave() {
  MutexLock lock(mutex_);
  --requests_;
  ended_.Add(now_(), 1);
}

void KeyAccount::Charge(int64_t tokens) {
  MutexLock lock(mutex_);
  if (limits_.tokens_per_s == 0) return;
  Fill(now_());
  tokens_ -= static_cast<double>(tokens);
}

}  // namespace refrain::server::access
