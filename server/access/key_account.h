#ifndef REFRAIN_SERVER_ACCESS_KEY_ACCOUNT_H_
#define REFRAIN_SERVER_ACCESS_KEY_ACCOUNT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "engine/annotated_mutex.h"
#include "engine/drain_meter.h"
#include "server/access/account.h"

namespace refrain::server::access {

// What the keys of one name use. Requests at once are counted exactly. Tokens are a bucket that
// fills with `tokens_per_s` up to one second's worth and is charged when tokens have been computed,
// so it may owe: nobody enters before the debt is paid, and over any time T a key gets at most
// tokens_per_s * (T + 1 s) and what its running requests still take. Any thread.
class KeyAccount final : public Ticket::Account {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Limits {
    int32_t requests = 0;     // 0 = none
    double tokens_per_s = 0;  // 0 = none
  };

  KeyAccount(std::string name, std::function<TimePoint()> now);

  void SetLimits(const Limits& limits);
  // Takes a place. RESOURCE_EXHAUSTED names the limit and carries when to come back, and the code
  // `rate_limit_exceeded`.
  absl::Status Enter();

  void Leave() override;
  void Charge(int64_t tokens) override;

 private:
  void Fill(TimePoint now) REFRAIN_REQUIRES(mutex_);

  const std::string name_;
  const std::function<TimePoint()> now_;
  Mutex mutex_;
  Limits limits_ REFRAIN_GUARDED_BY(mutex_);
  int32_t requests_ REFRAIN_GUARDED_BY(mutex_) = 0;
  double tokens_ REFRAIN_GUARDED_BY(mutex_) = 0;  // in the bucket; negative = owed
  TimePoint filled_ REFRAIN_GUARDED_BY(mutex_);
  engine::DrainMeter ended_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_KEY_ACCOUNT_H_
