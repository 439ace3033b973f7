#ifndef REFRAIN_ENGINE_GRAMMAR_MASK_STORE_H_
#define REFRAIN_ENGINE_GRAMMAR_MASK_STORE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_set.h"
#include "engine/grammar/token_trie.h"
#include "engine/hash_map.h"

namespace refrain::engine {

// What the byte edges of a state allow by themselves: the tokens that stay within its rule (and
// what that calls) or end exactly with it, whatever called it, and the trie's nodes behind whose
// bytes the rule may have ended: what follows there is for the caller to say (the context-dependent
// tokens of XGrammar, arXiv:2411.15100, section 3.1). What the state calls at once is not in it:
// the rules that it calls have masks of their own.
struct StateMask {
  std::optional<TokenSet> many;       // the tokens, or,
  std::vector<kvcache::TokenId> few;  // where they are few, these
  std::vector<uint32_t> ends;         // nodes with children, ascending
  size_t nodes_below_ends = 0;        // in all their subtrees
  uint64_t work = 0;                  // PlaceWalk's; beyond kMostWork it is not whole

  void AddTo(TokenSet* allowed) const;
  size_t memory_bytes() const;
};

// Masks of states, made when they are first asked for and kept while there is room, for all
// grammars of one vocabulary: a JSON string's inside is the same state in each of them
// (Grammar::digest). A mask of a state that takes nearly anything costs a walk over the vocabulary,
// a millisecond or so; others little. Two threads that miss the same one both make it.
//
// Thread-safe: samplers of a step run side by side, and encode threads warm it. Cannot fail.
class MaskStore {
 public:
  // Of a mask with more nodes below its ends, what its callers take there is a mask of its own,
  // which Find makes with `back`; of others it is walked each time.
  static constexpr size_t kManyNodes = size_t{1} << 14;

  // `trie` outlives it. Beyond `most_bytes` the masks least recently used are let go.
  MaskStore(const TokenTrie* trie, size_t most_bytes, size_t many_nodes = kManyNodes)
      : trie_(*trie), most_bytes_(most_bytes), many_nodes_(many_nodes) {}

  const TokenTrie& trie() const { return trie_; }
  size_t many_nodes() const { return many_nodes_; }
  // Of a state, made of its twin. Lives as long as it is held. With `back`, of the state in a rule
  // that a call is waiting for which goes on there: the mask reaches up to the end of the caller's
  // rule then.
  std::shared_ptr<const StateMask> Find(const Grammar& grammar, StateId state,
                                        std::optional<StateId> back = std::nullopt);
  size_t memory_bytes() const;

 private:
  struct Key {
    Grammar::Digest state, back;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Key& key) {
      return H::combine(std::move(hash), key.state, key.back);
    }
  };
  struct Kept {
    Key key;
    std::shared_ptr<const StateMask> mask;
  };

  std::shared_ptr<const StateMask> Keep(const Key& key, std::shared_ptr<const StateMask> mask);

  const TokenTrie& trie_;
  const size_t most_bytes_, many_nodes_;
  mutable Mutex mutex_;
  size_t num_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  std::list<Kept> kept_ REFRAIN_GUARDED_BY(mutex_);  // used last first
  HashMap<Key, std::list<Kept>::iterator> by_key_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_MASK_STORE_H_
