#ifndef REFRAIN_TESTS_SUPPORT_FAKE_CHUNK_MOVER_H_
#define REFRAIN_TESTS_SUPPORT_FAKE_CHUNK_MOVER_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/chunk_mover.h"
#include "kvcache/types.h"

namespace refrain::testing {

// What stands for a token's K and V in tests: its id and position.
struct FakeKvCell {
  int32_t token = -1;
  int32_t position = -1;
  friend auto operator<=>(const FakeKvCell&, const FakeKvCell&) = default;
};

// A KV pool of cells instead of bytes, and the mover over it. Not thread-safe. `before_copy` lets
// an asynchronous runner finish its steps first, `on_copy` looks at a chunk that is about to be
// copied, `fail_next_copy` breaks one copy.
class FakeChunkMover : public kvcache::ChunkMover {
 public:
  FakeChunkMover(int32_t num_chunks, int32_t chunk_tokens)
      : chunk_tokens_(chunk_tokens),
        cells_(static_cast<size_t>(num_chunks) * static_cast<size_t>(chunk_tokens)) {}

  absl::Status CopyChunk(kvcache::ChunkId from, kvcache::ChunkId to) override {
    if (before_copy) before_copy();
    if (on_copy) on_copy(from);
    if (std::exchange(fail_next_copy, false)) return absl::InternalError("device is gone");
    ++copies;
    for (int32_t i = 0; i < chunk_tokens_; ++i) {
      cell(static_cast<int32_t>(to), i) = cell(static_cast<int32_t>(from), i);
    }
    return absl::OkStatus();
  }

  FakeKvCell& cell(int32_t chunk, int32_t offset) {
    return cells_.at(static_cast<size_t>(chunk) * static_cast<size_t>(chunk_tokens_) +
                     static_cast<size_t>(offset));
  }
  int32_t chunk_tokens() const { return chunk_tokens_; }

  std::function<void()> before_copy;
  std::function<void(kvcache::ChunkId from)> on_copy;
  bool fail_next_copy = false;
  int64_t copies = 0;

 private:
  int32_t chunk_tokens_;
  std::vector<FakeKvCell> cells_;  // [num_chunks, chunk_tokens]
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FAKE_CHUNK_MOVER_H_
