#ifndef REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_
#define REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_

#include <memory>

#include "engine/grammar/grammar.h"
#include "engine/grammar/mask_store.h"
#include "engine/shared_list.h"
#include "kvcache/types.h"

namespace refrain::engine {

// What a request's format makes of the choice of tokens: every sequence of the request follows the
// grammar by a matcher of its own. Immutable but for the masks, which lock; any threads.
struct OutputConstraint {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<MaskStore> masks;
  SharedList<kvcache::TokenId> ends;  // may come where the output may end; none with ignore_eos
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_
