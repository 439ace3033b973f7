#include "engine/admission_ledger.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/retry_after.h"

namespace refrain::engine {

absl::StatusOr<AdmissionTicket> AdmissionLedger::Enter(std::string_view tenant, Errand errand,
                                                       uint64_t call) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return WithRetryAfter(closed_, SecondsLeft());
  std::string name(tenant);
  const auto found = tenants_.find(name);
  const int32_t own = found != tenants_.end() ? found->second.requests : 0;
  const auto shares = static_cast<int32_t>(tenants_.size()) + (own == 0 ? 2 : 1);
  if (queued_requests_ >= max_queued_requests_ &&
      (own >= max_queued_requests_ / shares || queued_requests_ >= 2 * max_queued_requests_)) {
    return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                              "too many requests: ", queued_requests_,
                              " are queued, limits.queued_requests is ", max_queued_requests_)),
                          started_requests_.SecondsFor(Now(), queued_requests_));
  }
  const Clock::TimePoint now = Now();
  if (queued_requests_ == 0) started_requests_.Begin(now);
  if (live_requests_ == 0) ended_requests_.Begin(now);
  ++queued_requests_;
  if (errand == Errand::kRun) ++waiting_requests_;
  ++live_requests_;
  ++tenants_[name].requests;
  return AdmissionTicket(shared_from_this(), std::move(name), call, errand);
}

void AdmissionLedger::Close(absl::Status reason, std::optional<Clock::TimePoint> deadline) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  closed_ = std::move(reason);
  deadline_ = deadline;
}

bool AdmissionLedger::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (live_requests_ > 0) {
    if (!empty_.WaitUntil(mutex_, deadline)) return live_requests_ == 0;
  }
  return true;
}

int32_t AdmissionLedger::queued_requests() const {
  MutexLock lock(mutex_);
  return queued_requests_;
}

int32_t AdmissionLedger::waiting_requests() const {
  MutexLock lock(mutex_);
  return waiting_requests_;
}

double AdmissionLedger::SecondsUntilEmpty() const {
  MutexLock lock(mutex_);
  return SecondsLeft();
}

double AdmissionLedger::SecondsLeft() const {
  const Clock::TimePoint now = Now();
  const double seconds = ended_requests_.SecondsFor(now, live_requests_);
  if (!deadline_.has_value()) return seconds;
  const double most = std::chrono::duration<double>(*deadline_ - now).count();
  return std::min(seconds, std::max(0.0, most));
}

absl::Status AdmissionLedger::AddTokens(const std::string& tenant, uint64_t call, int64_t tokens) {
  MutexLock lock(mutex_);
  Queued& own = tenants_.at(tenant);
  const int64_t fair_part = max_queued_tokens_ / (static_cast<int64_t>(tenants_.size()) + 1);
  // A request that is alone may be of any length: its context limits it. So may a call.
  const auto of_call = call_tokens_.find(call);
  const bool alone = queued_tokens_ == (of_call == call_tokens_.end() ? 0 : of_call->second);
  const int64_t sum = queued_tokens_ + tokens;
  if (!alone && sum > max_queued_tokens_ &&
      (own.tokens + tokens > fair_part || sum > 2 * max_queued_tokens_)) {
    return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                              "too many queued tokens: ", queued_tokens_, " and this request's ",
                              tokens, " are more than limits.queued_tokens, ", max_queued_tokens_)),
                          started_tokens_.SecondsFor(Now(), queued_tokens_));
  }
  if (queued_tokens_ == 0) started_tokens_.Begin(Now());
  queued_tokens_ += tokens;
  own.tokens += tokens;
  if (call != 0 && tokens > 0) call_tokens_[call] += tokens;
  return absl::OkStatus();
}

void AdmissionLedger::LeaveQueue(const std::string& tenant, uint64_t call, Errand errand,
                                 int64_t tokens) {
  MutexLock lock(mutex_);
  if (call != 0 && tokens > 0) {
    const auto of_call = call_tokens_.find(call);
    of_call->second -= tokens;
    if (of_call->second == 0) call_tokens_.erase(of_call);
  }
  const auto own = tenants_.find(tenant);
  own->second.tokens -= tokens;
  if (--own->second.requests == 0) tenants_.erase(own);
  --queued_requests_;
  if (errand == Errand::kRun) --waiting_requests_;
  queued_tokens_ -= tokens;
  const Clock::TimePoint now = Now();
  started_requests_.Add(now, 1);
  started_tokens_.Add(now, tokens);
}

void AdmissionLedger::Leave() {
  MutexLock lock(mutex_);
  ended_requests_.Add(Now(), 1);
  if (--live_requests_ == 0) empty_.NotifyAll();
}

Clock::TimePoint AdmissionLedger::Now() const {
  return clock_ != nullptr ? clock_->Now() : std::chrono::steady_clock::now();
}

AdmissionTicket& AdmissionTicket::operator=(AdmissionTicket&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(tenant_, other.tenant_);
  std::swap(call_, other.call_);
  std::swap(errand_, other.errand_);
  std::swap(queued_, other.queued_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

AdmissionTicket::~AdmissionTicket() {
  if (ledger_ == nullptr) return;
  LeaveQueue();
  ledger_->Leave();
}

absl::Status AdmissionTicket::SetTokens(int64_t tokens) {
  absl::Status status = ledger_->AddTokens(tenant_, call_, tokens);
  if (status.ok()) tokens_ = tokens;
  return status;
}

void AdmissionTicket::LeaveQueue() {
  if (!std::exchange(queued_, false)) return;
  ledger_->LeaveQueue(tenant_, call_, errand_, tokens_);
}

}  // namespace refrain::engine
