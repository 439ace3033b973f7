#ifndef REFRAIN_SERVER_GRPC_RECEPTION_H_
#define REFRAIN_SERVER_GRPC_RECEPTION_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "engine/engine.h"
#include "server/access/gate.h"
#include "server/byte_budget.h"
#include "server/grpc/call_record.h"
#include "server/grpc/message.h"
#include "server/grpc/stalling_call.h"
#include "server/grpc/stream_threads.h"
#include "server/hold_bytes.h"
#include "server/log.h"
#include "server/request_limits.h"
#include "server/task_queue.h"
#include "server/unread_answers.h"

namespace refrain::server::rpc {

// Who calls, and whom.
struct Caller {
  access::Principal principal;
  std::string request_id;
  engine::Engine* engine = nullptr;
  std::chrono::steady_clock::time_point arrived;  // since when the call's time runs
  std::shared_ptr<HeldBytes> held_bytes;  // of the call's message, unless it is small, and answer
};

// What all calls of one server share: the door (keys, loading, draining), the count of those
// inside, and the threads that do what gRPC's must not. Any thread. SetEngine and SetDraining are
// called by the server.
class Reception {
 public:
  struct Options {
    int32_t max_choices = 128;  // limits.n
    int32_t max_beams = 64;     // engine.max_sequences
    int stream_threads = 2;
    size_t messages_bytes = 256 << 20;
    std::chrono::milliseconds write_timeout{120'000};
    std::shared_ptr<UnreadAnswers> unread;  // counts what is generated; null: nobody does
    bool log_prompts = false;               // requests into CallRecord::details
    bool isolates_keys = false;             // each key has a cache of its own (kv_cache.isolation)
    CallObserver on_call;                   // may be empty, as the next one
    // From a token's sampling until its message was handed to the socket.
    std::function<void(std::chrono::nanoseconds delay)> on_message_sent;
  };
  // Messages over so many bytes are read by a thread of slow(). They, and those that take more than
  // that once they are read, count among `messages_bytes`.
  static constexpr size_t kQuickMessageBytes = kUncountedBytes;

  Reception(Options options, access::Gate* gate, Log* log)
      : options_(std::move(options)),
        gate_(gate),
        log_(log),
        messages_(std::make_shared<ByteBudget>(options_.messages_bytes)),
        streams_(options_.stream_threads),
        slow_(2, TaskQueue::Tasks::kLong) {}

  void SetEngine(engine::Engine* engine) { engine_ = engine; }
  void SetDraining() { draining_ = true; }

  // At a call's beginning. Counts it as inside whatever comes out, until Leave; sends the request
  // id back. The record tells who calls for what. Reads nothing of the message. UNAUTHENTICATED,
  // PERMISSION_DENIED, UNAVAILABLE.
  absl::StatusOr<Caller> Enter(::grpc::CallbackServerContext* context, access::Area area,
                               const Incoming& incoming, CallRecord* record);
  // Reads the message of a call that has entered, once; the record has it where log.prompts says
  // so. INVALID_ARGUMENT, UNAVAILABLE.
  absl::Status Read(const Incoming& incoming, Caller* caller, CallRecord* record) const;
  // What a call that ends so answers. The record says the same of it, or that its client has
  // `left`. Logged are INTERNAL errors, of which the client is not told all, and answers that are
  // cut as they were not read.
  ::grpc::Status NoteEnd(const ::grpc::CallbackServerContext& context, const absl::Status& status,
                         bool left, CallRecord* record);
  // The client went away or its deadline passed, possibly after the answer was made.
  static void NoteLeft(const ::grpc::CallbackServerContext& context, CallRecord* record);
  // At the very end.
  void Leave(const CallRecord& record);
  // False when calls are still inside at the deadline.
  bool WaitUntilEmpty(std::chrono::steady_clock::time_point deadline);

  // From now on EndStalled looks at this call too, while it lives.
  void Watch(std::weak_ptr<StallingCall> call);
  // Ends the calls whose clients have not read for `write_timeout`. One thread, now and then.
  void EndStalled();

  ModelLimits LimitsOf(const engine::Engine& engine) const;
  const Options& options() const { return options_; }
  access::Gate& gate() { return *gate_; }
  StreamThreads& streams() { return streams_; }
  // Tasks in proportion to a request's size.
  TaskQueue& slow() { return slow_; }

 private:
  const Options options_;
  access::Gate* const gate_;
  Log* const log_;
  const std::shared_ptr<ByteBudget> messages_;
  std::atomic<engine::Engine*> engine_{nullptr};
  std::atomic<bool> draining_{false};
  Mutex mutex_;
  ConditionVariable changed_;
  int inside_ REFRAIN_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<StallingCall>> watched_ REFRAIN_GUARDED_BY(mutex_);
  StreamThreads streams_;
  TaskQueue slow_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_RECEPTION_H_
