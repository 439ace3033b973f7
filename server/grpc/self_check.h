#ifndef REFRAIN_SERVER_GRPC_SELF_CHECK_H_
#define REFRAIN_SERVER_GRPC_SELF_CHECK_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "engine/annotated_mutex.h"

namespace refrain::server::rpc {

// Asks the health service of the server that it belongs to, each time over a connection of its own,
// as a client would, and has each thread of gRPC's executor do something: gRPC that has lost a part
// of its work says so nowhere, and the rest goes on. What is answered does not matter, only that.
//
// Made and destroyed by the server, whose end waits for no answer.
class SelfCheck {
 public:
  struct Options {
    std::chrono::milliseconds period{10'000};  // from an answer to the next question
    std::chrono::milliseconds patience{10'000};
  };

  // `connect` gives one end of a connection, which does not block, to the server, which owns it
  // from then on. `on_change` is told false when two questions in a row were not answered in time,
  // and true when several in a row were since. Both are called on the thread of the check. Throws
  // std::system_error where the system refuses that.
  SelfCheck(const Options& options, std::function<void(int socket)> connect,
            std::function<void(bool answers)> on_change);
  ~SelfCheck();
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

 private:
  class Question;

  void Run();
  // False when the check is to end.
  bool WaitForNext();
  // Whether it was answered; nothing where there are no files for it, or the check is to end.
  std::optional<bool> Ask();

  const Options options_;
  const std::function<void(int socket)> connect_;
  const std::function<void(bool answers)> on_change_;
  std::unique_ptr<Question> question_;  // the last one; of the thread
  Mutex mutex_;
  ConditionVariable changed_;
  bool ends_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_SELF_CHECK_H_
