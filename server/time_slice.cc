#include "server/time_slice.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace refrain::server {
namespace {

constexpr uint64_t kSliceNs = 100'000;  // the shortest that Linux gives
constexpr uint32_t kOrdinary = 0;       // SCHED_OTHER

// sched_attr of sched_setattr(2), which older C libraries lack; its first version.
struct Attributes {
  uint32_t size = 48;
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);

}  // namespace

void AskForShortTimeSlice() {
  Attributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  // An operator who chose another policy (chrt) knows better.
  if (attributes.policy != kOrdinary) return;
  attributes.flags = 0;
  attributes.runtime_ns = kSliceNs;
  [[maybe_unused]] const long refused = ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace refrain::server
