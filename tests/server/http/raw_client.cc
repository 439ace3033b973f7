#include "tests/server/http/raw_client.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "tests/support/rounds.h"
#include "tests/support/slow_build.h"

namespace refrain::testing {
namespace {

// Not the whole factor: some tests see that nothing comes.
constexpr int kPatienceMs = kSlowBuildFactor == 1 ? 5'000 : 30'000;

}  // namespace

RawClient::RawClient(uint16_t port, int receive_buffer_bytes) {
  fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::~RawClient() { Close(); }

RawClient::RawClient(RawClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), pending_(std::move(other.pending_)) {}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::HalfClose() { ::shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::Reset() {
  const linger now = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool RawClient::Vanish() {
  const int on = 1;
  if (::setsockopt(fd_, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) != 0) return false;
  Close();
  return true;
}

bool RawClient::Unplug() {
  sock_filter drop_all = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog filter = {.len = 1, .filter = &drop_all};
  return ::setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0;
}

bool RawClient::ReadSome() { return ReadAtMost(16384); }

bool RawClient::ReadAtMost(size_t most) {
  pollfd file = {fd_, POLLIN, 0};
  if (::poll(&file, 1, kPatienceMs) <= 0) return false;
  char buffer[16384];
  const ssize_t bytes = ::recv(fd_, buffer, std::min(most, sizeof(buffer)), 0);
  if (bytes <= 0) return false;
  pending_.append(buffer, static_cast<size_t>(bytes));
  return true;
}

bool RawClient::ReadUntil(std::string_view text) {
  while (pending_.find(text) == std::string::npos) {
    if (!ReadSome()) return false;
  }
  return true;
}

bool RawClient::ReadPast(size_t bytes) {
  while (pending_.size() <= bytes) {
    if (!ReadSome()) return false;
  }
  return true;
}

bool RawClient::ReadEnd(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd file = {fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&file, 1, static_cast<int>(left.count())) <= 0) return false;
    if (!ReadSome()) return true;
  }
}

bool RawClient::ReadLine(std::string* line) {
  if (!ReadUntil("\r\n")) return false;
  const size_t end = pending_.find("\r\n");
  *line = pending_.substr(0, end);
  pending_.erase(0, end + 2);
  return true;
}

RawResponse RawClient::ReadResponse(bool head_only) {
  RawResponse response;
  std::string line;
  if (!ReadLine(&line) || line.size() < 12) return response;
  response.status = std::atoi(line.c_str() + 9);
  while (ReadLine(&line) && !line.empty()) {
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = line.substr(colon + 2);
  }
  if (head_only) {
    response.complete = true;
    return response;
  }
  if (response.headers.contains("content-length")) {
    const auto size = std::stoul(response.headers["content-length"]);
    while (pending_.size() < size && ReadSome()) {
    }
    response.complete = pending_.size() >= size;
    response.body = pending_.substr(0, size);
    pending_.erase(0, size);
    return response;
  }
  if (response.headers["transfer-encoding"] != "chunked") {
    response.complete = ReadEnd();
    response.body = std::exchange(pending_, {});
    return response;
  }
  // A long answer has thousands of chunks: they leave the buffer together.
  size_t taken = 0;
  while (!response.complete) {
    size_t end = pending_.find("\r\n", taken);
    while (end == std::string::npos && ReadSome()) end = pending_.find("\r\n", taken);
    if (end == std::string::npos) break;
    const size_t size = std::strtoul(pending_.c_str() + taken, nullptr, 16);
    taken = end + 2;
    while (pending_.size() < taken + size + 2 && ReadSome()) {
    }
    if (pending_.size() < taken + size + 2) break;
    response.body.append(pending_, taken, size);
    taken += size + 2;
    if (size > 0) ++response.chunks;
    response.complete = size == 0;
  }
  pending_.erase(0, taken);
  return response;
}

std::optional<double> TimeGet(RawClient* client, std::string_view path, double limit_ms) {
  constexpr size_t kGets = 20;
  std::optional<double> best;
  bool failed = false;
  SomeRoundKeeps([&] {
    std::array<double, kGets> milliseconds;
    for (double& taken : milliseconds) {
      const auto begin = std::chrono::steady_clock::now();
      client->Send(GetRequest(path));
      failed = client->ReadResponse().status != 200;
      if (failed) return true;  // nothing to measure
      taken = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                  .count();
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    best = std::min(best.value_or(milliseconds[kGets - 2]), milliseconds[kGets - 2]);
    return *best < limit_ms;
  });
  return failed ? std::nullopt : best;
}

std::string GetRequest(std::string_view path, std::string_view more_headers) {
  std::string request = "GET ";
  request.append(path)
      .append(" HTTP/1.1\r\nHost: localhost\r\n")
      .append(more_headers)
      .append("\r\n");
  return request;
}

std::string PostRequest(std::string_view path, std::string_view body,
                        std::string_view more_headers) {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
  request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  request.append(more_headers).append("\r\n").append(body);
  return request;
}

}  // namespace refrain::testing
