#include "server/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/accept_warning.h"
#include "server/access/make_key_command.h"
#include "server/access/web_pages.h"
#include "server/concat.h"
#include "server/config.h"
#include "server/debug/debug_endpoints.h"
#include "server/grpc/server.h"
#include "server/guards.h"
#include "server/health_log.h"
#include "server/http/server.h"
#include "server/log.h"
#include "server/metrics/metrics.h"
#include "server/open_files.h"
#include "server/openai/service.h"
#include "server/request_log.h"
#include "server/service_manager.h"
#include "server/stop_signals.h"
#include "server/thread_stacks.h"
#include "server/unread_answers.h"
#include "server/version.h"
#include "server/with_threads.h"

namespace refrain::server {
namespace {

using Clock = std::chrono::steady_clock;

// Answers whose last token comes at the end of a drain still have to be written, and clients to
// close their connections.
constexpr std::chrono::milliseconds kWriteGrace{2000};
constexpr std::chrono::milliseconds kLastNote{100};
// For telling those whose answers are cut short.
constexpr std::chrono::milliseconds kLastWords{300};
// For the end behind a drain. The unit's TimeoutStopSec has to leave room for it.
constexpr std::chrono::milliseconds kMostEnd{10'000};
// For the engine thread, at a reload: no other signal is heard meanwhile.
constexpr std::chrono::milliseconds kMostWait{5000};
constexpr std::chrono::milliseconds kNoticePeriod{10};  // of looking whether it is over
constexpr std::chrono::milliseconds kHealthPeriod{1000};

// Rounded up: 0 says that there is no limit, or no ping.
std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

http::ServerOptions HttpOptions(const Config& config, const ListenAddress& address,
                                const Guards& guards) {
  http::ServerOptions options;
  options.host = address.host;
  options.port = address.port;
  options.io_threads = static_cast<int>(config.integer("server.io_threads"));
  options.header_bytes = static_cast<size_t>(config.integer("limits.header_bytes"));
  options.body_bytes = static_cast<size_t>(config.integer("limits.body_bytes"));
  options.bodies_bytes = static_cast<size_t>(config.integer("limits.bodies_bytes"));
  options.idle_timeout = Milliseconds(config.seconds("limits.http_idle_s"));
  options.answer_bytes_per_s = static_cast<size_t>(config.integer("limits.answer_bytes_per_s"));
  options.ping_interval = Milliseconds(config.seconds("http.sse_ping_s"));
  options.error_body = openai::Service::HttpErrorBody;
  options.cors = guards.cors;
  options.tls = guards.tls;
  if (guards.request_log != nullptr) {
    options.on_exchange = [log = guards.request_log.get()](const http::Exchange& exchange) {
      log->Write(exchange);
    };
  }
  return options;
}

rpc::ServerOptions GrpcOptions(const Config& config, const ListenAddress& address) {
  rpc::ServerOptions options;
  options.host = address.host;
  options.port = address.port;
  options.stream_threads = static_cast<int>(config.integer("server.io_threads"));
  options.message_bytes = config.integer("limits.body_bytes");
  options.messages_bytes = static_cast<size_t>(config.integer("limits.bodies_bytes"));
  options.header_bytes = static_cast<int>(config.integer("limits.header_bytes"));
  options.calls_per_connection =
      static_cast<int>(config.integer("limits.grpc_calls_per_connection"));
  options.memory_bytes = static_cast<size_t>(config.integer("limits.grpc_memory_bytes"));
  options.max_connections = static_cast<int>(config.integer("limits.grpc_connections"));
  options.idle_timeout = Milliseconds(config.seconds("limits.grpc_idle_s"));
  options.max_age = Milliseconds(config.seconds("limits.grpc_age_s"));
  options.call_timeout = Milliseconds(config.seconds("limits.request_timeout_s"));
  options.max_choices = static_cast<int32_t>(config.integer("limits.n"));
  options.max_beams = static_cast<int32_t>(config.integer("engine.max_sequences"));
  options.tls_cert_file = config.text("tls.cert_file");
  options.tls_key_file = config.text("tls.key_file");
  options.log_prompts = config.on("log.prompts");
  options.isolates_keys = config.text("kv_cache.isolation") == "api_key";
  return options;
}

// A gRPC call as a line of the request log has it: a POST over HTTP/2.
void LogCall(const rpc::CallRecord& call, RequestLog* log) {
  std::string details = Concat("\"grpc_status\":\"", absl::StatusCodeToString(call.code), "\"");
  if (!call.details.empty()) ConcatTo(&details, ",", call.details);
  log->Write({.request_id = call.request_id,
              .method = "POST",
              .route = call.path,
              .path = call.path,
              .principal = call.principal,
              .details = details,
              .status = call.http_status,
              .complete = call.complete,
              .request_body_bytes = call.request_bytes,
              .response_bytes = call.response_bytes,
              .seconds = call.seconds});
}

std::function<int64_t()> DroppedLinesOf(const RequestLog* log) {
  if (log == nullptr) return nullptr;
  return [log] { return log->dropped_lines(); };
}

class Daemon {
 public:
  // Of `open_files` at once, as RaiseOpenFileLimit has it.
  Daemon(const Config& config, const EngineFactory& make_engine, Guards guards, int64_t open_files)
      : config_(config),
        make_engine_(make_engine),
        log_(config.log_format(), config.log_level()),
        guards_(std::move(guards)),
        open_files_(open_files),
        service_({.version = kVersion,
                  .max_choices = static_cast<int>(config.integer("limits.n")),
                  .max_beams = static_cast<int>(config.integer("engine.max_sequences")),
                  .max_prompts = static_cast<size_t>(config.integer("limits.queued_requests")),
                  .gate = guards_.gate.get(),
                  .log_prompts = config.on("log.prompts"),
                  .tokenizer_info = config.on("server.tokenizer_info"),
                  .held_bytes = static_cast<size_t>(config.integer("limits.bodies_bytes")),
                  .unread = unread_},
                 &log_),
        metrics_({.version = kVersion,
                  .cache = {.prefix_cache = config.on("kv_cache.prefix_cache"),
                            .dtype = config.text("kv_cache.dtype"),
                            .eviction = config.text("kv_cache.eviction")},
                  .dropped_log_lines = DroppedLinesOf(guards_.request_log.get()),
                  .unread = unread_}) {
    if (guards_.request_log != nullptr) guards_.request_log->WarnTo(&log_);
    service_.AddRoutes(&router_);
    metrics_.AddRoutes(&router_);
    if (config.on("server.debug")) debug_.AddRoutes(&router_);
  }

  ExitStatus Run() {
    const absl::Status prepared = WithThreads([&] {
      absl::Status enough = CheckOpenFiles();
      if (enough.ok()) signals_.emplace([this] { Reload(); });
      return enough;
    });
    if (!prepared.ok()) {
      log_.Error("cannot start", {{"status", std::string(prepared.message())}});
      return ExitStatus::kFailed;
    }
    // Where gRPC has not started, what it has begun may still use the log.
    if (!Listen()) Leave(ExitStatus::kFailed);
    absl::StatusOr<std::unique_ptr<engine::Engine>> loaded = nullptr;
    const auto started = Clock::now();
    std::thread loader;
    const auto load = [&] {
      engine::EngineOptions options = config_.EngineOptions();
      options.observer = metrics_.engine_observer();
      options.backend.warn = [this](std::string_view warning) { log_.Warn(warning); };
      // Its threads may be refused, too.
      const absl::Status made =
          WithThreads([&] { return (loaded = make_engine_(options)).status(); });
      if (!made.ok()) loaded = made;
      signals_->NotifyWorkDone();
    };
    const absl::Status begun = WithThreads([&] {
      loader = std::thread(load);
      return absl::OkStatus();
    });
    if (!begun.ok()) {
      loaded = begun;
    } else if (signals_->Wait() == StopSignals::Event::kSignal) {
      // A load cannot be interrupted half-way, and nothing is there that would have to be finished
      // or saved.
      log_.Info("stopped while loading");
      Leave(ExitStatus::kOk);
    }
    if (loader.joinable()) loader.join();
    if (!loaded.ok()) {
      log_.Error("cannot load the model", {{"status", std::string(loaded.status().message())}});
      StopServers(std::chrono::milliseconds(0), ExitStatus::kFailed);
      return ExitStatus::kFailed;
    }
    const std::unique_ptr<engine::Engine> engine = *std::move(loaded);
    const engine::ModelInfo& model = engine->model();
    engine_ = engine.get();
    service_.SetEngine(engine.get());
    debug_.SetEngine(engine.get());
    metrics_.SetEngine(engine.get());
    if (grpc_ != nullptr) grpc_->SetEngine(engine.get());
    const auto load_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
    if (!model.warning.empty()) log_.Warn(model.warning);
    if (config_.text("model.sampling_defaults") == "model") LogSamplingDefaults(model.sampling);
    log_.Info("ready", {{"model", model.served_name},
                        {"description", model.description},
                        {"max_context_tokens", model.max_context_tokens},
                        {"kv_capacity_tokens", engine->stats().kv_capacity_tokens},
                        {"load_ms", static_cast<int64_t>(load_ms)}});
    TellServiceManager("READY=1");
    HealthLog health(&log_);
    do {
      health.Look(engine->health());
    } while (signals_->Wait(kHealthPeriod) == StopSignals::Event::kTimeout);
    return Drain(engine.get());
  }

 private:
  void LogSamplingDefaults(const engine::SamplingParams& sampling) {
    log_.Info("sampling defaults", {{"temperature", sampling.temperature},
                                    {"top_p", sampling.top_p},
                                    {"min_p", sampling.min_p},
                                    {"top_k", sampling.top_k},
                                    {"repetition_penalty", sampling.repetition_penalty},
                                    {"presence_penalty", sampling.presence_penalty},
                                    {"frequency_penalty", sampling.frequency_penalty}});
  }

  bool Has(std::string_view listen_key) const { return !config_.text(listen_key).empty(); }

  absl::Status CheckOpenFiles() const {
    return CheckOpenFileLimit(
        open_files_, static_cast<int>(config_.integer("server.io_threads")),
        (Has("server.http_listen") ? 1 : 0) + (Has("server.grpc_listen") ? 1 : 0));
  }

  bool Listen() {
    const auto listen = [this](std::string_view key, absl::Status (Daemon::*start)()) {
      if (!Has(key)) return true;  // off
      const absl::Status status = (this->*start)();
      if (!status.ok()) {
        log_.Error("cannot listen", {{"status", Concat(key, ": ", status.message())}});
      }
      return status.ok();
    };
    if (!listen("server.http_listen", &Daemon::ListenHttp)) return false;
    if (!listen("server.grpc_listen", &Daemon::ListenGrpc)) return false;
    log_.Info("listening", {{"http", http_address_}, {"grpc", grpc_address_}});
    if (guards_.tls != nullptr) LogCertificate();
    if (AsksForKeys()) LogKeys(config_, *guards_.gate, &log_);
    return true;
  }

  bool AsksForKeys() const {
    return !config_.text("auth.keys_file").empty() || !config_.text("auth.admin_keys_file").empty();
  }

  // The one in use.
  void LogCertificate() {
    const std::string expires = guards_.tls->expires();
    if (guards_.tls->has_expired()) {
      log_.Warn("the TLS certificate has expired: clients refuse it", {{"expires", expires}});
    } else {
      log_.Info("tls", {{"expires", expires}});
    }
  }

  // SIGHUP: whatever can be read again is; what cannot stays as it was.
  void Reload() {
    const auto report = [this](std::string_view what, const absl::Status& status) {
      if (status.ok()) {
        log_.Info("reloaded", {{"what", what}});
      } else {
        log_.Error("cannot reload, the old one stays in use",
                   {{"what", what}, {"status", std::string(status.message())}});
      }
    };
    absl::StatusOr<std::vector<std::string>> removed = std::vector<std::string>();
    if (AsksForKeys()) {
      removed = guards_.gate->Reload();
      report("keys", removed.status());
      LogKeys(config_, *guards_.gate, &log_);
    }
    if (guards_.tls != nullptr) {
      report("certificate", guards_.tls->Reload());
      LogCertificate();
    }
    if (guards_.request_log != nullptr) report("request log", guards_.request_log->Reopen());
    if (removed.ok()) EndRequestsOf(*removed);  // which may take kMostWait
  }

  // What waits of keys that were removed; what runs goes on to its end.
  void EndRequestsOf(const std::vector<std::string>& names) {
    if (engine_ == nullptr || names.empty()) return;
    const engine::WaitingEnded ended =
        engine_->EndWaiting(names, access::KeyRemoved(), Clock::now() + kMostWait);
    if (!ended.status.ok()) {
      log_.Warn("not all that waited of removed keys has ended yet",
                {{"status", std::string(ended.status.message())}});
    }
    log_.Info("requests that waited ended with their keys",
              {{"names", static_cast<int64_t>(names.size())}, {"ended", ended.requests}});
  }

  absl::Status ListenHttp() {
    const auto address = ParseListenAddress(config_.text("server.http_listen"));
    if (!address.ok()) return address.status();
    http::ServerOptions options = HttpOptions(config_, *address, guards_);
    options.filter = HttpFilter(guards_, &log_);
    LimitConnections("http", &options.max_connections);
    options.connection_counts = metrics_.http_connections();
    options.on_accept_error = AcceptWarning(&log_, "http");
    options.on_exchange = [this, log = options.on_exchange](const http::Exchange& exchange) {
      metrics_.CountExchange(exchange);
      if (log) log(exchange);
    };
    options.on_part_sent = [this](std::chrono::nanoseconds delay) {
      metrics_.CountTokenToSocket(std::chrono::duration<double>(delay).count());
    };
    options.on_fault = [this](std::string_view what) {
      log_.Error("a request could not be answered", {{"fault", what}});
    };
    auto server = http::Server::Start(std::move(options), &router_);
    if (!server.ok()) return server.status();
    http_ = *std::move(server);
    http_address_ = AddressText({address->host, http_->port()});
    WarnIfOpen(*address);
    return absl::OkStatus();
  }

  void LimitConnections(std::string_view front_end, int* connections) {
    const bool shared = Has("server.http_listen") && Has("server.grpc_listen");
    const auto io_threads = static_cast<int>(config_.integer("server.io_threads"));
    const int wanted =
        std::exchange(*connections, ConnectionLimit(open_files_, io_threads, shared, *connections));
    if (*connections == wanted) return;
    log_.Warn("few files may be open at once (ulimit -Hn): fewer connections are taken",
              {{"open_files", open_files_},
               {"connections", *connections},
               {"wanted", wanted},
               {"front_end", front_end}});
  }

  absl::Status ListenGrpc() {
    const auto address = ParseListenAddress(config_.text("server.grpc_listen"));
    if (!address.ok()) return address.status();
    rpc::ServerOptions options = GrpcOptions(config_, *address);
    options.unread = unread_;
    LimitConnections("grpc", &options.max_connections);
    options.connection_counts = metrics_.grpc_connections();
    options.on_accept_error = AcceptWarning(&log_, "grpc");
    options.on_call = [this](const rpc::CallRecord& call) {
      metrics_.CountCall(call);
      if (guards_.request_log != nullptr) LogCall(call, guards_.request_log.get());
    };
    options.on_message_sent = [this](std::chrono::nanoseconds delay) {
      metrics_.CountTokenToSocket(std::chrono::duration<double>(delay).count());
    };
    options.on_answers = [this](bool answers) { service_.SetGrpcAnswers(answers); };
    auto server = rpc::Server::Start(options, guards_.gate.get(), &log_);
    if (!server.ok()) return server.status();
    grpc_ = *std::move(server);
    grpc_address_ = AddressText({address->host, grpc_->port()});
    WarnIfOpen(*address);
    return absl::OkStatus();
  }

  void WarnIfOpen(const ListenAddress& address) {
    if (!config_.text("auth.keys_file").empty() || access::IsLoopback(address.host)) return;
    log_.Warn("everyone who reaches the port may call: no auth.keys_file",
              {{"address", AddressText(address)}});
  }

  // Waits until the answers that are under way have been sent; false when some have not.
  bool WaitUntilAnswered(Clock::time_point deadline) {
    const bool http_answered = http_ == nullptr || http_->WaitUntilAnswered(deadline);
    return (grpc_ == nullptr || grpc_->WaitUntilAnswered(deadline)) && http_answered;
  }

  // The last that is done but for what destructors do, and nobody waits for a signal any more. What
  // a library does not end is not waited for without end.
  void StopServers(std::chrono::milliseconds grace, ExitStatus status) {
    signals_->EndWithin(kMostEnd, [this, status](StopSignals::Event event) {
      if (event == StopSignals::Event::kSignal) ::_exit(static_cast<int>(status));
      log_.Error("the end takes too long, and is given up",
                 {{"limit_s", std::chrono::duration<double>(kMostEnd).count()},
                  {"waits_for", std::string_view(ending_)}});
      ::_exit(static_cast<int>(status));
    });
    if (http_ != nullptr) http_->Stop(grace);
    ending_ = "gRPC";
    if (grpc_ != nullptr) grpc_->Stop(grace);
    ending_ = "the engine";
  }

  ExitStatus Drain(engine::Engine* engine) {
    const double drain_s = config_.seconds("limits.drain_s");
    log_.Info("draining", {{"limit_s", drain_s},
                           {"running", engine->stats().running_sequences},
                           {"queued", engine->stats().queued_requests}});
    TellServiceManager("STOPPING=1");
    service_.SetDraining();
    if (http_ != nullptr) http_->BeginDrain();
    if (grpc_ != nullptr) grpc_->BeginDrain();
    const Clock::time_point begin = Clock::now();
    const Clock::time_point deadline = begin + Milliseconds(drain_s);
    const Clock::time_point notice = begin + Milliseconds(config_.seconds("limits.drain_notice_s"));
    std::atomic<bool> finished{false};
    std::atomic<bool> cut{false};  // what ran at the deadline
    std::atomic<bool> interrupted{false};
    const auto wait_for_work = [&] {
      bool answered = false;
      if (engine->Drain(deadline)) {
        // The engine is done long before a client that reads slowly has its answer.
        answered = WaitUntilAnswered(std::max(deadline, Clock::now() + kWriteGrace));
      } else {
        cut = true;
        engine->Abandon();
      }
      // Whoever sends requests here needs time to see that /ready says 503.
      while (!interrupted && Clock::now() < notice) std::this_thread::sleep_for(kNoticePeriod);
      // In which a client that reads slowly may have got its answer after all.
      finished = answered || (!cut && WaitUntilAnswered(Clock::now()));
      signals_->NotifyWorkDone();
    };
    std::thread waiter;
    const absl::Status begun = WithThreads([&] {
      waiter = std::thread(wait_for_work);
      return absl::OkStatus();
    });
    if (!begun.ok()) wait_for_work();  // a second signal is heard when the work is done
    interrupted = signals_->Wait() == StopSignals::Event::kSignal;
    // A second signal may come when the last answer is out and only its end not noted yet. What was
    // cut has ended, too: that is looked at last.
    const bool complete = interrupted ? engine->Drain(Clock::now()) &&
                                            WaitUntilAnswered(Clock::now() + kLastNote) && !cut
                                      : finished.load();
    if (!complete) {
      // A step of a large model may take seconds, and is not waited for.
      engine->Abandon();
      WaitUntilAnswered(Clock::now() + kLastWords);
    }
    // Closing the connections cancels what still runs, which also ends the waiter soon.
    const ExitStatus status = complete ? ExitStatus::kOk : ExitStatus::kInterrupted;
    StopServers(complete && !interrupted ? kWriteGrace : std::chrono::milliseconds(0), status);
    if (waiter.joinable()) waiter.join();
    log_.Info("stopped", {{"finished_all", complete ? "yes" : "no"}});
    if (!complete) {
      // Nobody is left to be told anything. gRPC would wait up to 10 s for what it still holds of
      // clients that did not read.
      Leave(status);
    }
    return status;
  }

  // Without what destructors wait for.
  [[noreturn]] void Leave(ExitStatus status) {
    if (guards_.request_log != nullptr) guards_.request_log->Close();
    ::_exit(static_cast<int>(status));
  }

  const Config& config_;
  const EngineFactory& make_engine_;
  Log log_;
  std::atomic<const char*> ending_{"HTTP"};  // what the end waits for
  std::optional<StopSignals> signals_;       // before all whose end it limits
  engine::Engine* engine_ = nullptr;         // once it is loaded, while signals are heard
  const Guards guards_;                      // outlive what they guard
  const int64_t open_files_;
  const std::shared_ptr<UnreadAnswers> unread_ =
      UnreadAnswers::Make(static_cast<size_t>(config_.integer("limits.unread_bytes")));
  openai::Service service_;
  debug::DebugEndpoints debug_;
  metrics::Metrics metrics_;
  http::Router router_;
  // They outlive the engine, whose streams may still wake them.
  std::unique_ptr<http::Server> http_;  // null: off
  std::unique_ptr<rpc::Server> grpc_;   // null: off
  std::string http_address_ = "off";
  std::string grpc_address_ = "off";
};

}  // namespace

ExitStatus RunDaemon(std::span<const char* const> arguments, const EngineFactory& make_engine) {
  OccupyStandardFiles();
  // Before the first thread, so that all inherit them, and before anything that takes time: a
  // reload that comes then waits instead of ending the daemon.
  BlockStopSignals();
  EnlargeThreadStacks();
  if (!arguments.empty() && std::string_view(arguments[0]) == "make-key") {
    const absl::StatusOr<std::string> key = access::RunMakeKey(arguments.subspan(1));
    if (!key.ok()) {
      std::fprintf(stderr, "refraind: %s\n", std::string(key.status().message()).c_str());
      return ExitStatus::kBadUsage;
    }
    if (std::puts(key->c_str()) < 0 || std::fflush(stdout) != 0) {
      std::fprintf(stderr, "refraind: cannot print the key; remove the last line of its file\n");
      return ExitStatus::kBadUsage;
    }
    return ExitStatus::kOk;
  }
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
    case CommandLine::Action::kServe:
      break;
  }
  const bool checks_only = line->action == CommandLine::Action::kCheckConfig;
  // Before the first file that stays open.
  const int64_t open_files = RaiseOpenFileLimit();
  absl::StatusOr<Guards> guards = MakeGuards(line->config, !checks_only);
  if (!guards.ok()) {
    std::fprintf(stderr, "refraind: %s\n", std::string(guards.status().message()).c_str());
    const bool refused = guards.status().code() == absl::StatusCode::kResourceExhausted;
    return refused ? ExitStatus::kFailed : ExitStatus::kBadUsage;
  }
  if (checks_only) {
    std::puts("configuration ok");
    return ExitStatus::kOk;
  }
  return Daemon(line->config, make_engine, *std::move(guards), open_files).Run();
}

}  // namespace refrain::server
