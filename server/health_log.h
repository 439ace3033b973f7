#ifndef REFRAIN_SERVER_HEALTH_LOG_H_
#define REFRAIN_SERVER_HEALTH_LOG_H_

#include "absl/status/status.h"
#include "server/log.h"

namespace refrain::server {

// Logs once when the engine ceases to be well (Engine::health), as an error with the reason, once
// more where the reason becomes another (a stalled engine dies), and once when it is well again.
// Its caller looks now and then, on one thread.
class HealthLog {
 public:
  // `log` outlives it.
  explicit HealthLog(Log* log) : log_(log) {}

  void Look(const absl::Status& health);

 private:
  Log* const log_;
  absl::StatusCode logged_ =
      absl::StatusCode::kOk;  // by its code: a stall's message tells the time
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_HEALTH_LOG_H_
