// What handing a token to each of many sockets takes at least: threads that wait for a step and
// then do nothing but `send`, each to its own part of the connections, over loopback to a process
// that does nothing but read. No server can be faster on the machine; server_overhead prints it
// beside what ours takes.
//
//   send_floor --connections=64 --threads=2 --bytes=230 --steps=500 --steps-per-s=156
//
// Prints one line of JSON: how long after its step a send had returned, of all sends. Exit status
// 1, with the reason on standard error, where a call fails or not all bytes arrive.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"

namespace refrain::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int connections = 64;
  int threads = 2;
  int bytes = 230;  // of a chat's event for a token
  int steps = 500;
  int steps_per_s = 156;  // 10,000 tokens a second over 64 connections
};

[[noreturn]] void Fail(std::string_view call) {
  std::perror(std::string(call).c_str());
  // Not exit: in the reader it would run what the sender's process registered.
  _exit(1);
}

// `result` of a call that must not fail.
int64_t Checked(int64_t result, std::string_view call) {
  if (result < 0) Fail(call);
  return result;
}

int ListenOnLoopback(const Options& options, sockaddr_in* address) {
  const int listener = static_cast<int>(Checked(socket(AF_INET, SOCK_STREAM, 0), "socket"));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(*address);
  auto* const any = reinterpret_cast<sockaddr*>(address);
  Checked(bind(listener, any, length), "bind");
  Checked(listen(listener, options.connections), "listen");
  Checked(getsockname(listener, any, &length), "getsockname");
  return listener;
}

// The client's process: reads until all connections are closed. The exit status says whether all
// that was sent came.
[[noreturn]] void ReadAll(const Options& options, const sockaddr_in& address) {
  const int events = static_cast<int>(Checked(epoll_create1(0), "epoll_create1"));
  for (int i = 0; i < options.connections; ++i) {
    const int file = static_cast<int>(Checked(socket(AF_INET, SOCK_STREAM, 0), "socket"));
    Checked(connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
    epoll_event event = {.events = EPOLLIN, .data = {.fd = file}};
    Checked(epoll_ctl(events, EPOLL_CTL_ADD, file, &event), "epoll_ctl");
  }
  int64_t read_bytes = 0;
  for (int open = options.connections; open > 0;) {
    epoll_event ready[64];
    const auto count = Checked(epoll_wait(events, ready, std::size(ready), -1), "epoll_wait");
    for (int i = 0; i < count; ++i) {
      char buffer[16384];
      const int64_t size = Checked(read(ready[i].data.fd, buffer, sizeof(buffer)), "read");
      read_bytes += size;
      if (size > 0) continue;
      close(ready[i].data.fd);
      --open;
    }
  }
  const int64_t sent = int64_t{options.connections} * options.bytes * options.steps;
  _exit(read_bytes == sent ? 0 : 1);
}

// Sends of all threads together, microseconds behind their steps.
std::vector<double> RunSteps(const Options& options, const std::vector<int>& files) {
  struct Sender {
    int wakeup = -1;
    std::vector<double> times_us;
    std::thread thread;
  };
  std::vector<Sender> senders(options.threads);
  std::atomic<Clock::duration::rep> begin{0};
  std::atomic<int> finished{0};
  const std::string event(options.bytes, 'x');
  for (int t = 0; t < options.threads; ++t) {
    Sender& sender = senders[t];
    sender.wakeup = static_cast<int>(Checked(eventfd(0, 0), "eventfd"));
    sender.times_us.reserve(size_t(options.steps) * options.connections);
    sender.thread = std::thread([&, t] {
      for (int step = 0; step < options.steps; ++step) {
        uint64_t posts = 0;
        Checked(read(sender.wakeup, &posts, sizeof(posts)), "read");
        const Clock::time_point from{Clock::duration(begin.load())};
        for (int i = t; i < options.connections; i += options.threads) {
          if (send(files[i], event.data(), event.size(), MSG_NOSIGNAL) != options.bytes) {
            Fail("send");
          }
          const std::chrono::duration<double, std::micro> passed = Clock::now() - from;
          sender.times_us.push_back(passed.count());
        }
        ++finished;
      }
    });
  }
  const auto period = std::chrono::nanoseconds(1'000'000'000 / options.steps_per_s);
  Clock::time_point next = Clock::now();
  for (int step = 1; step <= options.steps; ++step) {
    next += period;
    std::this_thread::sleep_until(next);
    begin = Clock::now().time_since_epoch().count();
    const uint64_t one = 1;
    for (const Sender& sender : senders) Checked(write(sender.wakeup, &one, sizeof(one)), "write");
    while (finished < step * options.threads) std::this_thread::sleep_for(period / 16);
  }
  std::vector<double> all;
  for (Sender& sender : senders) {
    sender.thread.join();
    close(sender.wakeup);
    all.insert(all.end(), sender.times_us.begin(), sender.times_us.end());
  }
  return all;
}

int Run(const Options& options) {
  sockaddr_in address;
  const int listener = ListenOnLoopback(options, &address);
  const auto reader = static_cast<pid_t>(Checked(fork(), "fork"));
  if (reader == 0) ReadAll(options, address);
  std::vector<int> files;
  for (int i = 0; i < options.connections; ++i) {
    files.push_back(static_cast<int>(Checked(accept(listener, nullptr, nullptr), "accept")));
    const int no_delay = 1;
    Checked(setsockopt(files.back(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay)),
            "setsockopt");
  }
  std::vector<double> times_us = RunSteps(options, files);
  for (const int file : files) close(file);
  int status = 0;
  Checked(waitpid(reader, &status, 0), "waitpid");
  if (status != 0) {
    std::fprintf(stderr, "send_floor: not all bytes arrived\n");
    return 1;
  }
  std::sort(times_us.begin(), times_us.end());
  const auto within = std::upper_bound(times_us.begin(), times_us.end(), 200.0) - times_us.begin();
  std::printf("{\"p50_us\":%.1f,\"p99_us\":%.1f,\"within_200_us\":%.4f}\n",
              times_us[times_us.size() / 2], times_us[times_us.size() * 99 / 100],
              static_cast<double>(within) / static_cast<double>(times_us.size()));
  return 0;
}

bool ReadOption(std::string_view argument, Options* options) {
  const struct {
    std::string_view name;
    int* value;
    int least, most;
  } kNumbers[] = {{"--connections=", &options->connections, 1, 1000},
                  {"--threads=", &options->threads, 1, 64},
                  {"--bytes=", &options->bytes, 1, 16384},
                  {"--steps=", &options->steps, 1, 100'000},
                  {"--steps-per-s=", &options->steps_per_s, 1, 10'000}};
  for (const auto& [name, value, least, most] : kNumbers) {
    if (!argument.starts_with(name)) continue;
    argument.remove_prefix(name.size());
    return absl::SimpleAtoi(absl::string_view(argument.data(), argument.size()), value) &&
           *value >= least && *value <= most;
  }
  return false;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  refrain::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (refrain::bench::ReadOption(argv[i], &options)) continue;
    std::fprintf(stderr, "send_floor: unknown option or bad value: %s\n", argv[i]);
    return 2;
  }
  return refrain::bench::Run(options);
}
