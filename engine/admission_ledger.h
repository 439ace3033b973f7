#ifndef REFRAIN_ENGINE_ADMISSION_LEDGER_H_
#define REFRAIN_ENGINE_ADMISSION_LEDGER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/drain_meter.h"

namespace refrain::engine {

class AdmissionTicket;

// What a request has come for: to run, or for its tokens alone (/tokenize), which takes a place in
// the queue but is none that waits to run.
enum class Errand { kRun, kTokenize };

// Counts the requests that are in the engine and refuses more than it may hold: from Submit until
// a request starts to run it is queued, wherever it stands (to be encoded, inbox, scheduler).
//
// A tenant (API key) that fills the queue keeps no other out: beyond a limit, up to twice of it,
// one may still enter that has less than its fair part: the limit over the number of tenants that
// have anything queued, itself and one more included. And what came in one call is let in where
// nothing else is queued, however many tokens that is: it would be too much at any time.
//
// Any thread. Failure: RESOURCE_EXHAUSTED naming the limit, UNAVAILABLE after Close. Both carry
// when to come back (WithRetryAfter): what is queued over the rate at which requests, or their
// tokens, have been leaving the queue; after Close, what is there over the rate at which requests
// end, or until the deadline.
class AdmissionLedger : public std::enable_shared_from_this<AdmissionLedger> {
 public:
  // `clock` outlives the ledger; null = the steady clock.
  AdmissionLedger(int32_t max_queued_requests, int64_t max_queued_tokens,
                  const Clock* clock = nullptr)
      : max_queued_requests_(max_queued_requests),
        max_queued_tokens_(max_queued_tokens),
        clock_(clock) {}

  // `call`: requests that came together have one number, which tokens are counted by; 0: alone.
  absl::StatusOr<AdmissionTicket> Enter(std::string_view tenant, Errand errand = Errand::kRun,
                                        uint64_t call = 0);
  // Nothing enters any more; `reason` is what Enter then returns. The first reason stays. At
  // `deadline`, if there is one, nothing will be left.
  void Close(absl::Status reason, std::optional<Clock::TimePoint> deadline = std::nullopt);
  // Until no request is left; false on `deadline`.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);
  int32_t queued_requests() const;
  // Of these, those that are to run.
  int32_t waiting_requests() const;
  // What Enter tells after Close, at any time; 0 where no request is left.
  double SecondsUntilEmpty() const;

 private:
  friend class AdmissionTicket;
  struct Queued {
    int32_t requests = 0;
    int64_t tokens = 0;
  };
  using Tenants = std::unordered_map<std::string, Queued>;

  absl::Status AddTokens(const std::string& tenant, uint64_t call, int64_t tokens);
  void LeaveQueue(const std::string& tenant, uint64_t call, Errand errand, int64_t tokens);
  void Leave();
  double SecondsLeft() const REFRAIN_REQUIRES(mutex_);
  Clock::TimePoint Now() const;

  const int32_t max_queued_requests_;
  const int64_t max_queued_tokens_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  ConditionVariable empty_;
  int32_t queued_requests_ REFRAIN_GUARDED_BY(mutex_) = 0;
  int32_t waiting_requests_ REFRAIN_GUARDED_BY(mutex_) = 0;  // of these, to run
  int64_t queued_tokens_ REFRAIN_GUARDED_BY(mutex_) = 0;
  Tenants tenants_ REFRAIN_GUARDED_BY(mutex_);  // that have requests queued
  std::unordered_map<uint64_t, int64_t> call_tokens_ REFRAIN_GUARDED_BY(mutex_);  // queued; not 0
  int32_t live_requests_ REFRAIN_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ REFRAIN_GUARDED_BY(mutex_);
  std::optional<Clock::TimePoint> deadline_ REFRAIN_GUARDED_BY(mutex_);  // of what is left then
  DrainMeter started_requests_ REFRAIN_GUARDED_BY(mutex_);
  DrainMeter started_tokens_ REFRAIN_GUARDED_BY(mutex_);
  DrainMeter ended_requests_ REFRAIN_GUARDED_BY(mutex_);
};

// A request's place in the ledger; gives it back when it goes. Move-only; one thread at a time.
class AdmissionTicket {
 public:
  AdmissionTicket() = default;
  AdmissionTicket(std::shared_ptr<AdmissionLedger> ledger, std::string tenant, uint64_t call,
                  Errand errand)
      : ledger_(std::move(ledger)),
        tenant_(std::move(tenant)),
        call_(call),
        errand_(errand),
        queued_(true) {}
  AdmissionTicket(AdmissionTicket&& other) noexcept { *this = std::move(other); }
  AdmissionTicket& operator=(AdmissionTicket&& other) noexcept;
  ~AdmissionTicket();

  // Once, when the prompt's length is known.
  absl::Status SetTokens(int64_t tokens);
  // The request runs or ends: it no longer counts as queued. Idempotent.
  void LeaveQueue();

 private:
  std::shared_ptr<AdmissionLedger> ledger_;
  std::string tenant_;
  uint64_t call_ = 0;
  Errand errand_ = Errand::kRun;
  bool queued_ = false;
  int64_t tokens_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ADMISSION_LEDGER_H_
