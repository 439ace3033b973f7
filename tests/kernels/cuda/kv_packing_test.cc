#include "kernels/cuda/kv_packing.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace refrain::kernels::cuda {
namespace {

// Every element has a place of its own, rows stay in their rows, units of 16 bytes stay whole.
TEST(KvPackingTest, IsAPermutation) {
  for (const int bytes : {2, 4}) {
    for (const int d : {8, 10, 32, 40, 64, 80, 96, 128, 160, 192, 256}) {
      for (const int c : {16, 64, 128}) {
        std::vector<bool> used(c * d, false);
        for (int t = 0; t < c; ++t) {
          for (int i = 0; i < d; ++i) {
            const int at = KvElementIndex(bytes, d, c, t, i);
            ASSERT_TRUE(at >= 0 && at < c * d && !used[at]);
            used[at] = true;
            const bool swizzled = bytes == 2 && d % 32 == 0;
            ASSERT_TRUE(swizzled || at == t * d + i);
            const int before = i == 0 ? -1 : KvElementIndex(bytes, d, c, t, i - 1);
            ASSERT_TRUE(!swizzled || i % 8 == 0 || at == before + 1);
          }
        }
      }
    }
  }
}

// The eight rows of an 8 x 8 matrix lie in eight different groups of four banks.
TEST(KvPackingTest, SpreadsTheRowsOfAMatrixOverAllBanks) {
  for (const int d : {32, 64, 96, 128, 256}) {
    for (int t = 0; t < 64; t += 8) {
      for (int i = 0; i < d; i += 8) {
        std::set<int> banks;
        for (int r = 0; r < 8; ++r) banks.insert(KvElementIndex(2, d, 64, t + r, i) / 8 % 8);
        EXPECT_EQ(banks.size(), 8u) << d << " " << t << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
