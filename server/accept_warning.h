#ifndef REFRAIN_SERVER_ACCEPT_WARNING_H_
#define REFRAIN_SERVER_ACCEPT_WARNING_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "server/log.h"

namespace refrain::server {

// Tells the log why connections cannot be accepted (IsShortage), at the first try and then at most
// once in `period`: there are twenty a second. For one thread.
class AcceptWarning {
 public:
  // `log` outlives it.
  AcceptWarning(Log* log, std::string front_end,
                std::chrono::milliseconds period = std::chrono::minutes(1))
      : log_(log), front_end_(std::move(front_end)), period_(period) {}

  void operator()(int error);  // errno

 private:
  Log* log_;
  std::string front_end_;
  std::chrono::milliseconds period_;
  std::optional<std::chrono::steady_clock::time_point> told_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_ACCEPT_WARNING_H_
