#include "kernels/cuda/kv_positions.h"

#include <algorithm>

#include "absl/status/status.h"
#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {
namespace {

// Each growth waits for the device and ends recorded steps.
constexpr size_t kLeastTokens = 4096;

// Of the pool, as far as these chunks go.
size_t TokensUpTo(const KvPoolView& kv, std::span<const RunChunk> chunks) {
  int32_t end = 0;
  for (const RunChunk& one : chunks) end = std::max(end, one.chunk + 1);
  return static_cast<size_t>(end) * static_cast<size_t>(kv.chunk_tokens);
}

}  // namespace

absl::Status KvPositions::ReserveFor(const KvPoolView& kv, std::span<const RunChunk> chunks) {
  const size_t tokens = TokensUpTo(kv, chunks);
  if (absl::Status status = Reserve(tokens); !status.ok()) return status;
  return upload_.Reserve(tokens * sizeof(TokenPosition));
}

absl::StatusOr<const int32_t*> KvPositions::BringChunks(const KvPoolView& kv,
                                                        std::span<const RunChunk> chunks) {
  if (absl::Status status = Reserve(TokensUpTo(kv, chunks)); !status.ok()) return status;
  for (const RunChunk& one : chunks) Compare(kv, one.chunk);
  return Upload();
}

absl::StatusOr<const int32_t*> KvPositions::BringWritten(const KvPoolView& kv,
                                                         std::span<const KvSlotRef> tokens) {
  const auto chunks = static_cast<int64_t>(known_.size()) / kv.chunk_tokens;
  int32_t before = -1;  // tokens of a chunk follow each other
  for (const KvSlotRef& token : tokens) {
    if (token.chunk != before && token.chunk >= 0 && token.chunk < chunks) Compare(kv, token.chunk);
    before = token.chunk;
  }
  return Upload();
}

// What the table held is lost when it grows; all of it is then unknown.
absl::Status KvPositions::Reserve(size_t tokens) {
  if (tokens <= known_.size()) return absl::OkStatus();
  if (runtime_.IsCapturing(stream_)) {
    return absl::FailedPreconditionError(
        "a step's positions cannot be copied while it is recorded");
  }
  const size_t grown = std::max({tokens, 2 * known_.size(), kLeastTokens});
  known_.clear();
  absl::Status status =
      ReserveScratch(device_, tokens * sizeof(int32_t), grown * sizeof(int32_t), &table_);
  if (status.ok()) known_.assign(table_.bytes() / sizeof(int32_t), kUnknown);
  return status;
}

void KvPositions::Compare(const KvPoolView& kv, int32_t chunk) {
  const int64_t begin = static_cast<int64_t>(chunk) * kv.chunk_tokens;
  const int32_t* const now = kv.positions + begin;
  int32_t* const known = known_.data() + begin;
  if (std::equal(now, now + kv.chunk_tokens, known)) return;
  for (int32_t i = 0; i < kv.chunk_tokens; ++i) {
    if (known[i] == now[i]) continue;
    known[i] = now[i];
    changes_.push_back({begin + i, now[i]});
  }
}

absl::StatusOr<const int32_t*> KvPositions::Upload() {
  if (!changes_.empty()) {
    const absl::StatusOr<const std::byte*> changes =
        upload_.Upload(std::as_bytes(std::span(changes_)));
    absl::Status status = changes.status();
    if (status.ok()) {
      LaunchPutPositions(stream_, {static_cast<int64_t>(changes_.size()),
                                   reinterpret_cast<const TokenPosition*>(*changes),
                                   reinterpret_cast<int32_t*>(table_.data())});
      status = StatusOfLaunches(stream_);
    }
    if (!status.ok()) {
      for (const TokenPosition& change : changes_) known_[change.token] = kUnknown;
    }
    changes_.clear();
    if (!status.ok()) return status;
  }
  return reinterpret_cast<const int32_t*>(table_.data());
}

}  // namespace refrain::kernels::cuda
