#include "server/grpc/completion_here.h"

#include <utility>

namespace refrain::server::rpc {
namespace {

struct Completion {
  grpc_completion_queue_functor* reaction = nullptr;  // null: none
  int ok = 0;
};

// Of the outermost CompleteHere on this thread: what it is to tell next.
thread_local Completion* next_of_outermost = nullptr;

// The first one of `queue` that comes up on this thread while `begin` runs.
Completion Begin(grpc_completion_queue* queue, absl::FunctionRef<void()> begin) {
  ::grpc_completion_queue_thread_local_cache_init(queue);
  begin();
  void* tag = nullptr;
  int ok = 0;
  if (::grpc_completion_queue_thread_local_cache_flush(queue, &tag, &ok) == 0) return {};
  // As all tags of the queue of callbacks.
  return {static_cast<grpc_completion_queue_functor*>(tag), ok};
}

void Tell(const Completion& completion) {
  completion.reaction->functor_run(completion.reaction, completion.ok);
}

}  // namespace

void CompleteHere(grpc_completion_queue* queue, absl::FunctionRef<void()> begin) {
  Completion completion = Begin(queue, begin);
  if (completion.reaction == nullptr) return;
  if (next_of_outermost != nullptr) {
    // A reaction begins one operation at most; a second one's word would not wait.
    if (next_of_outermost->reaction != nullptr) return Tell(completion);
    *next_of_outermost = completion;
    return;
  }
  Completion next;
  next_of_outermost = &next;
  while (completion.reaction != nullptr) {
    Tell(completion);
    completion = std::exchange(next, Completion());
  }
  next_of_outermost = nullptr;
}

}  // namespace refrain::server::rpc
