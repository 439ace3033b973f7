#ifndef REFRAIN_ENGINE_STREAM_MEMORY_H_
#define REFRAIN_ENGINE_STREAM_MEMORY_H_

#include <cstddef>

namespace refrain::engine {

// Is told what memory one TokenStream takes, so that somebody can bound what all of them take whose
// consumers are slow. One object for each stream, which owns it.
class StreamMemory {
 public:
  virtual ~StreamMemory() = default;

  // `bytes`, about, is what the stream takes now: what waits in it, what its consumer read last,
  // and what that keeps. `read`: the consumer has just read, or used some of it. True: all streams
  // together take too much, and MakeRoom is to be called. Under the stream's lock: neither blocks
  // nor calls a stream.
  virtual bool Take(size_t bytes, bool read) = 0;
  // Cuts streams until they take no more than they may; this one may be among them. On the thread
  // that made this one larger, the engine's for most, with no lock of a stream held. Does not wait.
  virtual void MakeRoom() = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STREAM_MEMORY_H_
