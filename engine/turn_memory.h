#ifndef REFRAIN_ENGINE_TURN_MEMORY_H_
#define REFRAIN_ENGINE_TURN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/hash_map.h"
#include "kvcache/types.h"

namespace refrain::engine {

using kvcache::TokenId;

// XXH3 with 128 bits.
struct Digest {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Digest& digest) {
    return H::combine(std::move(h), digest.low);
  }
};

Digest DigestOf(std::string_view bytes);
Digest DigestOf(std::span<const TokenId> ids);

// How a text ends: what tells it from most others of its size, for less than its digest.
struct TextEnd {
  size_t text_bytes = 0;
  uint64_t last_bytes = 0;  // a hash of the last 32, or of all
  friend auto operator<=>(const TextEnd&, const TextEnd&) = default;
};

TextEnd TextEndOf(std::string_view text);

// The prompt that a turn answered, as turn memory knows it.
struct TurnKey {
  std::string scope;   // whose conversation (TurnScope)
  std::string tenant;  // whose part of the memory its turns take
  TextEnd end;         // of the rendered prompt, generation prompt included
  Digest text;
  Digest ids;  // of its tokens
};

// Turns are found again only under the same tenant and cache salt.
std::string TurnScope(std::string_view tenant, std::string_view cache_salt);

// The ids that were generated for chat prompts, by the rendered text of the prompt.
//
// The next turn of a conversation brings the answer back as text, and the ids that were sampled
// need not be that text's own encoding. Whoever encodes the conversation finds here what was
// generated behind a part of its text, and takes those ids where they spell what stands there
// (TurnSplicer), so that the KV cache of the earlier turn is met. A prompt may have several turns:
// the choices of one request, answers asked for again.
//
// A hint, bounded in turns and bytes. When it is full, the tenant that takes the greatest part of
// it (of turns or bytes, whichever is more) forgets what it has not used for longest, so that
// nobody's conversations are lost to another's many answers. Of a prompt with too many turns, too,
// the one that was not used for longest is forgotten. Does not look at text or tokens itself.
// Written by the engine thread, read by the encode pool: any thread. Cannot fail.
class TurnMemory {
 public:
  struct Limits {
    size_t turns = 16384;
    size_t turns_per_prompt = 256;  // all of them are looked at for each new one
    size_t bytes = size_t{32} << 20;
  };
  struct Turn {
    uint64_t number = 0;  // ascends with age: the lower, the older
    Digest prompt_ids;
    std::shared_ptr<const std::vector<TokenId>> generated;
  };

  explicit TurnMemory(const Limits& limits) : limits_(limits) {}
  TurnMemory() : TurnMemory(Limits{}) {}

  // `generated` may end with what the client never saw: readers compare with the text.
  void Remember(const TurnKey& prompt, std::span<const TokenId> generated);

  // Sizes of beginnings of `text` that prompts with turns in this scope have and end like,
  // ascending: nearly always such prompts. Only sizes in `windows`, which are ascending and may
  // overlap. Costs by the prompts with sizes in these, with the memory locked.
  struct Window {
    size_t least, most;
  };
  std::vector<size_t> PromptSizes(const std::string& scope, std::string_view text,
                                  std::span<const Window> windows) const;
  // The turns of one prompt, oldest first.
  std::vector<Turn> Find(const std::string& scope, const Digest& text) const;
  // The turn was useful: it is forgotten later.
  void MarkUsed(const Turn& turn);

  size_t num_turns() const;
  size_t num_bytes() const;

 private:
  struct Tenant;
  struct Node {
    Tenant* tenant;
    std::string scope;
    Digest text;
    TextEnd end;
    Turn turn;
    uint64_t last_use = 0;  // ascends
  };
  using Nodes = std::list<Node>;
  // Who forgets first is the lowest: minus a tenant's part, then its first node's last_use.
  using Rank = std::pair<double, uint64_t>;
  struct Tenant {
    std::string name;
    Nodes nodes;  // least recently used first; never empty outside of the lock
    size_t bytes = 0;
    Rank rank;  // of by_rank_
  };
  struct Scope {
    HashMap<Digest, std::vector<Nodes::iterator>> prompts;  // oldest first
    std::map<TextEnd, size_t> ends;                         // of prompts: turns
  };

  static size_t BytesOf(const Node& node);
  void Use(Nodes::iterator node) REFRAIN_REQUIRES(mutex_);
  void Forget(Nodes::iterator node) REFRAIN_REQUIRES(mutex_);
  // Its nodes have changed, or their order. Without any it is gone.
  void RankAgain(Tenant* tenant) REFRAIN_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::map<std::string, Tenant> tenants_ REFRAIN_GUARDED_BY(mutex_);
  std::map<Rank, Tenant*> by_rank_ REFRAIN_GUARDED_BY(mutex_);
  HashMap<uint64_t, Nodes::iterator> by_number_ REFRAIN_GUARDED_BY(mutex_);
  HashMap<std::string, Scope> scopes_ REFRAIN_GUARDED_BY(mutex_);
  size_t bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  uint64_t next_number_ REFRAIN_GUARDED_BY(mutex_) = 1;
  uint64_t uses_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TURN_MEMORY_H_
