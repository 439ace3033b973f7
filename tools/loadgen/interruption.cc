#include "tools/loadgen/interruption.h"

#include <signal.h>

#include <atomic>

namespace refrain::loadgen {
namespace {

// A handler of signals reaches nothing else.
std::atomic<int> caught_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void Note(int number) {
  caught_signal = number;
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void CatchInterruption() {
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESTART;
  // One that comes close behind finds what Note has set.
  ::sigaddset(&action.sa_mask, SIGINT);
  ::sigaddset(&action.sa_mask, SIGTERM);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::optional<int> InterruptedBy() {
  const int number = caught_signal;
  return number == 0 ? std::nullopt : std::optional(number);
}

}  // namespace refrain::loadgen
