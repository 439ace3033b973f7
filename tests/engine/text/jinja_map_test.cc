#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {
namespace {

// What libstdc++'s std::hash of strings mixes a block of eight bytes with (MurmurHash64A), undone.
uint64_t BlockThatMixesTo(uint64_t mixed) {
  uint64_t inverse = 1;
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  mixed *= inverse;
  mixed ^= mixed >> 47;
  return mixed * inverse;
}

// Keys whose blocks from the second on come in pairs that cancel each other: all have one hash. The
// map puts one character before a key.
std::vector<std::string> CollidingKeys(int pairs) {
  const auto append = [](uint64_t mixed, std::string* key) {
    const uint64_t block = BlockThatMixesTo(mixed);
    key->append(reinterpret_cast<const char*>(&block), sizeof(block));
  };
  std::vector<std::string> keys;
  for (uint32_t bits = 0; bits < uint32_t{1} << pairs; ++bits) {
    std::string& key = keys.emplace_back("padding");
    for (int pair = 0; pair < pairs; ++pair) {
      const uint64_t flipped = uint64_t{(bits >> pair) & 1} << 63;
      for (uint64_t i = 0; i < 2; ++i) append((1234567 + i) ^ flipped, &key);
    }
  }
  return keys;
}

double SecondsToMake(const std::vector<std::string>& keys) {
  const auto begin = std::chrono::steady_clock::now();
  Map map;
  for (const std::string& key : keys) map.Set(key, Value::Int(1));
  EXPECT_EQ(map.size(), keys.size());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Keys come from requests: nobody may choose such as make a map quadratic.
TEST(JinjaMapTest, TakesAsLongForKeysThatCollideUnderAKnownHash) {
  const std::vector<std::string> colliding = CollidingKeys(14);
  ASSERT_EQ(std::hash<std::string>()("s" + colliding.front()),
            std::hash<std::string>()("s" + colliding.back()));
  std::vector<std::string> others = colliding;
  std::mt19937_64 random(1);
  for (std::string& key : others) {
    for (char& c : key) c = static_cast<char>(random());
  }
  const double usual = SecondsToMake(others);
  EXPECT_LT(SecondsToMake(colliding), 10 * usual + 0.01);
}

}  // namespace
}  // namespace refrain::engine::jinja
