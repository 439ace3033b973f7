#ifndef REFRAIN_KVCACHE_TYPES_H_
#define REFRAIN_KVCACHE_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace refrain::kvcache {

// Strong ids. An enum class costs nothing, compares, hashes with std::hash, and never converts to a
// bare int by accident; `ToIndex` is the one way to use an id as an array index.

enum class TokenId : int32_t {};      // index into the model's vocabulary
enum class ChunkId : int32_t {};      // index into the chunk pool
enum class NodeId : int32_t {};       // a node of the prefix tree; reused after it is gone
enum class SlotId : int32_t {};       // row of a running sequence, stable while it runs
enum class SequenceId : uint64_t {};  // one stream of tokens; never reused in a process
enum class SessionId : uint64_t {};   // a conversation that may come back
enum class ModuleId : uint64_t {};    // a prompt module

template <typename Id>
constexpr size_t ToIndex(Id id) {
  return static_cast<size_t>(id);
}

// Instead of a number of tokens that are kept: none, whoever has left them.
inline constexpr int32_t kForgetAll = -1;

// Where a token's K and V go.
struct TokenPlace {
  ChunkId chunk;
  int32_t offset;  // token inside the chunk
  friend bool operator==(const TokenPlace&, const TokenPlace&) = default;
};

// What an answer leaves its client to do: nobody can tell; run tools, whose results it sends next;
// read it, which is soon done, and often by a program, where it is brief.
enum class AnswerEnd : uint8_t { kOther, kToolCalls, kTurn, kBriefTurn };
inline constexpr int kAnswerEnds = 4;
inline constexpr int64_t kBriefTurnTokens = 32;  // at most

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_TYPES_H_
