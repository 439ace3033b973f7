#include "server/stall_watch.h"

// Not netinet/tcp.h, whose tcp_info lacks the bytes.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace refrain::server {

std::optional<SentBytes> SentBytesOf(int socket) {
  // Acknowledged first: what is acknowledged between the two is then seen at the next look.
  tcp_info info = {};
  socklen_t size = sizeof(info);
  int outstanding = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      ::ioctl(socket, SIOCOUTQ, &outstanding) != 0) {
    return std::nullopt;
  }
  return SentBytes{.acknowledged = info.tcpi_bytes_acked,
                   .outstanding = static_cast<uint64_t>(std::max(outstanding, 0))};
}

bool StallWatch::IsStalled(const SentBytes& sent, TimePoint now) {
  const bool is_done = sent.outstanding == 0 || sent.acknowledged >= next_acknowledged_;
  if (is_done || latest_ == TimePoint()) {
    next_acknowledged_ = sent.acknowledged + std::min(sent.outstanding, kStepBytes);
    latest_ = now + patience_;
    return false;
  }
  return now >= latest_;
}

}  // namespace refrain::server
