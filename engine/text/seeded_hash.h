#ifndef REFRAIN_ENGINE_TEXT_SEEDED_HASH_H_
#define REFRAIN_ENGINE_TEXT_SEEDED_HASH_H_

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

namespace refrain::engine {

inline uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// A hash of its own for each table of what a model's file holds: who writes one could choose texts
// that collide under a hash that is known, and a table of those takes quadratic time to fill. For
// texts that clients choose, who can try again and again, there is SipHash. Any thread.
class SeededHash {
 public:
  size_t operator()(std::string_view text) const {
    return XXH3_64bits_withSeed(text.data(), text.size(), seed_);
  }

 private:
  uint64_t seed_ = RandomSeed();
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_SEEDED_HASH_H_
