#include "engine/grammar/grammar.h"

namespace refrain::engine {

size_t Grammar::memory_bytes() const {
  return sizeof(*this) + starts_.capacity() * sizeof(starts_[0]) +
         states_.capacity() * sizeof(states_[0]) + byte_edges_.capacity() * sizeof(byte_edges_[0]) +
         call_edges_.capacity() * sizeof(call_edges_[0]);
}

}  // namespace refrain::engine
