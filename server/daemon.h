#ifndef REFRAIN_SERVER_DAEMON_H_
#define REFRAIN_SERVER_DAEMON_H_

#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace refrain::server {

using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<engine::Engine>>(
    const engine::EngineOptions& options)>;

// Exit statuses of the daemon.
enum class ExitStatus : int {
  kOk = 0,          // drained, or nothing to serve was asked for (--help, --check-config)
  kFailed = 1,      // could not listen or load the model, or the system refused a thread
  kBadUsage = 2,    // command line or configuration
  kInterrupted = 3  // stopped with requests still running: second signal, or limits.drain_s over
};

// The whole life of `refraind`: configuration, listening at once, loading in the background,
// serving, draining on SIGTERM or SIGINT (the second one stops at once). `arguments` are those
// after the program's name. Called once, from main, before any other thread exists: it blocks the
// signals it waits for.
ExitStatus RunDaemon(std::span<const char* const> arguments, const EngineFactory& make_engine);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_DAEMON_H_
