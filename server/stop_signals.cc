#include "server/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <utility>

namespace refrain::server {
namespace {

sigset_t BlockSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

int OpenSignals() {
  const sigset_t set = BlockSignals();
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

}  // namespace

void BlockStopSignals() { BlockSignals(); }

StopSignals::StopSignals(std::function<void()> on_hangup)
    : on_hangup_(std::move(on_hangup)),
      work_done_(::eventfd(0, EFD_CLOEXEC)),
      signals_(OpenSignals()) {}

StopSignals::~StopSignals() {
  for (const int file : {work_done_, signals_}) {
    if (file >= 0) ::close(file);
  }
}

void StopSignals::NotifyWorkDone() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(work_done_, &one, sizeof(one));
}

StopSignals::Event StopSignals::Wait() {
  for (;;) {
    pollfd files[] = {{signals_, POLLIN, 0}, {work_done_, POLLIN, 0}};
    if (::poll(files, 2, -1) < 0) continue;  // EINTR
    if (files[0].revents & POLLIN) {
      signalfd_siginfo info;
      if (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGHUP) return Event::kSignal;
        on_hangup_();
      }
    }
    uint64_t count;
    if (files[1].revents & POLLIN) {
      if (::read(work_done_, &count, sizeof(count)) == sizeof(count)) return Event::kWorkDone;
    }
  }
}

}  // namespace refrain::server
