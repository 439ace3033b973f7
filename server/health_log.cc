#include "server/health_log.h"

#include <string>

namespace refrain::server {

void HealthLog::Look(const absl::Status& health) {
  if (health.code() == logged_) return;
  logged_ = health.code();
  const std::string reason(health.message());
  if (health.ok()) {
    log_->Info("the engine gets on again");
  } else if (absl::IsUnavailable(health)) {
    log_->Error("the engine is stalled: requests wait", {{"status", reason}});
  } else {
    log_->Error("the engine is dead: the daemon should be restarted", {{"status", reason}});
  }
}

}  // namespace refrain::server
