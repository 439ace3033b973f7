#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
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

// Keys whose blocks from the second on come in pairs that cancel each other: all have one hash.
std::vector<std::string> CollidingKeys(int pairs) {
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
  ASSERT_EQ(std::hash<std::string>()(colliding.front()),
            std::hash<std::string>()(colliding.back()));
  std::vector<std::string> others = colliding;
  std::mt19937_64 random(1);
  for (std::string& key : others) {
    for (char& c : key) c = static_cast<char>(random());
  }
  const double usual = SecondsToMake(others);
  EXPECT_LT(SecondsToMake(colliding), 10 * usual + 0.01);
}

// The index looks at the texts of the entries: those of a copy outlive the map that it was made of.
TEST(JinjaMapTest, CopiesFindTheirKeysWithoutTheOriginal) {
  Map copy, moved;
  {
    Map map;
    for (int i = 0; i < 100; ++i) map.Set("key " + std::to_string(i), Value::Int(i));
    map.Set("key 7", Value::Int(-7));
    copy = map;
    moved = std::move(map);
  }
  for (const Map* map : {&copy, &moved}) {
    EXPECT_EQ(map->size(), 100u);
    EXPECT_EQ(map->FindOrNull("key 7")->AsInt(), -7);
    EXPECT_EQ(map->FindOrNull(Value::String("key 99"))->AsInt(), 99);
    EXPECT_EQ(map->FindOrNull("key 100"), nullptr);
  }
}

}  // namespace
}  // namespace refrain::engine::jinja
