#include "engine/grammar/token_set.h"

#include <bit>

namespace refrain::engine {

size_t TokenSet::Count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

}  // namespace refrain::engine
