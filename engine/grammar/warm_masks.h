#ifndef REFRAIN_ENGINE_GRAMMAR_WARM_MASKS_H_
#define REFRAIN_ENGINE_GRAMMAR_WARM_MASKS_H_

#include <cstddef>

#include "engine/grammar/grammar.h"
#include "engine/grammar/mask_store.h"
#include "engine/text/encode_pace.h"

namespace refrain::engine {

// Makes the masks of a grammar that take long, if they are not there: of states that take nearly
// any byte, and of those with their callers where a rule ends behind next to nothing. Else a step
// would make them, and all that runs would wait. Of a large grammar most are left to steps.
//
// Any thread; as long as a walk over the vocabulary for each, between which `pace` may hold it up
// or stop it, and be null. Cannot fail.
inline constexpr size_t kMostWarmedAlone = 16, kMostWarmedWithCallers = 4;
void WarmMasks(const Grammar& grammar, MaskStore& masks, EncodePace* pace = nullptr);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_WARM_MASKS_H_
