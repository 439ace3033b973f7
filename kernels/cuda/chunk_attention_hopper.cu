#include "kernels/cuda/chunk_attention_hopper.h"

#include <cassert>
#include <cstdint>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/hopper_attention_few.h"
#include "kernels/cuda/hopper_attention_layout.h"
#include "kernels/cuda/hopper_attention_many.h"
#include "kernels/cuda/hopper_attention_queries.h"
#include "kernels/cuda/hopper_attention_reader.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/stream.h"

// One persistent block per multiprocessor: a warp that reads K and V of whole chunks into a ring
// (hopper_attention_reader.h) and two warpgroups that compute, in one of two forms by the number of
// a tile's queries (hopper_attention_few.h, hopper_attention_many.h).

namespace refrain::kernels::cuda {
namespace {

template <class Shape>
__device__ __forceinline__ void InitBarriers(HopperShared<Shape>& shared) {
  for (int i = 0; i < Shape::kUnits; ++i) {
    BarrierInit(&shared.full[i], 1);
    BarrierInit(&shared.empty[i], kComputeWarps);
  }
  for (int i = 0; i < 2; ++i) {
    BarrierInit(&shared.header_full[i], 1);
    BarrierInit(&shared.header_empty[i], kComputeWarps);
  }
  BarrierInitFence();
}

// The tile's queries into shared memory, in the form that the tile will be computed in.
template <class Shape>
__device__ __forceinline__ void StageQueries(const ChunkAttentionLaunch& args,
                                             const TileHeader& header,
                                             HopperShared<Shape>& shared) {
  // Until here somebody may still read the queries of the tile before.
  NamedBarrierSync(kComputeBarrier, kComputeThreads);
  if (header.num_queries <= kFewQueries) {
    LoadQueries<Shape, kFewQueries>(args, header, kFewQueries, shared.queries);
  } else {
    LoadQueries<Shape, kMaxQueries>(args, header, header.num_queries <= 64 ? 64 : kMaxQueries,
                                    shared.queries);
  }
  AsyncProxyFence();
  NamedBarrierSync(kComputeBarrier, kComputeThreads);
}

template <class Shape>
__device__ void ComputeTiles(const ChunkAttentionLaunch& args, const HeadBlocks& heads,
                             HopperShared<Shape>& shared) {
  RingPosition<Shape> position;
  for (uint32_t tile = 0;; ++tile) {
    BarrierWait(&shared.header_full[tile % 2], tile / 2 % 2);
    const TileHeader& header = shared.headers[tile % 2];
    if (Uniform(header.tiles_end) != 0) return;
    StageQueries(args, header, shared);
    const int32_t num_queries = Uniform(header.num_queries);
    if (num_queries <= 8) {
      FewQueries<Shape, 8>(args, header, shared, position).Run();
    } else if (num_queries <= 16) {
      FewQueries<Shape, 16>(args, header, shared, position).Run();
    } else if (num_queries <= kFewQueries) {
      FewQueries<Shape, kFewQueries>(args, header, shared, position).Run();
    } else {
      ManyQueries<Shape>(args, header, shared, position).Run();
    }
    if (Uniform(header.partial) != 0) MergeFinishedRows(args, heads, header, shared);
    position.count += 2 * header.num_blocks;
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(&shared.header_empty[tile % 2]);
  }
}

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kHopperThreads, 1)
    HopperAttention(const __grid_constant__ ChunkAttentionLaunch args,
                    const __grid_constant__ HeadBlocks heads) {
  using Shape = HopperShape<T, kHeadDim>;
  static_assert(sizeof(HopperShared<Shape>) <= Shape::kSharedBytes);
  HopperShared<Shape>& shared = *SharedMemory<HopperShared<Shape>>();
  if (threadIdx.x == 0) InitBarriers(shared);
  __syncthreads();
  const int warpgroup = Uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
  if (warpgroup < kWarpgroups) {
    RegistersIncrease<kComputeRegisters>();
    ComputeTiles(args, heads, shared);
  } else {
    RegistersDecrease<kReadRegisters>();
    if (threadIdx.x < kComputeThreads + 32) TileReader<Shape>(args, heads, shared).Run();
  }
}

template <class T, int kHeadDim>
void LaunchShapeOf(Stream& stream, const AttentionSetup& setup, const ChunkAttentionLaunch& args,
                   const HeadBlocks& heads) {
  const LaunchShape shape = {dim3(setup.grid_blocks), dim3(kHopperThreads),
                             sizeof(HopperShared<HopperShape<T, kHeadDim>>), "hopper attention"};
  Launch(stream, shape, HopperAttention<T, kHeadDim>, args, heads);
}

template <class T>
void LaunchHeadDim(Stream& stream, const AttentionSetup& setup, const ChunkAttentionLaunch& args,
                   const HeadBlocks& heads) {
  switch (args.kv.head_dim) {
    case 64:
      return LaunchShapeOf<T, 64>(stream, setup, args, heads);
    case 96:
      return LaunchShapeOf<T, 96>(stream, setup, args, heads);
    case 128:
      return LaunchShapeOf<T, 128>(stream, setup, args, heads);
    case 256:
      return LaunchShapeOf<T, 256>(stream, setup, args, heads);
    default:
      assert(false);
  }
}

}  // namespace

bool SupportsHopperAttention(const AttentionShapeInfo& shape, const AttentionDevice& device) {
  const bool head_dim = shape.head_dim == 64 || shape.head_dim == 96 || shape.head_dim == 128 ||
                        shape.head_dim == 256;
  const bool chunk = shape.chunk_tokens == 16 || shape.chunk_tokens == 32 ||
                     shape.chunk_tokens == 64 || shape.chunk_tokens == 128;
  const bool dtype = shape.kv_dtype == DType::kF16 || shape.kv_dtype == DType::kBF16;
  constexpr size_t kSharedBytes = HopperShape<F16, 128>::kSharedBytes;
  // Code for sm_90a runs on 9.0 and on nothing newer.
  return head_dim && chunk && dtype && !shape.reproducible && device.compute_capability == 90 &&
         device.shared_bytes_per_block >= kSharedBytes;
}

AttentionSetup SetUpHopperAttention(const AttentionShapeInfo& shape,
                                    const AttentionDevice& device) {
  AttentionSetup setup;
  setup.kernel = AttentionKernel::kHopper;
  setup.limits.num_heads = shape.num_heads;
  setup.limits.num_kv_heads = shape.num_kv_heads;
  setup.limits.chunk_tokens = shape.chunk_tokens;
  setup.limits.max_queries = kMaxQueries;
  setup.limits.num_blocks = device.num_multiprocessors;
  setup.limits.free_queries = kMaxQueries;
  setup.grid_blocks = device.num_multiprocessors;
  return setup;
}

void LaunchHopperAttention(Stream& stream, const AttentionSetup& setup,
                           const ChunkAttentionLaunch& args) {
  const HeadBlocks heads = MakeHeadBlocks(args.num_heads, args.kv.num_kv_heads, kMaxQueries);
  if (args.kv.dtype == DType::kF16) {
    LaunchHeadDim<F16>(stream, setup, args, heads);
  } else {
    LaunchHeadDim<BF16>(stream, setup, args, heads);
  }
}

}  // namespace refrain::kernels::cuda
