#ifndef REFRAIN_ENGINE_PAGES_AHEAD_H_
#define REFRAIN_ENGINE_PAGES_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "engine/annotated_mutex.h"

namespace refrain::engine {

// Touches memory of the KV pool before it is needed. Who takes chunks which nobody had before waits
// for the system to clear their pages, else: 0.3 ms for 2 MiB, and 5 to 25 ms in a virtual machine
// whose host has to find them, too.
//
// An idle engine has at most kMostTokens tokens' chunks, and at most kMostBytes, touched beyond
// those that were ever handed out (and what the last page has more); or, where that is more, as
// much again as was handed out, up to kMostBytesAgain: whoever used much will use more, and whoever
// uses little stays small. The pool hands out what was used before first, then the others in order
// of their addresses (kvcache::ChunkPool).
//
// While sequences run, their next chunks are touched, one for each within the first bound, a piece
// a step: sequences that began together take a new chunk in the same step, and would all wait in
// it.
//
// A thread of its own does it, a piece at a time, so that no request waits for one: the engine
// never does, and at most one piece is touched beside a step. Bytes are not changed.
//
// EngineIsIdle, StepBegins: the engine thread; they do not block. Failure: when a piece cannot be
// touched, no other is tried; whoever uses the memory touches it then.
class PagesAhead {
 public:
  static constexpr int64_t kMostTokens = 4096;
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr size_t kMostBytesAgain = size_t{512} << 20;
  static constexpr size_t kPieceBytes = size_t{2} << 20;  // a huge page

  struct Pool {
    size_t chunk_bytes = 0;
    int32_t chunk_tokens = 0;
    int32_t num_chunks = 0;
  };
  // Lets the pages of these bytes of the pool be there; false when it cannot.
  using Populate = std::function<bool(size_t begin, size_t end)>;

  PagesAhead(const Pool& pool, Populate populate);
  ~PagesAhead();  // waits for the piece that is being touched

  // Nothing runs or waits; so many chunks were ever handed out.
  void EngineIsIdle(int32_t touched_chunks);
  // The engine is busy, with so many sequences; from then until the next call at most one piece is
  // begun.
  void StepBegins(int32_t touched_chunks, int32_t running_sequences);

 private:
  struct Piece {
    size_t begin;
    size_t end;
  };

  // What was touched before stays so; wakes the thread when it has something to do.
  void Want(int32_t touched_chunks, size_t ahead_bytes, size_t pieces);

  void Run();
  // Nothing when the object goes.
  std::optional<Piece> WaitForPiece();

  const size_t chunk_bytes_;
  const size_t pool_bytes_;
  const size_t ahead_bytes_;
  const Populate populate_;
  Mutex mutex_;
  ConditionVariable changed_;
  size_t touched_end_ REFRAIN_GUARDED_BY(mutex_) = 0;  // all before it was touched
  size_t wanted_end_ REFRAIN_GUARDED_BY(mutex_) = 0;
  size_t pieces_left_ REFRAIN_GUARDED_BY(mutex_) = 0;  // that may be begun until the next call
  bool stopping_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PAGES_AHEAD_H_
