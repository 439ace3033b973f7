#include "tools/loadgen/interruption.h"

#include <signal.h>

#include <atomic>

namespace refrain::loadgen {
namespace {

// A handler of signals reaches nothing else.
std::atomic<int> caught_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// The two may come close behind each other, on two threads.
void Note(int number) {
  int none = 0;
  if (caught_signal.compare_exchange_strong(none, number)) return;
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void CatchInterruption() {
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::optional<int> InterruptedBy() {
  const int number = caught_signal;
  return number == 0 ? std::nullopt : std::optional(number);
}

}  // namespace refrain::loadgen
