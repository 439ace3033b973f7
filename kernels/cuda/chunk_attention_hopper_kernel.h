#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_KERNEL_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_KERNEL_H_

#include <cassert>
#include <cstdint>

#include "kernels/cuda/chunk_attention_hopper.h"
#include "kernels/cuda/device_language.h"
#include "kernels/cuda/hopper_attention_few.h"
#include "kernels/cuda/hopper_attention_layout.h"
#include "kernels/cuda/hopper_attention_many.h"
#include "kernels/cuda/hopper_attention_merge.h"
#include "kernels/cuda/hopper_attention_queries.h"
#include "kernels/cuda/hopper_attention_reader.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/stream.h"

// One persistent block per multiprocessor: a warp that reads K and V of whole chunks into a ring
// (hopper_attention_reader.h) and two warpgroups that compute, in one of two forms by the number of
// a tile's queries (hopper_attention_few.h, hopper_attention_many.h). Included by the .cu file of
// each element type.

namespace refrain::kernels::cuda {

// By the first warp, a lane for each: one after the other they would take half a microsecond.
template <class Shape>
__device__ __forceinline__ void InitBarriers(HopperShared<Shape>& shared, int lane) {
  static_assert(Shape::kUnits <= 32);
  if (lane < Shape::kUnits) {
    BarrierInit(&shared.full[lane], 1);
    BarrierInit(&shared.empty[lane], kComputeWarps);
  }
  if (lane < 2) {
    BarrierInit(&shared.header_full[lane], 1);
    BarrierInit(&shared.header_empty[lane], kComputeWarps);
  }
  BarrierInitFence();
  AsyncProxyFence();  // bulk copies, which are of that proxy, arrive at them
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

// By the warps that neither read nor compute: the tile list and the steps come into the first-level
// cache, all lines at once, while the reading warp would go from one to the next.
__device__ __forceinline__ void FetchLists(const ChunkAttentionLaunch& args, uint32_t thread) {
  constexpr uint32_t kLineBytes = 128, kMostBytes = 12 << 10;  // of what shared memory leaves
  const auto fetch = [&](const void* data, uint32_t bytes) {
    bytes = bytes < kMostBytes ? bytes : kMostBytes;
    for (uint32_t at = thread * kLineBytes; at < bytes; at += kIdleThreads * kLineBytes) {
      FetchLine(static_cast<const unsigned char*>(data) + at);
    }
  };
  const uint32_t bytes = args.tiles->bytes;
  const auto slots = static_cast<uint32_t>(args.tiles->num_slots);
  fetch(args.steps, slots * static_cast<uint32_t>(sizeof(SlotStep)));
  fetch(args.tiles, bytes);
}

template <class Shape>
__device__ void ComputeTiles(const ChunkAttentionLaunch& args, const HeadBlocks& heads,
                             HopperShared<Shape>& shared) {
  RingPosition<Shape> position;
  WaitForKernelBefore();
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
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __trap();  // never launched on such a device
#else
  using Shape = HopperShape<T, kHeadDim>;
  static_assert(sizeof(HopperShared<Shape>) <= Shape::kSharedBytes);
  HopperShared<Shape>& shared = *SharedMemory<HopperShared<Shape>>();
  if (threadIdx.x < 32) InitBarriers(shared, static_cast<int>(threadIdx.x));
  __syncthreads();
  const int warpgroup = Uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
  if (warpgroup < kWarpgroups) {
    RegistersIncrease<kComputeRegisters>();
    ComputeTiles(args, heads, shared);
  } else {
    RegistersDecrease<kReadRegisters>();
    if (threadIdx.x < kComputeThreads + 32) {
      TileReader<Shape>(args, heads, shared).Run();
    } else {
      FetchLists(args, threadIdx.x - (kComputeThreads + 32));
    }
  }
#endif
}

template <class T, int kHeadDim>
void LaunchHopperOfHeadDim(Stream& stream, int grid_blocks, const HeadBlocks& heads,
                           const ChunkAttentionLaunch& args) {
  using Shared = HopperShared<HopperShape<T, kHeadDim>>;
  Launch(stream,
         {dim3(grid_blocks), dim3(kHopperThreads), sizeof(Shared), "hopper attention", args.early},
         HopperAttention<T, kHeadDim>, args, heads);
}

template <class T>
void LaunchHopperOfType(Stream& stream, int grid_blocks, const HeadBlocks& heads,
                        const ChunkAttentionLaunch& args) {
  switch (args.kv.head_dim) {
    case 64:
      return LaunchHopperOfHeadDim<T, 64>(stream, grid_blocks, heads, args);
    case 96:
      return LaunchHopperOfHeadDim<T, 96>(stream, grid_blocks, heads, args);
    case 128:
      return LaunchHopperOfHeadDim<T, 128>(stream, grid_blocks, heads, args);
    case 256:
      return LaunchHopperOfHeadDim<T, 256>(stream, grid_blocks, heads, args);
    default:
      assert(false);
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_KERNEL_H_
