#ifndef REFRAIN_SERVER_GRPC_COMPLETION_HERE_H_
#define REFRAIN_SERVER_GRPC_COMPLETION_HERE_H_

#include <grpc/grpc.h>

#include "absl/functional/function_ref.h"

namespace refrain::server::rpc {

// Begins an operation of a call, such as a write, and takes word of its end here where it has ended
// at once, as most writes have.
//
// gRPC puts that word into a queue at which threads of its own wait: two changes of threads for
// each message, and the engine's next token is there before the reaction to the last one is. What
// `begin` has brought to its end is told on the calling thread instead, before the call returns:
// that of `begin`, as a rule, but possibly that of another call. Word that a reaction to such word
// would take itself is told by the outermost call, so that reactions do not pile up on the stack;
// after some in a row it goes by the queue, so that a long answer lets others have their turn.
//
// `queue` is that of the call (StreamingMethod). On any thread, without a lock that a reaction
// takes. What is not told here comes by gRPC's own threads, as without this. What `begin` throws
// ends the process; gRPC keeps what its callbacks throw to itself.
void CompleteHere(grpc_completion_queue* queue, absl::FunctionRef<void()> begin) noexcept;

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_COMPLETION_HERE_H_
