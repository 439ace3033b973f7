#include "kvcache/chunk_pool.h"

#include <gtest/gtest.h>

namespace refrain::kvcache {
namespace {

TEST(ChunkPoolTest, TouchesANewChunkOnlyWhenNoOtherIsFree) {
  ChunkPool pool(4);
  const ChunkId a = *pool.AllocateOrNull();
  const ChunkId b = *pool.AllocateOrNull();
  EXPECT_TRUE(pool.Release(a));
  EXPECT_TRUE(pool.Release(b));
  EXPECT_EQ(*pool.AllocateOrNull(), b);  // freed last
  EXPECT_EQ(*pool.AllocateOrNull(), a);
  EXPECT_EQ(pool.touched_chunks(), 2);
}

TEST(ChunkPoolTest, GivesNothingWhenAllAreTaken) {
  ChunkPool pool(1);
  ASSERT_TRUE(pool.AllocateOrNull().has_value());
  EXPECT_EQ(pool.AllocateOrNull(), std::nullopt);
  EXPECT_EQ(pool.free_chunks(), 0);
}

TEST(ChunkPoolTest, SharedChunkIsFreedByTheLastReference) {
  ChunkPool pool(2);
  const ChunkId a = *pool.AllocateOrNull();
  pool.Share(a);
  EXPECT_FALSE(pool.Release(a));
  EXPECT_EQ(pool.free_chunks(), 1);
  EXPECT_TRUE(pool.Release(a));
  EXPECT_EQ(pool.free_chunks(), 2);
}

}  // namespace
}  // namespace refrain::kvcache
