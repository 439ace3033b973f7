#include "server/grpc/library_log.h"

#include <grpc/support/log.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <string_view>

#include "engine/annotated_mutex.h"

namespace refrain::server::rpc {
namespace {

// What gRPC says before it aborts: GPR_ASSERT, and where it should never come.
bool IsLastWord(std::string_view said) {
  return said.starts_with("assertion failed") || said.starts_with("UNREACHABLE CODE");
}

struct Receiver {
  Mutex mutex;
  Log* log REFRAIN_GUARDED_BY(mutex) = nullptr;
};

// Never destroyed: threads of gRPC outlive main.
Receiver& TheReceiver() {
  static Receiver* const receiver = new Receiver;
  return *receiver;
}

void WriteToStandardError(const gpr_log_func_args& said) {
  const std::string line =
      std::string(said.file) + ":" + std::to_string(said.line) + ": " + said.message + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Called from C.
void Receive(gpr_log_func_args* said) noexcept {
  try {
    if (IsLastWord(said->message)) return WriteToStandardError(*said);
    Receiver& receiver = TheReceiver();
    MutexLock lock(receiver.mutex);
    if (receiver.log == nullptr) return;
    receiver.log->Debug("grpc", {{"message", said->message}});
  } catch (const std::exception&) {
    // There is no memory to tell it.
  }
}

}  // namespace

LibraryLog::LibraryLog(Log* log) : log_(log) {
  {
    Receiver& receiver = TheReceiver();
    MutexLock lock(receiver.mutex);
    receiver.log = log;
  }
  gpr_set_log_function(Receive);
}

LibraryLog::~LibraryLog() {
  Receiver& receiver = TheReceiver();
  MutexLock lock(receiver.mutex);
  if (receiver.log == log_) receiver.log = nullptr;
}

}  // namespace refrain::server::rpc
