#ifndef REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINER_H_
#define REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINER_H_

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_shares.h"
#include "engine/grammar/mask_store.h"
#include "engine/grammar/output_format.h"
#include "engine/grammar/output_grammar.h"
#include "engine/grammar/token_trie.h"
#include "engine/text/encode_pace.h"
#include "engine/text/tokenizer.h"

namespace refrain::engine {

// Makes grammars of formats for one model, and keeps those asked for last: a client sends the same
// schema with each of its requests. The vocabulary's trie is made when the first format comes;
// servers that never see one do not pay for it.
//
// All grammars in being, those of requests that wait among them, take `most_grammar_bytes`, about:
// nobody else counts them. A tenant has its share of them (GrammarShares). Thread-safe: encode
// threads. Failure: as MakeOutputGrammar, and RESOURCE_EXHAUSTED where a tenant has its share, with
// when to come back (WithRetryAfter).
class OutputConstrainer {
 public:
  static constexpr size_t kMostGrammarBytes = size_t{1} << 28;
  static constexpr size_t kMostMaskBytes = size_t{1} << 26;
  // Kept for whoever comes next, at most.
  static constexpr size_t kKeptGrammars = 64;
  static constexpr size_t kKeptBytes = size_t{1} << 25;

  struct Made {
    std::shared_ptr<const Grammar> grammar;
    std::shared_ptr<MaskStore> masks;
  };

  // The tokenizer outlives it. `vocab_size`: of the logits. The clock outlives the grammars, too;
  // null = the steady clock.
  OutputConstrainer(const Tokenizer* tokenizer, size_t vocab_size,
                    size_t most_grammar_bytes = kMostGrammarBytes, const Clock* clock = nullptr)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        shares_(std::make_shared<GrammarShares>(most_grammar_bytes, clock)) {}

  // What was made of the same before and is kept. Quick.
  std::optional<Made> FindOrNone(const OutputFormat& format, const OutputPlace& place);
  // `pace` as of MakeOutputGrammar.
  absl::StatusOr<Made> Make(const OutputFormat& format, const OutputPlace& place,
                            const std::string& tenant, EncodePace* pace);

  size_t grammar_bytes() const { return shares_->bytes(); }  // of all in being

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes = 0;  // with the key
  };

  // Waits as long as another thread makes the trie, once in a process.
  std::shared_ptr<MaskStore> Masks();
  std::shared_ptr<const Grammar> FindKept(const std::string& key) REFRAIN_REQUIRES(mutex_);
  void Keep(Kept kept, std::list<Kept>* dropped) REFRAIN_REQUIRES(mutex_);

  const Tokenizer* tokenizer_;
  const size_t vocab_size_;
  const std::shared_ptr<GrammarShares> shares_;  // which a grammar counts in as long as it lives
  Mutex masks_mutex_;
  std::shared_ptr<MaskStore> masks_ REFRAIN_GUARDED_BY(masks_mutex_);
  mutable Mutex mutex_;
  std::list<Kept> kept_ REFRAIN_GUARDED_BY(mutex_);  // the last used first
  size_t kept_bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINER_H_
