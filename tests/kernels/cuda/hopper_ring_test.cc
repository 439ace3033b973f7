// Whether what is to find a wrong Hopper kernel on a card gives a thread block enough to do: more
// blocks of keys than its ring holds, tiles longer than the ring, more than one item. Where each of
// many thread blocks has a few keys, no unit of a ring is used twice, nobody waits for room and no
// barrier's parity comes back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/hopper_attention_layout.h"
#include "kernels/worse.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/cuda/attention_on_device.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::MakeEmulatedRuntime;

constexpr int kManyMultiprocessors = 132;

AttentionDevice Hopper(int num_multiprocessors) {
  AttentionDevice device;
  device.compute_capability = 90;
  device.num_multiprocessors = num_multiprocessors;
  device.shared_bytes_per_block = 227 << 10;
  device.shared_bytes_per_multiprocessor = 228 << 10;
  return device;
}

// K and V of 64 keys take two units.
int RingBlocks(int head_dim) {
  switch (head_dim) {
    case 64:
      return HopperShape<F16, 64>::kUnits / 2;
    case 96:
      return HopperShape<F16, 96>::kUnits / 2;
    case 128:
      return HopperShape<F16, 128>::kUnits / 2;
  }
  return HopperShape<F16, 256>::kUnits / 2;
}

// The most that one thread block has of each.
struct Work {
  int items = 0;
  int blocks = 0;         // of 64 keys
  int blocks_of_few = 0;  // of one tile of few queries
  int many_and_next = 0;  // blocks of a tile of many queries and the one behind it
  int queries = 0;        // of one tile
};

// Blocks of 64 keys that some row of the tile sees, in chunks of 64.
int BlocksOf(const AttentionTile& tile, const TileLists& lists, std::span<const SlotStep> steps) {
  int32_t high = tile.key_begin;
  for (int32_t m = tile.member_begin; m < tile.member_end; ++m) {
    const TileMember& member = lists.members[m];
    const RowGroup& group = lists.row_groups[member.row_group];
    const SlotStep& step = steps[group.slot];
    const int32_t end = step.key_end - step.num_rows + group.row_begin + group.num_rows;
    high = std::max(high, std::min({end, member.key_end, tile.key_end + member.key_offset}) -
                              member.key_offset);
  }
  return static_cast<int>(
      std::count_if(lists.chunks + tile.chunk_begin, lists.chunks + tile.chunk_end,
                    [&](const TileChunk& chunk) { return chunk.key_begin < high; }));
}

Work MostWork(const ChunkAttentionArgs& args, int num_multiprocessors) {
  EXPECT_EQ(args.kv.chunk_tokens, kBlockKeys);
  const AttentionSetup setup =
      SetUpAttention(AttentionKernel::kHopper,
                     {args.num_heads, args.kv.num_kv_heads, args.kv.head_dim, args.kv.chunk_tokens,
                      args.kv.dtype, false},
                     Hopper(num_multiprocessors));
  AttentionTiles tiles(setup.limits);
  tiles.Plan(args.plan, args.steps, args.mode, false);
  const TileLists lists = ReadTileLists(&tiles.list());
  const HeadBlocks heads = tiles.head_blocks();
  Work most;
  for (int block = 0; block < setup.grid_blocks; ++block) {
    int items = 0, blocks = 0;
    int many_before = 0;  // blocks of the tile before if it has many queries
    for (int item = block; item < tiles.list().num_shares * heads.count();
         item += setup.grid_blocks) {
      ++items;
      const int32_t* const share = lists.share_begin + item / heads.count();
      for (int32_t t = share[0]; t < share[1]; ++t) {
        const AttentionTile& tile = lists.tiles[t];
        const int of_tile = BlocksOf(tile, lists, args.steps);
        const int queries = tile.num_rows * heads.NumHeads(item % heads.count());
        const bool few = queries <= kFewQueries;
        if (few) most.blocks_of_few = std::max(most.blocks_of_few, of_tile);
        if (many_before > 0) {
          most.many_and_next = std::max(most.many_and_next, many_before + of_tile);
        }
        many_before = few ? 0 : of_tile;
        most.queries = std::max(most.queries, queries);
        blocks += of_tile;
      }
    }
    most.items = std::max(most.items, items);
    most.blocks = std::max(most.blocks, blocks);
  }
  return most;
}

class HopperRing : public testing::TestWithParam<int> {};

// The trial at the start: its calls are looked at, and answered with ones.
TEST_P(HopperRing, TheTrialGoesRoundItAndWaitsForRoomInIt) {
  const int head_dims[] = {GetParam()};
  auto backend = CudaBackend::Create(MakeEmulatedRuntime({}), {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  Device& device = (*backend)->device();
  Work most;
  bool all_multiprocessors = false;
  const absl::StatusOr<std::string> fault = FindAttentionFaultIn(
      head_dims, AttentionKernel::kHopper, Hopper(kManyMultiprocessors), device,
      [&](AttentionKernel kernel, int num_multiprocessors, const ChunkAttentionArgs& args) {
        if (kernel == AttentionKernel::kHopper) {
          all_multiprocessors |= num_multiprocessors == kManyMultiprocessors;
          const Work work = MostWork(args, num_multiprocessors);
          if (work.blocks > most.blocks) most = work;
        }
        const std::vector<float> ones(static_cast<size_t>(args.out.rows * args.out.cols), 1.0f);
        return device.CopyFromHost(static_cast<std::byte*>(args.out.data),
                                   reinterpret_cast<const std::byte*>(ones.data()),
                                   ones.size() * sizeof(float));
      });
  ASSERT_TRUE(fault.ok()) << fault.status();
  ASSERT_EQ(*fault, "");
  const int ring = RingBlocks(GetParam());
  EXPECT_TRUE(all_multiprocessors);
  EXPECT_GT(most.items, 1);
  // The third time round a barrier's parity is that of the first.
  EXPECT_GT(most.blocks, 2 * ring);
  // The reader is one tile ahead: it waits for those who compute either form.
  EXPECT_GT(most.blocks_of_few, ring);
  EXPECT_GT(most.many_and_next, ring);
  // Each warp has 16 of 128.
  EXPECT_GT(most.queries, 7 * 16);
}

// cuda_attention_shapes_test's cases by one multiprocessor, on a GPU by gpu_check.
TEST_P(HopperRing, TheConformanceSuiteGoesRoundItOnOneMultiprocessor) {
  AttentionScenario scenario = UnrelatedSlots({6, 2, GetParam(), 64, DType::kBF16});
  std::vector<float> out;
  const Work most = MostWork(scenario.Args(out), 1);
  const int ring = RingBlocks(GetParam());
  EXPECT_GT(most.items, 1);
  EXPECT_GT(most.blocks, 2 * ring);
  EXPECT_GT(most.blocks_of_few, ring);
  EXPECT_GT(most.many_and_next, ring);
  EXPECT_GT(most.queries, 64);  // both warpgroups
}

INSTANTIATE_TEST_SUITE_P(HeadDims, HopperRing, testing::Values(64, 96, 128, 256));

// What a unit of a ring held before is still there when it is used again.
// On so many multiprocessors as have an item each.
emulated::EmulatedOptions StaleUnits() { return {.multiprocessors = 48, .stale_copies = true}; }

double OffBy(const CudaOptions& options) {
  auto backend = CudaBackend::Create(MakeEmulatedRuntime(StaleUnits()), options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  AttentionScenario scenario = SharedRuns({2, 1, 64, 64, DType::kF16});
  const std::vector<float> want = ReferenceAttention(scenario);
  AttentionOnDevice attention(**backend, scenario);
  (*backend)->ChunkAttention(attention.args);
  const std::vector<float> got = attention.out.Read();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = Worse(worst, std::abs(double{got[i]} - want[i]));
  return worst;
}

TEST(HopperRingTest, StaleUnitsShowWhereFewMultiprocessorsHaveMuchToDo) {
  EXPECT_LT(OffBy({}), 0.01);
  EXPECT_FALSE(OffBy({.attention_multiprocessors = 1}) < 0.1);  // it may be NaN
}

TEST(HopperRingTest, TheTrialFindsStaleUnits) {
  constexpr int kOneHeadDim[] = {64};
  const AttentionCheck of_hopper = [&](AttentionKernel kernel, const AttentionDevice& properties,
                                       Device& device,
                                       const AttendFn& attend) -> absl::StatusOr<std::string> {
    if (kernel != AttentionKernel::kHopper) return "";
    return FindAttentionFaultIn(kOneHeadDim, kernel, properties, device, attend);
  };
  const auto backend =
      CudaBackend::Create(MakeEmulatedRuntime(StaleUnits()), {.check_attention = of_hopper});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT((*backend)->info().warning,
              testing::AllOf(testing::StartsWith("attention of sm_90a computes wrong results"),
                             testing::HasSubstr("head_dim 64, f16, one multiprocessor: off by ")));
}

}  // namespace
}  // namespace refrain::kernels::cuda
