#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/value.h"
#include "tests/support/colliding_keys.h"

namespace refrain::engine::jinja {
namespace {

using refrain::testing::CollidingKeys;

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
