#ifndef REFRAIN_ENGINE_TEXT_SPELLING_INDEX_H_
#define REFRAIN_ENGINE_TEXT_SPELLING_INDEX_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/hash_map.h"
#include "engine/text/pair_merger.h"
#include "engine/text/seeded_hash.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// Ids by the spelling of the source, while a tokenizer is built. Views into the spec, which must
// outlive it.
class SpellingIndex {
 public:
  // Refuses sizes that do not fit together, duplicate tokens and a vocabulary beyond any model's.
  static absl::StatusOr<SpellingIndex> Create(const TokenizerSpec& spec);

  // -1: no token is spelled so.
  int32_t Find(std::string_view spelling) const;

  // Enters every merge of the spec, ranked in order. Refuses a merge whose parts or result are not
  // in the vocabulary.
  absl::StatusOr<PairMerger> BuildMerger(const TokenizerSpec& spec) const;

 private:
  HashMap<std::string_view, int32_t, SeededHash> ids_;
};

// The declared type, kNormal where the spec has none; of a printable ASCII character that was
// declared a control token kUserDefined: `tokenizers` finds it wherever it stands.
TokenType TypeOf(const TokenizerSpec& spec, size_t id);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SPELLING_INDEX_H_
