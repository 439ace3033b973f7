#ifndef REFRAIN_TESTS_SUPPORT_COLLIDING_KEYS_H_
#define REFRAIN_TESTS_SUPPORT_COLLIDING_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

// Keys as somebody would choose them who wants a table to take quadratic time.
namespace refrain::testing {

// What libstdc++'s std::hash of strings mixes a block of eight bytes with (MurmurHash64A), undone.
inline uint64_t BlockThatMixesTo(uint64_t mixed) {
  uint64_t inverse = 1;
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  mixed *= inverse;
  mixed ^= mixed >> 47;
  return mixed * inverse;
}

// 2^pairs keys whose blocks from the second on come in pairs that cancel each other: all have one
// hash.
inline std::vector<std::string> CollidingKeys(int pairs) {
  const auto append = [](uint64_t mixed, std::string* key) {
    const uint64_t block = BlockThatMixesTo(mixed);
    key->append(reinterpret_cast<const char*>(&block), sizeof(block));
  };
  std::vector<std::string> keys;
  for (uint32_t bits = 0; bits < uint32_t{1} << pairs; ++bits) {
    std::string& key = keys.emplace_back("8 bytes.");
    for (int pair = 0; pair < pairs; ++pair) {
      const uint64_t flipped = uint64_t{(bits >> pair) & 1} << 63;
      for (uint64_t i = 0; i < 2; ++i) append((1234567 + i) ^ flipped, &key);
    }
  }
  return keys;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_COLLIDING_KEYS_H_
