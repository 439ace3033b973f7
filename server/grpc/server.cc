#include "server/grpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/credentials.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/library_log.h"
#include "server/grpc/library_threads.h"
#include "server/grpc/listener.h"
#include "server/grpc/reception.h"
#include "server/grpc/reflection.h"
#include "server/grpc/self_check.h"
#include "server/with_threads.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// So often the health service is told whether the engine lives, and stalled calls are looked for.
constexpr std::chrono::milliseconds kWatchPeriod{250};
// So long gRPC may take to close connections that have ended.
constexpr std::chrono::milliseconds kLastBytes{100};
// A client that vanished without a word is noticed after these two together.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// With a state of health; "" is that of the whole server.
constexpr const char* kServices[] = {"", "refrain.v1.Inference", "refrain.v1.Admin"};

// gRPC knows this only as a switch of the whole process.
void EnableHealth() {
  static std::once_flag once;
  std::call_once(once, [] { ::grpc::EnableDefaultHealthCheckService(true); });
}

// gRPC inflates a message as a whole before it looks at its size, uncounted: 1 MB from a stranger
// would take 1 GiB.
void RefuseCompression(::grpc::ServerBuilder* builder) {
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

// An end of a connection by its age cuts no call off that is within its own limits.
void LimitConnections(const ServerOptions& options, ::grpc::ServerBuilder* builder) {
  const auto ms = [](std::chrono::milliseconds time) {
    return static_cast<int>(std::min<int64_t>(time.count(), std::numeric_limits<int>::max()));
  };
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ms(options.handshake_timeout));
  if (options.idle_timeout.count() > 0) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, ms(options.idle_timeout));
  }
  if (options.max_age.count() > 0) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, ms(options.max_age));
    if (options.call_timeout.count() > 0) {
      builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                                  ms(options.call_timeout + options.grace));
    }
  }
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Clients ping so that proxies keep the connection of a call that is queued, or of the next one.
  // gRPC's own least, of five minutes, and of two hours where there is no call, would end all of
  // the connection's calls for that.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              ms(options.ping_interval));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.header_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_per_connection);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, access::Gate* gate, Log* log)
      : log_(log),
        library_log_(log),
        last_requests_(options.last_requests),
        reception_({.max_choices = options.max_choices,
                    .max_beams = options.max_beams,
                    .stream_threads = options.stream_threads,
                    .messages_bytes = options.messages_bytes,
                    .write_timeout = options.write_timeout,
                    .unread = options.unread,
                    .log_prompts = options.log_prompts,
                    .isolates_keys = options.isolates_keys,
                    .on_call = options.on_call,
                    .on_message_sent = options.on_message_sent},
                   gate, log),
        inference_(MakeInferenceService(&reception_)),
        admin_(MakeAdminService(&reception_)),
        reflection_(MakeReflection(&reception_)) {}

  absl::Status Listen(const ServerOptions& options) {
    RehearseLibraryThreads();
    EnableHealth();
    absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(options.host, options.port);
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    auto credentials = MakeCredentials(options.tls_cert_file, options.tls_key_file, log_);
    if (!credentials.ok()) return credentials.status();
    credentials_ = *std::move(credentials);
    ::grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
    own_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        ::grpc::InsecureServerCredentials());
    LimitConnections(options, &builder);
    RefuseCompression(&builder);
    builder.SetResourceQuota(::grpc::ResourceQuota("refrain").Resize(options.memory_bytes));
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes));
    for (const auto* service : {&inference_, &admin_}) builder.RegisterService(service->get());
    for (const auto& service : reflection_) builder.RegisterService(service.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC did not start");
    StartLibraryThreads();
    NameServices();
    connection_counts_ = options.connection_counts;
    watcher_ = std::thread([this] { Watch(); });
    self_check_ = std::make_unique<SelfCheck>(
        SelfCheck::Options{.period = options.self_check_period,
                           .patience = options.self_check_patience},
        [this](int socket) { HandOver(socket, own_acceptor_.get()); },
        [this, tell = options.on_answers](bool answers) { ShowAnswers(answers, tell); });
    listener_->Start(options.max_connections, connection_counts_.get(),
                     {.take = [this](int socket) { HandOver(socket, acceptor_.get()); },
                      .on_accept_error = options.on_accept_error});
    return absl::OkStatus();
  }

  ~Impl() { Stop(std::chrono::milliseconds(0)); }

  uint16_t port() const { return listener_->port(); }

  void SetEngine(engine::Engine* engine) {
    reception_.SetEngine(engine);
    MutexLock lock(mutex_);
    engine_ = engine;
    if (!draining_) ShowServing(engine->health().ok());
  }

  void BeginDrain() {
    {
      MutexLock lock(mutex_);
      draining_ = true;
      if (server_ != nullptr) ShowServing(false);
    }
    // Last: who is refused and looks for another server does not find that this one serves.
    reception_.SetDraining();
  }

  bool WaitUntilAnswered(Clock::time_point deadline) { return reception_.WaitUntilEmpty(deadline); }

  void Stop(std::chrono::milliseconds grace) {
    BeginDrain();
    if (server_ == nullptr) return;
    const bool finished = WaitUntilAnswered(Clock::now() + grace);
    EndWatch();
    listener_->Stop();
    // Calls that come from here on are answered while it has not begun to shut down, and cancelled
    // afterwards.
    if (!finished ||
        !listener_->WaitUntilNoConnections(Clock::now() + std::min(grace, last_requests_))) {
      // Also where calls are left: the library waits for what it is writing to a client, who may
      // not be reading.
      listener_->ShutDownConnections();
      listener_->WaitUntilNoConnections(Clock::now() + kLastBytes);
    }
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_.reset();
  }

 private:
  using Acceptor = ::grpc::experimental::ExternalConnectionAcceptor;

  static void HandOver(int socket, Acceptor* acceptor) {
    Acceptor::NewConnectionParameters connection;
    connection.fd = socket;
    acceptor->HandleNewConnection(&connection);
  }

  void ShowAnswers(bool answers, const std::function<void(bool answers)>& tell) {
    if (answers) {
      log_->Info("gRPC answers again");
    } else {
      log_->Error("gRPC does not answer: the daemon should be restarted");
    }
    if (tell) tell(answers);
    MutexLock lock(mutex_);
    answers_ = answers;
    if (!answers) ShowServing(false);
  }

  // None of them serves before there is an engine.
  void NameServices() { SetServing(false); }

  // gRPC sends what it is told to everybody who watches, also where nothing has changed.
  void ShowServing(bool serving) REFRAIN_REQUIRES(mutex_) {
    serving = serving && answers_;
    if (serving == shown_serving_) return;
    shown_serving_ = serving;
    SetServing(serving);
  }

  // Ours by name: without one it would be of everything that anybody has asked for, too.
  void SetServing(bool serving) {
    auto* const health = server_->GetHealthCheckService();
    for (const char* service : kServices) health->SetServingStatus(service, serving);
  }

  void Watch() {
    for (;;) {
      {
        MutexLock lock(mutex_);
        if (stops_watching_) return;
        if (engine_ != nullptr && !draining_) ShowServing(engine_->health().ok());
      }
      // A drain does not wait for what calls do at their end, nor for the log.
      reception_.EndStalled();
      MutexLock lock(mutex_);
      if (!stops_watching_) changed_.WaitUntil(mutex_, Clock::now() + kWatchPeriod);
    }
  }

  void EndWatch() {
    self_check_.reset();
    {
      MutexLock lock(mutex_);
      stops_watching_ = true;
      changed_.NotifyAll();
    }
    if (watcher_.joinable()) watcher_.join();
  }

  Log* const log_;
  const LibraryLog library_log_;
  const std::chrono::milliseconds last_requests_;
  Reception reception_;
  const std::unique_ptr<::grpc::Service> inference_;
  const std::unique_ptr<::grpc::Service> admin_;
  const std::vector<std::unique_ptr<::grpc::Service>> reflection_;
  std::shared_ptr<ConnectionCounts> connection_counts_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<::grpc::ServerCredentials> credentials_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Acceptor> own_acceptor_;  // without TLS, for nobody else
  std::unique_ptr<::grpc::Server> server_;
  Mutex mutex_;
  ConditionVariable changed_;
  const engine::Engine* engine_ REFRAIN_GUARDED_BY(mutex_) = nullptr;  // null while it loads
  bool draining_ REFRAIN_GUARDED_BY(mutex_) = false;
  bool shown_serving_ REFRAIN_GUARDED_BY(mutex_) = false;
  bool answers_ REFRAIN_GUARDED_BY(mutex_) = true;  // as its self-check finds
  bool stops_watching_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
  std::unique_ptr<SelfCheck> self_check_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      access::Gate* gate, Log* log) {
  // A client whose text is no UTF-8 is told so; Protobuf would write a line to stderr for each, of
  // its own form and without end.
  google::protobuf::SetLogHandler(nullptr);
  std::unique_ptr<Impl> impl;
  const absl::Status started = WithThreads([&] {
    impl = std::make_unique<Impl>(options, gate, log);
    return impl->Listen(options);
  });
  if (absl::IsResourceExhausted(started) || absl::IsInternal(started)) {
    // The library waits as it ends for every thread that it has asked for, also for one that it did
    // not get: for ever, and where somebody waits for the reason.
    [[maybe_unused]] const Impl* const left = impl.release();
  }
  if (!started.ok()) return started;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->port(); }
void Server::SetEngine(engine::Engine* engine) { impl_->SetEngine(engine); }
void Server::BeginDrain() { impl_->BeginDrain(); }
bool Server::WaitUntilAnswered(std::chrono::steady_clock::time_point deadline) {
  return impl_->WaitUntilAnswered(deadline);
}
void Server::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }

}  // namespace refrain::server::rpc
