#include "server/request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/utc_time.h"
#include "server/with_threads.h"

namespace refrain::server {
namespace {

constexpr size_t kMaxPathBytes = 200;
// A pipe that nobody reads holds up the end, or a reload, for so long.
constexpr int kLookMs = 50;
constexpr int kLooksForRoom = 20;

absl::Status CannotOpen(const std::string& path, int error) {
  return absl::UnavailableError(
      Concat("cannot open the request log ", path, ": ", std::generic_category().message(error)));
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool IsSameFile(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && IsSameFile(of_a, of_b);
}

// The one of standard output and error that is the socket or file `found`, as /dev/stdout is where
// systemd's journal reads it. Sockets cannot be opened. A file that is opened anew has a position
// of its own: what goes to the standard one would be written over what was appended. Pipes have no
// positions, and are opened so that they never block, which who else has them would see.
//
// What goes to either goes to the end of such a file from now on: it would else be written over
// what was appended by the other, and leave zeros in front where the file is truncated.
std::optional<int> FindStandardFile(const struct stat& found) {
  if (!S_ISSOCK(found.st_mode) && !S_ISREG(found.st_mode)) return std::nullopt;
  std::optional<int> first;
  for (const int file : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat standard {};
    if (::fstat(file, &standard) != 0 || !IsSameFile(standard, found)) continue;
    if (S_ISREG(found.st_mode)) ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_APPEND);
    if (!first.has_value()) first = file;
  }
  return first;
}

absl::StatusOr<int> OpenFile(const std::string& path) {
  struct stat found {};
  std::optional<int> standard;
  if (::stat(path.c_str(), &found) == 0) standard = FindStandardFile(found);
  // A pipe is opened at once, or not at all where nobody reads it.
  const int file =
      standard.has_value()
          ? ::fcntl(*standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
          : ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return CannotOpen(path, errno);
  return file;
}

// Without waiting. Who else has a socket would see it changed if it were told not to block.
ssize_t WriteSome(int file, std::string_view bytes) {
  const ssize_t sent = ::send(file, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(file, bytes.data(), bytes.size());
}

void AppendText(std::string_view name, std::string_view value, std::string* line) {
  ConcatTo(line, ",\"", name, "\":");
  AppendJsonString(engine::ReplaceIllFormedUtf8(value), line);
}

std::string LineOf(const http::Exchange& exchange) {
  std::string line = Concat("{\"ts\":\"", UtcNow(), "\"");
  AppendText("request", exchange.request_id, &line);
  AppendText("key", exchange.principal, &line);
  AppendText("method", exchange.method.substr(0, 32), &line);
  if (exchange.route.empty()) {
    AppendText("path", exchange.path.substr(0, kMaxPathBytes), &line);
  } else {
    AppendText("route", exchange.route, &line);
  }
  ConcatTo(&line, ",\"status\":", exchange.status,
           ",\"complete\":", exchange.complete ? "true" : "false",
           ",\"request_bytes\":", exchange.request_body_bytes,
           ",\"response_bytes\":", exchange.response_bytes, ",\"duration_ms\":");
  AppendJsonNumber(static_cast<double>(static_cast<int64_t>(exchange.seconds * 1e6)) / 1e3, &line);
  if (!exchange.details.empty()) ConcatTo(&line, ",", exchange.details);
  line += "}\n";
  return line;
}

}  // namespace

RequestLog::RequestLog(std::string path, int file)
    : path_(std::move(path)), file_(file), writer_([this] { Run(); }) {}

absl::StatusOr<std::unique_ptr<RequestLog>> RequestLog::Open(std::string path) {
  const absl::StatusOr<int> file = OpenFile(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<RequestLog> log;
  const absl::Status started = WithThreads([&] {
    log.reset(new RequestLog(std::move(path), *file));
    return absl::OkStatus();
  });
  if (started.ok()) return log;
  ::close(*file);
  return started;
}

absl::Status RequestLog::Check(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) {
    if (S_ISDIR(found.st_mode)) return CannotOpen(path, EISDIR);
    if (FindStandardFile(found).has_value()) return absl::OkStatus();
    if (S_ISSOCK(found.st_mode)) return CannotOpen(path, ENXIO);
    return ::access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : CannotOpen(path, errno);
  }
  if (errno != ENOENT) return CannotOpen(path, errno);
  const std::string folder = std::filesystem::path(path).parent_path();
  const bool takes_files = ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
  return takes_files ? absl::OkStatus() : CannotOpen(path, errno);
}

RequestLog::~RequestLog() { Close(); }

void RequestLog::Close() {
  if (!writer_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  awaited_ = true;
  writer_.join();
  MutexLock lock(file_mutex_);
  ::close(file_);
}

void RequestLog::Write(const http::Exchange& exchange) {
  const std::string line = LineOf(exchange);
  {
    MutexLock lock(mutex_);
    if (waiting_.size() + line.size() <= kMaxWaitingBytes) {
      if (waiting_.empty()) changed_.NotifyOne();
      waiting_ += line;
      return;
    }
  }
  CountDropped(1, "the disk is too slow");
}

void RequestLog::CountDropped(int64_t lines, std::string_view why) {
  {
    MutexLock lock(mutex_);
    const bool first = dropped_lines_ == 0;
    dropped_lines_ += lines;
    if (!first || log_ == nullptr) return;
  }
  log_->Warn("lines of the request log are lost; refrain_request_log_dropped_lines_total counts",
             {{"file", path_}, {"why", why}});
}

absl::Status RequestLog::Reopen() {
  const absl::StatusOr<int> file = OpenFile(path_);
  if (!file.ok()) return file.status();
  awaited_ = true;
  MutexLock lock(file_mutex_);
  awaited_ = false;
  if (!IsSameFile(file_, *file)) is_torn_ = false;
  ::close(file_);
  file_ = *file;
  return absl::OkStatus();
}

int64_t RequestLog::dropped_lines() const {
  MutexLock lock(mutex_);
  return dropped_lines_;
}

void RequestLog::Run() {
  for (bool stopping = false; !stopping;) {
    std::string lines;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mutex_);
      stopping = stopping_;
      lines.swap(waiting_);
    }
    // A full disk costs lines, not requests.
    const std::string_view left = WriteOut(lines);
    if (!left.empty()) {
      CountDropped(std::count(left.begin(), left.end(), '\n'), "the file takes no more");
    }
  }
}

std::string_view RequestLog::WriteOut(std::string_view lines) {
  MutexLock lock(file_mutex_);
  // What was lost must not make the next line unreadable.
  if (is_torn_ && WriteSome(file_, "\n") == 1) is_torn_ = false;
  while (!lines.empty()) {
    const ssize_t written = WriteSome(file_, lines);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && WaitForRoom()) continue;
    if (written <= 0) break;
    is_torn_ = lines[static_cast<size_t>(written) - 1] != '\n';
    lines.remove_prefix(static_cast<size_t>(written));
  }
  return lines;
}

bool RequestLog::WaitForRoom() {
  pollfd file = {file_, POLLOUT, 0};
  for (int awaited = 0; awaited < kLooksForRoom;) {
    if (::poll(&file, 1, kLookMs) != 0) return true;  // or an error, which writing tells
    if (awaited_) ++awaited;
  }
  return false;
}

}  // namespace refrain::server
