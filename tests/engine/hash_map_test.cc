#include "engine/hash_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::RefuseEachAllocation;

constexpr int kMany = 1000;
constexpr int kGrowths = 6;  // at least

// Whichever growth is refused: nothing is lost, and it grows when it is asked again.
TEST(HashMapTest, AMapThatCannotGrowIsWhatItWas) {
  int64_t refused = 0;
  HashMap<int, std::string> map;
  for (int i = 0; i < kMany; ++i) {
    refused += RefuseEachAllocation([&] { map.try_emplace(i, std::string()); });
    ASSERT_EQ(map.size(), i + 1u);
    ASSERT_TRUE(map.contains(i / 2));
  }
  EXPECT_GE(refused, kGrowths);
}

TEST(HashMapTest, ASetThatCannotGrowIsDestroyedLikeAnyOther) {
  const int64_t refused = RefuseEachAllocation([] {
    HashSet<int> set;
    for (int i = 0; i < kMany; ++i) set.insert(i);
    EXPECT_EQ(set.size(), static_cast<size_t>(kMany));
  });
  EXPECT_GE(refused, kGrowths);
}

}  // namespace
}  // namespace refrain::engine
