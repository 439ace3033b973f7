#include "server/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
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

void Notify(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof(one));
}

}  // namespace

void BlockStopSignals() { BlockSignals(); }

StopSignals::File::File(int number) : number_(number) {
  if (number < 0) throw std::system_error(errno, std::generic_category());
}

StopSignals::File::~File() { ::close(number_); }

StopSignals::StopSignals(std::function<void()> on_hangup)
    : on_hangup_(std::move(on_hangup)),
      work_done_(::eventfd(0, EFD_CLOEXEC)),
      signals_(OpenSignals()),
      destroyed_(::eventfd(0, EFD_CLOEXEC)) {
  listener_ = std::thread([this] { Listen(); });
}

StopSignals::~StopSignals() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  Notify(destroyed_.get());
  listener_.join();
}

void StopSignals::NotifyWorkDone() { Notify(work_done_.get()); }

StopSignals::Event StopSignals::Wait(std::optional<std::chrono::milliseconds> limit) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + limit.value_or(std::chrono::milliseconds(0));
  for (;;) {
    int left_ms = -1;
    if (limit.has_value()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      left_ms = std::max(0, static_cast<int>(left.count()));
    }
    pollfd files[] = {{signals_.get(), POLLIN, 0}, {work_done_.get(), POLLIN, 0}};
    const int ready = ::poll(files, 2, left_ms);
    if (ready == 0) return Event::kTimeout;
    if (ready < 0) continue;  // EINTR
    if (files[0].revents & POLLIN) {
      signalfd_siginfo info;
      if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGHUP) return Event::kSignal;
        on_hangup_();
      }
    }
    uint64_t count;
    if (files[1].revents & POLLIN) {
      if (::read(work_done_.get(), &count, sizeof(count)) == sizeof(count)) return Event::kWorkDone;
    }
  }
}

void StopSignals::EndWithin(std::chrono::milliseconds limit, std::function<void(Event)> end) {
  MutexLock lock(mutex_);
  deadline_ = std::chrono::steady_clock::now() + limit;
  end_ = std::move(end);
  changed_.NotifyAll();
}

void StopSignals::Listen() {
  std::function<void(Event)> end;
  std::chrono::steady_clock::time_point deadline;
  {
    MutexLock lock(mutex_);
    while (!ends_ && !end_) changed_.Wait(mutex_);
    if (ends_) return;
    end = end_;
    deadline = deadline_;
  }
  const Event event = WaitForEnd(deadline);
  if (event != Event::kWorkDone) end(event);
}

StopSignals::Event StopSignals::WaitForEnd(std::chrono::steady_clock::time_point deadline) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Event::kTimeout;
    pollfd files[] = {{destroyed_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (::poll(files, 2, static_cast<int>(left.count())) <= 0) continue;  // EINTR, or over
    if (files[0].revents != 0) return Event::kWorkDone;
    signalfd_siginfo info;
    if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGHUP) {
      return Event::kSignal;
    }
  }
}

}  // namespace refrain::server
