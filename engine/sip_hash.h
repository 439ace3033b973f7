#ifndef REFRAIN_ENGINE_SIP_HASH_H_
#define REFRAIN_ENGINE_SIP_HASH_H_

#include <cstdint>
#include <string_view>

namespace refrain::engine {

struct SipKey {
  uint64_t low = 0, high = 0;
};

// SipHash-2-4 (Aumasson and Bernstein, 2012): who does not know the key cannot tell a text's hash,
// nor find texts of equal hash. For texts that a client chooses; XXH3 is no such hash, whatever its
// seed.
uint64_t SipHash(const SipKey& key, std::string_view text);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SIP_HASH_H_
