#include "server/grpc/completion_here.h"

#include <utility>

namespace refrain::server::rpc {
namespace {

struct Completion {
  grpc_completion_queue_functor* reaction = nullptr;  // null: none
  int ok = 0;
};

// Told one after the other, where each reaction begins the next message of its answer.
constexpr int kMostInARow = 16;

// What the outermost CompleteHere on this thread is telling.
struct Telling {
  Completion next;
  int told = 0;
};
thread_local Telling* telling = nullptr;

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

void CompleteHere(grpc_completion_queue* queue, absl::FunctionRef<void()> begin) noexcept {
  if (telling != nullptr) {
    // A reaction begins one operation at most; a second one's word would not wait here.
    if (telling->told >= kMostInARow || telling->next.reaction != nullptr) return begin();
    const Completion completion = Begin(queue, begin);
    if (completion.reaction != nullptr) telling->next = completion;
    return;
  }
  Telling all{.next = Begin(queue, begin)};
  telling = &all;
  while (all.next.reaction != nullptr) {
    ++all.told;
    Tell(std::exchange(all.next, Completion()));
  }
  telling = nullptr;
}

}  // namespace refrain::server::rpc
