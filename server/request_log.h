#ifndef REFRAIN_SERVER_REQUEST_LOG_H_
#define REFRAIN_SERVER_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "server/http/exchange.h"
#include "server/log.h"

namespace refrain::server {

// One JSON object a line for every request that was answered, or could not be:
//   {"ts":"2026-01-02T03:04:05.678Z","request":"...","key":"team-a","method":"POST",
//    "route":"/v1/chat/completions","status":200,"complete":true,"request_bytes":312,
//    "response_bytes":4096,"duration_ms":812.4,"prompt_tokens":57,...}
// What the handler noted (http::RequestNotes::details) stands at the end; "path" stands in place of
// "route" where no route matched. Times of day are those of the end.
//
// Lines are written by a thread of its own, so that a slow disk holds up no connection. Beyond
// kMaxWaitingBytes they are dropped, as are those that a full disk does not take: they are counted,
// and the first ones are told to WarnTo's log, once. Any thread; Write never fails.
class RequestLog {
 public:
  static constexpr size_t kMaxWaitingBytes = 16 << 20;

  // Appends to the file, made readable by its owner alone where it did not exist; what is standard
  // output or error goes on where that stands. /dev/stdout and /dev/stderr may be sockets, which
  // others cannot. UNAVAILABLE says why it cannot, RESOURCE_EXHAUSTED that the system refuses the
  // thread.
  static absl::StatusOr<std::unique_ptr<RequestLog>> Open(std::string path);
  // Whether Open would, as far as can be told without making the file: UNAVAILABLE says why not.
  static absl::Status Check(const std::string& path);
  ~RequestLog();  // Close

  // The end, after what waits has been written; a pipe that takes nothing for a second gets no
  // more. Idempotent; on the thread that destroys it.
  void Close();

  void Write(const http::Exchange& exchange);

  // Where the first lost lines are told; before the first Write. `log` outlives this.
  void WarnTo(Log* log) { log_ = log; }

  // After the file was renamed (logrotate): lines from now on go to a new one of the old name.
  // Where that fails the old file stays in use.
  absl::Status Reopen();

  int64_t dropped_lines() const;

 private:
  RequestLog(std::string path, int file);
  void Run();
  // What of `lines` the file did not take.
  std::string_view WriteOut(std::string_view lines);
  // Until the pipe takes more; false where it does not, and the file is awaited.
  bool WaitForRoom() REFRAIN_REQUIRES(file_mutex_);
  void CountDropped(int64_t lines, std::string_view why);

  const std::string path_;
  Log* log_ = nullptr;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::string waiting_ REFRAIN_GUARDED_BY(mutex_);
  int64_t dropped_lines_ REFRAIN_GUARDED_BY(mutex_) = 0;
  bool stopping_ REFRAIN_GUARDED_BY(mutex_) = false;
  Mutex file_mutex_;
  int file_ REFRAIN_GUARDED_BY(file_mutex_);
  bool is_torn_ REFRAIN_GUARDED_BY(file_mutex_) = false;  // it ends inside a line
  std::atomic<bool> awaited_{false};                      // for the end, or to be opened anew
  std::thread writer_;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_REQUEST_LOG_H_
