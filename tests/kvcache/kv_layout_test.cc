#include "kvcache/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refrain::kvcache {
namespace {

using ::testing::HasSubstr;

TEST(KvLayoutTest, LayersArePaddedToFourKibibytes) {
  // SmolLM2: 30 layers, 3 KV heads of 64; f16.
  const auto layout = KvLayout::Create({30, 3, 64, 64, KvElement::kF16});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->head_bytes(), 64u * 64 * 2);
  EXPECT_EQ(layout->v_offset_bytes(), 3u * 64 * 64 * 2);
  EXPECT_EQ(layout->layer_bytes(), 49152u);
  EXPECT_EQ(layout->chunk_bytes(), 30u * 49152);
  EXPECT_EQ(layout->packing(), KvPackingTag::kTransposedK);

  // fp8: half of that.
  const auto narrow = KvLayout::Create({30, 3, 64, 64, KvElement::kF8E4M3});
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(narrow->head_bytes(), 64u * 64);
  EXPECT_EQ(2 * narrow->chunk_bytes(), layout->chunk_bytes());

  const auto small = KvLayout::Create({5, 1, 8, 16, KvElement::kF32});
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->layer_bytes(), 4096u);  // 2 * 16 * 8 * 4 = 1,024 used
}

TEST(KvLayoutTest, HeadsOfAllLayersDoNotOverlap) {
  const auto layout = KvLayout::Create({3, 5, 24, 48, KvElement::kBF16, KvPackingTag::kPairs});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->packing(), KvPackingTag::kPairs);
  size_t end = 0;
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(layout->KeyOffset(layer, 0) % KvLayout::kLayerAlignmentBytes, 0u);
    for (int head = 0; head < 5; ++head) {
      EXPECT_GE(layout->KeyOffset(layer, head), end);
      end = layout->KeyOffset(layer, head) + layout->head_bytes();
    }
    for (int head = 0; head < 5; ++head) {
      EXPECT_GE(layout->ValueOffset(layer, head), end);
      end = layout->ValueOffset(layer, head) + layout->head_bytes();
    }
  }
  EXPECT_LE(end, layout->chunk_bytes());
}

TEST(KvLayoutTest, RefusesDimensionsThatNoKernelTakes) {
  EXPECT_THAT(KvLayout::Create({0, 1, 8, 16}).status().message(), HasSubstr("num_layers is 0"));
  EXPECT_THAT(KvLayout::Create({1, -3, 8, 16}).status().message(), HasSubstr("num_kv_heads is -3"));
  EXPECT_THAT(KvLayout::Create({1, 1, 9, 16}).status().message(), HasSubstr("head_dim is 9"));
  EXPECT_THAT(KvLayout::Create({1, 1, 264, 16}).status().message(), HasSubstr("head_dim is 264"));
  EXPECT_THAT(KvLayout::Create({1, 1, 8, 24}).status().message(), HasSubstr("chunk_tokens is 24"));
}

}  // namespace
}  // namespace refrain::kvcache
