#include "server/http/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"
#include "server/concat.h"
#include "server/http/connection.h"
#include "server/http/handler_memory.h"
#include "server/listening_sockets.h"
#include "server/task_queue.h"
#include "server/time_slice.h"
#include "server/wakeup_queue.h"
#include "server/with_threads.h"

namespace refrain::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// The operation has its memory there.
auto AwaitIn(HandlerMemory* memory) {
  return asio::bind_allocator(HandlerAllocator<void*>(memory), asio::as_tuple(asio::use_awaitable));
}

constexpr std::chrono::milliseconds kAcceptPause{50};  // after running out of descriptors
// An idle connection leaves in far less than a pause. Nobody else is accepted meanwhile.
constexpr std::chrono::milliseconds kRoomPause{1};
constexpr int kRoomPauses = 10;
constexpr int kPartToEnd = 100;  // of what may be open, a hundredth at a time
constexpr std::chrono::milliseconds kRoomTime{50};
constexpr int kMostUnsentBytes = 128 << 10;              // beyond what the client's window takes
constexpr std::chrono::milliseconds kAnswersPeriod{10};  // of looking whether all are sent
constexpr int kProbePeriodSeconds = 5;                   // of asking a silent client again
constexpr int kMostProbes = 127;                         // TCP_KEEPCNT
// For telling those whose bodies the end cuts short, also where nobody is given any time.
constexpr std::chrono::milliseconds kLastWords{100};

// The loop's queue of timers has room for one more behind it. A wait that finds none there destroys
// who waits; here the refusal is the caller's exception.
void MakeRoomForTimer(asio::io_context* context) {
  asio::steady_timer timer(*context, std::chrono::hours(1));
  timer.async_wait([](const error_code&) {});
}

void SetOptions(const ServerOptions& options, int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A client that does not read costs this much of the kernel's memory and not megabytes.
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostUnsentBytes);
  // One that vanished (no power, no network) sends nothing more, not even the end of its
  // connection: its request would run to the end, and take the place of others.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(options.probe_after.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbePeriodSeconds);
  // Nobody is asked while something is outstanding: StallWatch sees to that.
  const auto probing =
      std::chrono::ceil<std::chrono::seconds>(options.write_timeout) - options.probe_after;
  const auto probes = static_cast<int>(probing.count() / kProbePeriodSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::clamp(probes, 1, kMostProbes));
}

}  // namespace

struct Server::Impl {
  // One thread, its event loop, and the connections that live on it (touched by it alone).
  struct IoThread {
    // Opens the loop's files, which the first socket would: at the start somebody can be told that
    // there are none. Throws boost::system::system_error.
    IoThread() { tcp::socket opening(context); }

    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    WakeupQueue wakeups{
        [this](std::function<void()> work) { asio::post(context, std::move(work)); }};
    std::unordered_set<std::shared_ptr<Connection>> connections;
    std::thread thread;
  };

  // One of the connections that are counted.
  struct Leave {
    void operator()(Impl* impl) const {
      MutexLock lock(impl->mutex);
      --impl->connections;
      impl->fewer_connections.NotifyAll();
    }
  };
  using Slot = std::unique_ptr<Impl, Leave>;

  Impl(ServerOptions options_in, const Router* router_in)
      : options(std::move(options_in)),
        router(*router_in),
        workers(options.worker_threads, TaskQueue::Tasks::kLong),
        shared{.options = options,
               .router = router,
               .workers = workers,
               .probes = probes,
               .waits = waits,
               .bodies = std::make_shared<ByteBudget>(options.bodies_bytes)} {
    for (int i = 0; i < options.io_threads; ++i) io.push_back(std::make_unique<IoThread>());
  }
  ~Impl() { EndThreads(); }

  absl::Status Listen();
  // Throws where the system refuses a thread.
  void StartThreads();
  // Those that were started; idempotent.
  void EndThreads();
  asio::awaitable<void> Accept(tcp::acceptor* acceptor);
  void CountAcceptError(int error);
  IoThread* NextHome();  // on io[0]'s thread, once it runs
  // Until it is stopped. What a handler throws (there was no memory for it) costs its connection
  // and not the daemon.
  void RunLoop(asio::io_context* context);
  // On io[0]'s thread: those that wait to be accepted are, then nobody any more.
  void AcceptTheLast();
  // On io[0]'s thread: where there are too many, those that idle longest are ended until one has
  // left.
  asio::awaitable<void> MakeRoom(asio::steady_timer* pause, HandlerMemory* memory);
  bool IsFull();
  // It gets a connection on the I/O thread `home`, or is turned away where there are too many.
  void Admit(IoThread* home, tcp::socket socket);
  // A client that is lost for want of memory is the only one.
  void Start(IoThread* home, tcp::socket socket);
  asio::awaitable<void> Serve(IoThread* home, Slot slot, std::shared_ptr<Connection> connection);
  void TurnAway(tcp::socket socket);
  void ForEachConnection(void (Connection::*action)());
  bool WaitUntilNoConnections(std::chrono::steady_clock::time_point deadline);

  const ServerOptions options;
  const Router& router;
  std::vector<std::unique_ptr<IoThread>> io;
  // Its threads end before the event loops do: one may still be leaving the call that brought an
  // answer back when the answer has been sent.
  TaskQueue workers;
  TaskQueue probes{1, TaskQueue::Tasks::kShort};
  TaskQueue waits{1, TaskQueue::Tasks::kLong};
  Connection::Shared shared;
  std::vector<tcp::acceptor> acceptors;      // live on io[0]
  std::vector<std::future<void>> accepting;  // each is there when its acceptor is closed
  size_t next_home = 0;
  uint16_t port = 0;
  bool stopped = false;

  mutable Mutex mutex;
  ConditionVariable fewer_connections;
  int connections REFRAIN_GUARDED_BY(mutex) = 0;
};

absl::Status Server::Impl::Listen() {
  const auto failed = [&](std::string_view why) {
    return absl::UnavailableError(
        Concat("cannot listen on ", options.host, ":", options.port, ": ", why));
  };
  auto sockets = ListenAt(options.host, options.port);
  if (!sockets.ok()) return failed(std::string(sockets.status().message()));
  for (ListeningSocket& socket : *sockets) {
    port = socket.port();
    error_code error;
    acceptors.emplace_back(io[0]->context)
        .assign(socket.family() == AF_INET6 ? tcp::v6() : tcp::v4(), socket.get(), error);
    if (!error) acceptors.back().non_blocking(true, error);
    // Else Asio would wait for another client, and its thread's connections with it.
    if (!error) {
      acceptors.back().set_option(asio::socket_base::enable_connection_aborted(true), error);
    }
    if (error) return failed(error.message());
    socket.Release();
  }
  return absl::OkStatus();
}

void Server::Impl::StartThreads() {
  for (const auto& home : io) {
    home->thread = std::thread([this, home = home.get()] {
      AskForShortTimeSlice();
      RunLoop(&home->context);
    });
  }
  // Behind the last one: there are connections only where all is there that they need.
  for (tcp::acceptor& acceptor : acceptors) {
    accepting.push_back(asio::co_spawn(io[0]->context, Accept(&acceptor), asio::use_future));
  }
}

void Server::Impl::EndThreads() {
  for (const auto& home : io) {
    home->work.reset();
    home->context.stop();
    if (home->thread.joinable()) home->thread.join();
  }
}

Server::Impl::IoThread* Server::Impl::NextHome() { return io[next_home++ % io.size()].get(); }

asio::awaitable<void> Server::Impl::Accept(tcp::acceptor* acceptor) {
  HandlerMemory memory;
  while (acceptor->is_open()) {
    IoThread* home = NextHome();
    try {
      asio::steady_timer pause(io[0]->context);
      // Not async_accept, and nothing waits without memory of its own: where there is none for the
      // connection, or for waiting, Asio destroys who waits, which is this frame, and nobody
      // accepts any more.
      auto [error] = co_await acceptor->async_wait(tcp::acceptor::wait_read, AwaitIn(&memory));
      tcp::socket socket(home->context);
      if (!error) acceptor->accept(socket, error);
      if (error == asio::error::would_block || error == asio::error::connection_aborted) continue;
      if (!error) {
        co_await MakeRoom(&pause, &memory);
        Admit(home, std::move(socket));
        continue;
      }
      if (!acceptor->is_open()) co_return;
      if (IsShortage(error.value())) CountAcceptError(error.value());
      pause.expires_after(kAcceptPause);
      MakeRoomForTimer(&io[0]->context);
      co_await pause.async_wait(AwaitIn(&memory));
    } catch (const std::bad_alloc&) {
      CountAcceptError(ENOMEM);
      // Nor is there any for waiting in another way.
      std::this_thread::sleep_for(kAcceptPause);
    }
  }
}

void Server::Impl::CountAcceptError(int error) {
  ++options.connection_counts->accept_errors;
  if (!options.on_accept_error) return;
  try {
    options.on_accept_error(error);
  } catch (const std::exception&) {
    return;  // there is no memory for telling it either
  }
}

asio::awaitable<void> Server::Impl::MakeRoom(asio::steady_timer* pause, HandlerMemory* memory) {
  const auto latest = std::chrono::steady_clock::now() + kRoomTime;
  while (IsFull() && std::chrono::steady_clock::now() < latest) {
    const auto idle_since = std::chrono::steady_clock::now() - options.place_kept;
    // Several at a time: each time takes a pause, in which nobody else is accepted.
    const int most = std::max(1, options.max_connections / kPartToEnd);
    int ended = 0;
    for (; ended < most; ++ended) {
      std::shared_ptr<Connection> idlest = shared.idle.Take(idle_since);
      if (idlest == nullptr) break;
      Connection::EndIfIdle(std::move(idlest), idle_since);
    }
    if (ended == 0) co_return;
    // One that gets a request just then stays, and it is the next one's turn.
    for (int i = 0; i < kRoomPauses && IsFull(); ++i) {
      pause->expires_after(kRoomPause);
      MakeRoomForTimer(&io[0]->context);
      co_await pause->async_wait(AwaitIn(memory));
    }
  }
}

bool Server::Impl::IsFull() {
  MutexLock lock(mutex);
  return connections >= options.max_connections;
}

void Server::Impl::RunLoop(asio::io_context* context) {
  while (true) {
    try {
      context->run();
      return;
    } catch (const std::exception& fault) {
      if (!options.on_fault) continue;
      try {
        options.on_fault(fault.what());
      } catch (const std::exception&) {
        continue;  // there is no memory for telling it either
      }
    }
  }
}

void Server::Impl::AcceptTheLast() {
  for (tcp::acceptor& acceptor : acceptors) {
    error_code error;
    try {
      while (!error || error == asio::error::connection_aborted) {
        IoThread* home = NextHome();
        tcp::socket socket(home->context);
        acceptor.accept(socket, error);
        if (!error) Admit(home, std::move(socket));
      }
    } catch (const std::bad_alloc&) {
      CountAcceptError(ENOMEM);
    }
    acceptor.close(error);
  }
}

void Server::Impl::Admit(IoThread* home, tcp::socket socket) {
  SetOptions(options, socket.native_handle());
  bool full = false;
  {
    MutexLock lock(mutex);
    full = connections >= options.max_connections;
    if (!full) ++connections;
  }
  ++(full ? options.connection_counts->refused : options.connection_counts->accepted);
  if (full) return TurnAway(std::move(socket));
  Start(home, std::move(socket));
}

void Server::Impl::Start(IoThread* home, tcp::socket socket) {
  Slot slot(this);
  try {
    auto connection = std::make_shared<Connection>(std::move(socket), &shared, &home->wakeups);
    asio::co_spawn(home->context, Serve(home, std::move(slot), std::move(connection)),
                   asio::detached);
  } catch (const std::exception&) {
    CountAcceptError(ENOMEM);
  }
}

asio::awaitable<void> Server::Impl::Serve(IoThread* home, Slot slot,
                                          std::shared_ptr<Connection> connection) {
  // Also where this frame is destroyed because a handler had no memory.
  struct Entry {
    IoThread* home;
    std::shared_ptr<Connection> connection;
    ~Entry() { home->connections.erase(connection); }
  };
  Entry entry{home, std::move(connection)};
  std::optional<asio::awaitable<void>> run;
  try {
    home->connections.insert(entry.connection);
    run.emplace(entry.connection->Run());
  } catch (const std::bad_alloc&) {
    // Not CountAcceptError, which is for io[0]'s thread.
    ++options.connection_counts->accept_errors;
    co_return;
  }
  co_await *std::move(run);
}

// One send that does not wait: a client that cannot take 200 bytes gets nothing, nor does one that
// would have to be greeted with TLS first.
void Server::Impl::TurnAway(tcp::socket socket) try {
  if (options.tls != nullptr) return;
  ReplyFramer framer({.request_id = MakeRequestId(), .keep_alive = false});
  ReplyPart part;
  part.head = ResponseHead{.status = 503, .headers = {{"Retry-After", "1"}}};
  part.body =
      options.error_body(503, Concat("too many connections (", options.max_connections, ")"));
  part.last = true;
  const std::string bytes = framer.Frame(part);
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
} catch (const std::exception&) {
  return;  // there was no memory for an answer
}

void Server::Impl::ForEachConnection(void (Connection::*action)()) {
  for (const auto& thread : io) {
    asio::post(thread->context, [home = thread.get(), action] {
      for (const auto& connection : home->connections) (connection.get()->*action)();
    });
  }
}

bool Server::Impl::WaitUntilNoConnections(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex);
  while (connections > 0) {
    if (!fewer_connections.WaitUntil(mutex, deadline)) return connections == 0;
  }
  return true;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Stop(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, const Router* router) {
  std::unique_ptr<Impl> impl;
  const absl::Status started = WithThreads([&] {
    try {
      impl = std::make_unique<Impl>(std::move(options), router);
    } catch (const boost::system::system_error& refused) {
      throw std::system_error(refused.code());
    }
    absl::Status status = impl->Listen();
    if (status.ok()) impl->StartThreads();
    return status;
  });
  if (!started.ok()) return started;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->port; }

int Server::connections() const {
  MutexLock lock(impl_->mutex);
  return impl_->connections;
}

void Server::BeginDrain() { impl_->shared.draining = true; }

bool Server::WaitUntilAnswered(std::chrono::steady_clock::time_point deadline) const {
  const Connection::Shared& shared = impl_->shared;
  // In this order: a request is counted as an answer before it is no upload any more.
  while (shared.uploads > 0 || shared.answers > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return shared.answers == 0;
    std::this_thread::sleep_for(kAnswersPeriod);
  }
  return true;
}

void Server::Stop(std::chrono::milliseconds grace) {
  if (impl_->stopped) return;
  impl_->stopped = true;
  BeginDrain();
  std::promise<void> closed;
  asio::post(impl_->io[0]->context, [impl = impl_.get(), &closed] {
    // Also where something is thrown: it is waited for.
    struct Closed {
      std::promise<void>* closed;
      ~Closed() { closed->set_value(); }
    };
    const Closed at_the_end{&closed};
    impl->AcceptTheLast();
  });
  // Whoever was accepted counts below.
  closed.get_future().wait();
  for (const std::future<void>& last : impl_->accepting) last.wait();
  // Who has just connected, or kept a connection in use, is about to send: closed before, it would
  // not know whether it was heard.
  impl_->WaitUntilNoConnections(std::chrono::steady_clock::now() +
                                std::min(grace, impl_->options.last_requests));
  impl_->shared.stopping = true;
  impl_->ForEachConnection(&Connection::EndReading);
  if (!impl_->WaitUntilNoConnections(std::chrono::steady_clock::now() +
                                     std::max(grace, kLastWords))) {
    // A connection that was accepted meanwhile may not be in its set yet: ask again until all are
    // gone. A handler on a worker thread delays its own connection only.
    do {
      impl_->ForEachConnection(&Connection::CloseNow);
    } while (!impl_->WaitUntilNoConnections(std::chrono::steady_clock::now() +
                                            std::chrono::milliseconds(20)));
  }
  impl_->EndThreads();
}

}  // namespace refrain::server::http
