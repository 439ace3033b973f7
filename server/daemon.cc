#include "server/daemon.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "server/concat.h"
#include "server/config.h"
#include "server/debug/debug_endpoints.h"
#include "server/http/server.h"
#include "server/log.h"
#include "server/openai/service.h"
#include "server/version.h"

namespace refrain::server {
namespace {

using Clock = std::chrono::steady_clock;

// Answers whose last token is out still have to be written when a drain is over.
constexpr std::chrono::milliseconds kWriteGrace{2000};

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// What the main thread waits for: a signal that ends the daemon, or the end of the work that runs
// beside it (loading, draining).
class StopSignals {
 public:
  enum class Event { kSignal, kWorkDone };

  StopSignals() : work_done_(::eventfd(0, EFD_CLOEXEC)), signals_(BlockSignals()) {}

  void NotifyWorkDone() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(work_done_.get(), &one, sizeof(one));
  }

  Event Wait() {
    for (;;) {
      pollfd files[] = {{signals_.get(), POLLIN, 0}, {work_done_.get(), POLLIN, 0}};
      if (::poll(files, 2, -1) < 0) continue;  // EINTR
      if (files[0].revents & POLLIN) {
        signalfd_siginfo info;
        if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) return Event::kSignal;
      }
      uint64_t count;
      if (files[1].revents & POLLIN) {
        if (::read(work_done_.get(), &count, sizeof(count)) == sizeof(count)) {
          return Event::kWorkDone;
        }
      }
    }
  }

 private:
  static int BlockSignals() {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return ::signalfd(-1, &set, SFD_CLOEXEC);
  }

  const Descriptor work_done_;
  const Descriptor signals_;
};

http::ServerOptions HttpOptions(const Config& config, const ListenAddress& address) {
  http::ServerOptions options;
  options.host = address.host;
  options.port = address.port;
  options.io_threads = static_cast<int>(config.integer("server.io_threads"));
  options.header_bytes = static_cast<size_t>(config.integer("limits.header_bytes"));
  options.body_bytes = static_cast<size_t>(config.integer("limits.body_bytes"));
  options.error_body = openai::Service::HttpErrorBody;
  return options;
}

class Daemon {
 public:
  Daemon(const Config& config, const EngineFactory& make_engine)
      : config_(config),
        make_engine_(make_engine),
        log_(config.log_format(), config.log_level()),
        service_({.version = kVersion,
                  .max_choices = static_cast<int>(config.integer("limits.n")),
                  .max_beams = static_cast<int>(config.integer("engine.max_sequences"))},
                 &log_) {
    service_.AddRoutes(&router_);
    if (config.on("server.debug")) debug_.AddRoutes(&router_);
  }

  ExitStatus Run() {
    StopSignals signals;  // before the first thread, so that all inherit the blocked signals
    if (!Listen()) return ExitStatus::kFailed;
    absl::StatusOr<std::unique_ptr<engine::Engine>> loaded = nullptr;
    const auto started = Clock::now();
    std::thread loader([&] {
      loaded = make_engine_(config_.EngineOptions());
      signals.NotifyWorkDone();
    });
    if (signals.Wait() == StopSignals::Event::kSignal) {
      // A load cannot be interrupted half-way, and nothing is there that would have to be finished
      // or saved.
      log_.Info("stopped while loading");
      ::_exit(static_cast<int>(ExitStatus::kOk));
    }
    loader.join();
    if (!loaded.ok()) {
      log_.Error("cannot load the model", {{"status", std::string(loaded.status().message())}});
      http_->Stop(std::chrono::milliseconds(0));
      return ExitStatus::kFailed;
    }
    const std::unique_ptr<engine::Engine> engine = *std::move(loaded);
    const engine::ModelInfo& model = engine->model();
    service_.SetEngine(engine.get());
    debug_.SetEngine(engine.get());
    const auto load_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
    log_.Info("ready", {{"model", model.served_name},
                        {"description", model.description},
                        {"max_context_tokens", model.max_context_tokens},
                        {"load_ms", static_cast<int64_t>(load_ms)}});
    signals.Wait();
    return Drain(engine.get(), &signals);
  }

 private:
  bool Listen() {
    const absl::StatusOr<ListenAddress> address =
        ParseListenAddress(config_.text("server.http_listen"));
    if (!address.ok()) {  // Validate has looked at it
      log_.Error("bad address", {{"status", std::string(address.status().message())}});
      return false;
    }
    auto server = http::Server::Start(HttpOptions(config_, *address), &router_);
    if (!server.ok()) {
      log_.Error("cannot listen", {{"status", std::string(server.status().message())}});
      return false;
    }
    http_ = *std::move(server);
    log_.Info("listening", {{"http", Concat(address->host, ":", http_->port())}});
    return true;
  }

  ExitStatus Drain(engine::Engine* engine, StopSignals* signals) {
    const double drain_s = config_.seconds("limits.drain_s");
    log_.Info("draining", {{"limit_s", Concat(drain_s)},
                           {"running", engine->stats().running_sequences},
                           {"queued", engine->stats().queued_requests}});
    service_.SetDraining();
    http_->BeginDrain();
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(drain_s));
    std::atomic<bool> finished{false};
    std::thread waiter([&] {
      finished = engine->Drain(deadline);
      signals->NotifyWorkDone();
    });
    const bool interrupted = signals->Wait() == StopSignals::Event::kSignal;
    // Closing the connections cancels what still runs, which also ends the waiter soon.
    http_->Stop(interrupted || !finished ? std::chrono::milliseconds(0) : kWriteGrace);
    waiter.join();
    const bool complete = finished && !interrupted;
    log_.Info("stopped", {{"finished_all", complete ? "yes" : "no"}});
    return complete ? ExitStatus::kOk : ExitStatus::kInterrupted;
  }

  const Config& config_;
  const EngineFactory& make_engine_;
  Log log_;
  openai::Service service_;
  debug::DebugEndpoints debug_;
  http::Router router_;
  std::unique_ptr<http::Server> http_;  // outlives the engine, whose streams may still wake it
};

}  // namespace

ExitStatus RunDaemon(std::span<const char* const> arguments, const EngineFactory& make_engine) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) {
    std::fprintf(stderr, "refraind: %s\n", std::string(line.status().message()).c_str());
    return ExitStatus::kBadUsage;
  }
  switch (line->action) {
    case CommandLine::Action::kHelp:
      std::fputs(HelpText().c_str(), stdout);
      return ExitStatus::kOk;
    case CommandLine::Action::kVersion:
      std::printf("refraind %s\n", kVersion);
      return ExitStatus::kOk;
    case CommandLine::Action::kCheckConfig:
      std::puts("configuration ok");
      return ExitStatus::kOk;
    case CommandLine::Action::kServe:
      break;
  }
  return Daemon(line->config, make_engine).Run();
}

}  // namespace refrain::server
