// A server that does nothing but answer: completions of as many equal tokens as were asked for,
// over HTTP/1.1 with server-sent events, from one thread. For tests of loadgen, and to measure it
// without a model in the way. It is no HTTP server: it believes what loadgen sends.
//
//   trivial_responder [--port=N] [--token-delay-us=N] [--together] [--log=FILE] [--times=FILE]
//                     [--no-ids] [--vocabulary=N] [--no-usage] [--no-metrics] [--fail=KIND]
//                     [--fail-every=N]
//
// --token-delay-us  before each token; 0: all at once
// --together        all tokens in one write instead of one each
// --log             bodies of the requests, one a line
// --times           when each request for a stream was there, in us, one a line
// --no-ids          prompts of token ids are refused, and answers have none
// --vocabulary      prompts of token ids from N on are refused
// --no-usage        answers end without usage, and tokens have no ids
// --no-metrics      /metrics has no answer
// --fail            status:CODE, break:N (closes after N tokens), error:N (error event after N),
//                   hang (no answer), garbage (no HTTP), empty (no token), close[:MS] (no
//                   byte, the connection ends at once or MS later),
//                   abort:N (ends after N tokens with that finish_reason), short:N (with another)
// --fail-every      which requests fail: 1 all, 2 every second, ...
//
// Prints "listening PORT". Ends on SIGTERM.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint16_t port = 0;
  int64_t token_delay_us = 0;
  bool together = false;
  bool no_ids = false;
  bool no_usage = false;
  bool no_metrics = false;
  int64_t vocabulary = INT64_MAX;
  std::string fail;
  int64_t fail_count = 0;  // behind the colon of --fail
  int64_t fail_every = 1;
  std::string log;
  std::string times;
};

struct Connection {
  uint64_t serial = 0;  // a file descriptor comes again, this does not
  std::string received;
  bool answering = false;
  bool chat = false;
  int64_t tokens = 0;
  int64_t sent = 0;
  int64_t prompt_tokens = 0;
  std::string fail;
};

struct Due {
  Clock::time_point at;
  int fd = -1;
  uint64_t serial = 0;
  bool operator>(const Due& other) const { return at > other.at; }
};

std::string Chunk(std::string_view data) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return std::string(size).append(data).append("\r\n");
}

std::string Event(std::string_view json) {
  return Chunk(std::string("data: ").append(json).append("\n\n"));
}

std::string TokenEvent(const Connection& connection, bool has_ids, bool last) {
  std::string json = R"({"id":"cmpl-1","object":"text_completion","created":1,"model":"trivial",)";
  json += R"("choices":[{"index":0,)";
  json += connection.chat ? R"("delta":{"content":" tok"})" : R"("text":" tok")";
  if (has_ids && !connection.chat) json += R"(,"token_ids":[7])";
  json += R"(,"logprobs":null,"finish_reason":)";
  if (last) {
    json += connection.fail == "abort" ? R"("abort"}]})" : R"("length"}]})";
  } else {
    json += "null}]}";
  }
  return Event(json);
}

std::string UsageEvent(const Connection& connection) {
  const std::string prompt = std::to_string(connection.prompt_tokens);
  const std::string cached = std::to_string(connection.prompt_tokens / 2);
  return Event(R"({"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":)" + prompt +
               R"(,"completion_tokens":)" + std::to_string(connection.sent) +
               R"(,"total_tokens":0,"prompt_tokens_details":{"cached_tokens":)" + cached + "}}}");
}

int64_t NumberBehind(std::string_view text, std::string_view name, int64_t otherwise) {
  const size_t at = text.find(name);
  return at == std::string_view::npos
             ? otherwise
             : std::atoll(std::string(text.substr(at + name.size(), 20)).c_str());
}

std::string Whole(int status, std::string_view body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " Status\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

class Responder {
 public:
  explicit Responder(const Options& options) : options_(options) {
    if (!options.log.empty()) log_.open(options.log);
    if (!options.times.empty()) times_.open(options.times);
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(options.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(listener_, 1024) != 0) {
      std::perror("trivial_responder: listen");
      std::exit(2);
    }
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    std::printf("listening %d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    epoll_ = ::epoll_create1(0);
    Watch(listener_);
  }

  [[noreturn]] void Run() {
    for (;;) {
      epoll_event events[256];
      timespec wait = {.tv_sec = 1, .tv_nsec = 0};
      if (!due_.empty()) {
        const auto left = std::max(Clock::duration::zero(), due_.top().at - Clock::now());
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
        wait = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
      }
      const int count = ::epoll_pwait2(epoll_, events, 256, &wait, nullptr);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.fd == listener_) {
          Accept();
        } else {
          Receive(events[i].data.fd);
        }
      }
      while (!due_.empty() && due_.top().at <= Clock::now()) {
        const Due due = due_.top();
        due_.pop();
        const auto found = connections_.find(due.fd);
        if (found != connections_.end() && found->second.serial == due.serial) {
          Advance(due.fd, &found->second);
        }
      }
    }
  }

 private:
  void Watch(int fd) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void Accept() {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connections_[fd] = {};
    connections_[fd].serial = ++last_serial_;
    Watch(fd);
  }

  void Close(int fd) {
    connections_.erase(fd);
    ::close(fd);
  }

  void Send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // reading tells of the end
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  void Receive(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    char piece[65536];
    const ssize_t bytes = ::recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (bytes <= 0) return Close(fd);
    connection.received.append(piece, static_cast<size_t>(bytes));
    if (!connection.answering) Begin(fd, &connection);
  }

  // Starts to answer when the request is whole.
  void Begin(int fd, Connection* connection) {
    const size_t head_end = connection->received.find("\r\n\r\n");
    if (head_end == std::string::npos) return;
    const std::string_view head(connection->received.data(), head_end);
    const auto length = static_cast<size_t>(NumberBehind(head, "Content-Length: ", 0));
    if (connection->received.size() < head_end + 4 + length) return;
    const std::string body = connection->received.substr(head_end + 4, length);
    const std::string path(
        head.substr(head.find(' ') + 1, head.find(" HTTP") - head.find(' ') - 1));
    connection->received.erase(0, head_end + 4 + length);
    if (path == "/v1/models") return Send(fd, Whole(200, R"({"data":[{"id":"trivial"}]})"));
    if (path == "/metrics") {
      if (!options_.no_metrics) SendMetrics(fd);
      return;
    }
    if (path != "/v1/completions" && path != "/v1/chat/completions") {
      return Send(fd, Whole(404, R"({"error":{"message":"no such path"}})"));
    }
    if (options_.no_ids && body.find("\"prompt\":[") != std::string::npos) {
      return Send(fd, Whole(400, R"({"error":{"message":"prompt must be a string"}})"));
    }
    if (HighestId(body) >= options_.vocabulary) {
      return Send(fd, Whole(400, R"({"error":{"message":"no such token"}})"));
    }
    if (log_.is_open()) log_ << body << std::endl;
    connection->chat = path == "/v1/chat/completions";
    connection->tokens = NumberBehind(body, "\"max_tokens\":", 16);
    connection->sent = 0;
    connection->prompt_tokens = CountPrompt(body);
    if (body.find("\"stream\":true") == std::string::npos) {
      return Send(fd, Whole(200, R"({"choices":[{"text":" tok"}]})"));
    }
    if (times_.is_open()) {
      const auto now = Clock::now().time_since_epoch();
      times_ << std::chrono::duration_cast<std::chrono::microseconds>(now).count() << std::endl;
    }
    connection->fail = ++requests_ % options_.fail_every == 0 ? options_.fail : "";
    BeginAnswer(fd, connection);
  }

  static int64_t CountPrompt(const std::string& body) {
    const size_t begin = body.find("\"prompt\":[");
    if (begin == std::string::npos) return 10;
    const size_t end = body.find(']', begin);
    return 1 + std::count(body.begin() + static_cast<ptrdiff_t>(begin),
                          body.begin() + static_cast<ptrdiff_t>(end), ',');
  }

  static int64_t HighestId(const std::string& body) {
    size_t at = body.find("\"prompt\":[");
    if (at == std::string::npos) return -1;
    int64_t highest = -1;
    for (at = body.find('[', at); body[at] != ']'; at = body.find_first_of(",]", at + 1)) {
      highest = std::max<int64_t>(highest, std::atoll(body.c_str() + at + 1));
    }
    return highest;
  }

  void SendMetrics(int fd) {
    peak_ = std::max(peak_, running_);
    Send(fd, Whole(200,
                   "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running"
                   "{model_name=\"a} b\"} " +
                       std::to_string(peak_) + "\nrefrain_kv_used_bytes 4096\n" +
                       R"(vllm:kv_cache_usage_perc{engine="0"} 0.6)"
                       "\n" +
                       R"(vllm:kv_cache_usage_perc{engine="1"} 0.7)"
                       "\n"));
  }

  void BeginAnswer(int fd, Connection* connection) {
    if (connection->fail == "status") {
      return Send(fd, Whole(static_cast<int>(options_.fail_count),
                            R"({"error":{"message":"asked to fail"}})"));
    }
    if (connection->fail == "garbage") {
      Send(fd, "this is no HTTP\r\n\r\n");
      return Close(fd);
    }
    if (connection->fail == "close") {
      if (options_.fail_count == 0) return Close(fd);
      due_.push(
          {Clock::now() + std::chrono::milliseconds(options_.fail_count), fd, connection->serial});
      return;
    }
    connection->answering = true;
    ++running_;
    peak_ = std::max(peak_, running_);
    if (connection->fail == "hang") return;
    if (connection->fail == "empty") connection->tokens = 0;
    if (connection->fail == "abort" || connection->fail == "short") {
      connection->tokens = options_.fail_count;
    }
    Send(fd,
         "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
         "Transfer-Encoding: chunked\r\n\r\n");
    if (options_.token_delay_us == 0) return Advance(fd, connection);
    Schedule(fd, *connection);
  }

  void Schedule(int fd, const Connection& connection) {
    due_.push(
        {Clock::now() + std::chrono::microseconds(options_.token_delay_us), fd, connection.serial});
  }

  // The next token, or without delay all that are left.
  void Advance(int fd, Connection* connection) {
    if (connection->fail == "close") return Close(fd);
    std::string held;
    while (connection->sent < connection->tokens) {
      const bool now = connection->sent == options_.fail_count;
      if (now && connection->fail == "break") return Close(fd);
      if (now && connection->fail == "error") {
        Send(fd, Event(R"({"error":{"message":"the engine has stopped"}})"));
        return Close(fd);
      }
      ++connection->sent;
      const std::string event =
          TokenEvent(*connection, !options_.no_usage, connection->sent == connection->tokens);
      if (options_.together) {
        held += event;
      } else {
        Send(fd, event);
      }
      if (options_.token_delay_us > 0 && connection->sent < connection->tokens) {
        return Schedule(fd, *connection);
      }
    }
    if (!options_.no_usage) held += UsageEvent(*connection);
    held += Chunk("data: [DONE]\n\n");
    held += "0\r\n\r\n";
    connection->answering = false;
    --running_;
    Send(fd, held);
    if (!connection->received.empty()) Begin(fd, connection);
  }

  const Options options_;
  std::ofstream log_;
  std::ofstream times_;
  int listener_ = -1;
  int epoll_ = -1;
  uint64_t last_serial_ = 0;
  int64_t requests_ = 0;
  int64_t running_ = 0;
  int64_t peak_ = 0;
  std::map<int, Connection> connections_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

// False when the argument is unknown.
bool Parse(const std::string& argument, Options* options) {
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
  if (name == "--port") {
    options->port = static_cast<uint16_t>(std::atoi(value.c_str()));
  } else if (name == "--token-delay-us") {
    options->token_delay_us = std::atoll(value.c_str());
  } else if (name == "--together") {
    options->together = true;
  } else if (name == "--no-ids") {
    options->no_ids = true;
  } else if (name == "--no-usage") {
    options->no_usage = true;
  } else if (name == "--no-metrics") {
    options->no_metrics = true;
  } else if (name == "--vocabulary") {
    options->vocabulary = std::atoll(value.c_str());
  } else if (name == "--log") {
    options->log = value;
  } else if (name == "--times") {
    options->times = value;
  } else if (name == "--fail") {
    const size_t colon = value.find(':');
    options->fail = value.substr(0, colon);
    if (colon != std::string::npos) options->fail_count = std::atoll(value.c_str() + colon + 1);
  } else if (name == "--fail-every") {
    options->fail_every = std::max<int64_t>(1, std::atoll(value.c_str()));
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (!Parse(argv[i], &options)) {
      std::fprintf(stderr, "trivial_responder: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  Responder(options).Run();
}
