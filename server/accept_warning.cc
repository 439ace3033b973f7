#include "server/accept_warning.h"

#include <system_error>

namespace refrain::server {

void AcceptWarning::operator()(int error) {
  const auto now = std::chrono::steady_clock::now();
  if (told_.has_value() && now - *told_ < period_) return;
  log_->Warn("connections wait, none can be accepted",
             {{"front_end", front_end_}, {"error", std::generic_category().message(error)}});
  told_ = now;  // not where there was no memory for it
}

}  // namespace refrain::server
