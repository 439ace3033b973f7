#include "kvcache/chunk_pool.h"

#include <gtest/gtest.h>

namespace refrain::kvcache {
namespace {

TEST(ChunkPoolTest, TouchesANewChunkOnlyWhenNoOtherIsFree) {
  ChunkPool pool(4);
  const ChunkId a = *pool.AllocateOrNull();
  const ChunkId b = *pool.AllocateOrNull();
  pool.Release(a);
  pool.Release(b);
  EXPECT_FALSE(pool.IsTaken(a));
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

}  // namespace
}  // namespace refrain::kvcache
