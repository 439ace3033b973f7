#ifndef REFRAIN_SERVER_STALL_WATCH_H_
#define REFRAIN_SERVER_STALL_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>

namespace refrain::server {

// What was handed to a socket, as the system counts it.
struct SentBytes {
  uint64_t acknowledged = 0;  // by the other side's system, since the connection began
  uint64_t outstanding = 0;   // and those that it has not acknowledged yet
};

// Nothing of what is no connection any more.
std::optional<SentBytes> SentBytesOf(int socket);

// Tells a client that takes what was handed to its socket, in however small steps, from one that
// has stopped reading or has vanished: of what is outstanding, kStepBytes, or all where that is
// less, are acknowledged within `patience`, and again. A pure rule; its caller looks now and then.
//
// TCP_USER_TIMEOUT is no substitute. On Linux its time begins when the client's window is too small
// for the packet that stands first in line, up to 64 KiB, and goes on while the packet leaves in
// the parts that fit (icsk_probes_tstamp, which only tcp_ack_probe takes back): a client whose
// window stays small is reset after that time however fast it reads.
class StallWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kStepBytes = 64 << 10;

  // Begins at the first look.
  explicit StallWatch(std::chrono::milliseconds patience) : patience_(patience) {}

  bool IsStalled(const SentBytes& sent, TimePoint now);
  // It is stalled from then on unless a look before sees a step done.
  TimePoint latest() const { return latest_; }

 private:
  std::chrono::milliseconds patience_;
  uint64_t next_acknowledged_ = 0;  // the step is done once so many bytes are
  TimePoint latest_{};
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_STALL_WATCH_H_
