#include "engine/pages_ahead.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace refrain::engine {
namespace {

// Whole chunks of at most kMostTokens and kMostBytes.
size_t AheadBytes(const PagesAhead::Pool& pool) {
  const size_t chunks = static_cast<size_t>(PagesAhead::kMostTokens / pool.chunk_tokens);
  return std::min(chunks, PagesAhead::kMostBytes / pool.chunk_bytes) * pool.chunk_bytes;
}

}  // namespace

PagesAhead::PagesAhead(const Pool& pool, Populate populate)
    : chunk_bytes_(pool.chunk_bytes),
      pool_bytes_(pool.chunk_bytes * static_cast<size_t>(pool.num_chunks)),
      ahead_bytes_(AheadBytes(pool)),
      populate_(std::move(populate)),
      thread_([this] { Run(); }) {}

PagesAhead::~PagesAhead() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

void PagesAhead::EngineIsIdle(int32_t touched_chunks) {
  const size_t again =
      std::min(static_cast<size_t>(touched_chunks), kMostBytesAgain / chunk_bytes_) * chunk_bytes_;
  Want(touched_chunks, std::max(ahead_bytes_, again), std::numeric_limits<size_t>::max());
}

void PagesAhead::StepBegins(int32_t touched_chunks, int32_t running_sequences) {
  const size_t next_chunks = static_cast<size_t>(running_sequences) * chunk_bytes_;
  Want(touched_chunks, std::min(ahead_bytes_, next_chunks), 1);
}

void PagesAhead::Want(int32_t touched_chunks, size_t ahead_bytes, size_t pieces) {
  const size_t used_end = static_cast<size_t>(touched_chunks) * chunk_bytes_;
  MutexLock lock(mutex_);
  touched_end_ = std::max(touched_end_, used_end);
  wanted_end_ = std::min(pool_bytes_, used_end + ahead_bytes);
  pieces_left_ = pieces;
  if (touched_end_ < wanted_end_) changed_.NotifyOne();
}

void PagesAhead::Run() {
  while (const std::optional<Piece> piece = WaitForPiece()) {
    const bool populated = populate_(piece->begin, piece->end);
    MutexLock lock(mutex_);
    touched_end_ = std::max(touched_end_, populated ? piece->end : pool_bytes_);
  }
}

std::optional<PagesAhead::Piece> PagesAhead::WaitForPiece() {
  MutexLock lock(mutex_);
  while (!stopping_ && (touched_end_ >= wanted_end_ || pieces_left_ == 0)) changed_.Wait(mutex_);
  if (stopping_) return std::nullopt;
  --pieces_left_;
  // The pool begins at a huge page's border (KvStorage::Create).
  const size_t page_end = (touched_end_ / kPieceBytes + 1) * kPieceBytes;
  return Piece{touched_end_, std::min(wanted_end_, page_end)};
}

}  // namespace refrain::engine
