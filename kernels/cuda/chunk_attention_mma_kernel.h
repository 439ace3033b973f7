#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_

#include <cstdint>

#include "kernels/cuda/attention_states.h"
#include "kernels/cuda/mma_attention_layout.h"
#include "kernels/cuda/mma_attention_tile.h"

// The mma.sync kernel as a template over the type of K and V; included by chunk_attention_mma_*.cu
// only.
//
// A thread block of four warps works on one tile at a time. K and V come in blocks of 64 keys into
// one of two stages by cp.async (of E4M3, through registers), gathered key by key: part-full
// chunks, chunks of any size and segments that begin inside a chunk make no difference behind that.
// S = Q K^T with queries (rows x heads of the group) as the rows of A, online softmax in registers,
// O += P V with the weights taken from the accumulators as they are (the layouts of an accumulator
// and of A are the same).
//
// With up to 16 queries the warps share out the keys of a block, each with a softmax state of its
// own, merged at the tile's end; with up to 32, and with more, they share out queries.
namespace refrain::kernels::cuda {

template <class T, int kHeadDim, bool kReproducible>
__global__ void __launch_bounds__(kMmaThreads)
    MmaAttentionKernel(ChunkAttentionLaunch args, HeadBlocks head_blocks) {
  MmaShared* const shared = SharedMemory<MmaShared>();
  const TileLists lists = ReadTileLists(args.tiles);
  const int32_t num_items = args.tiles->num_shares * head_blocks.count();
  for (int32_t item = blockIdx.x; item < num_items; item += gridDim.x) {
    const int32_t share = item / head_blocks.count();
    const int32_t head_block = item % head_blocks.count();
    const int32_t first_head = head_blocks.FirstHead(head_block);
    const int32_t num_heads = head_blocks.NumHeads(head_block);
    const int32_t kv_head = head_blocks.KvHead(head_block);
    for (int32_t t = lists.share_begin[share]; t < lists.share_begin[share + 1]; ++t) {
      const AttentionTile tile = lists.tiles[t];
      ReadTileRows(args, lists, tile, shared->rows);
      __syncthreads();
      const auto attend = [&]<int kRowWarps>() {
        MmaTile<T, kHeadDim, kReproducible, kRowWarps>(args, lists, tile, first_head, num_heads,
                                                       kv_head, shared)
            .Attend();
      };
      const int num_queries = tile.num_rows * num_heads;
      if (kReproducible || num_queries > 32) {
        attend.template operator()<4>();  // always, where the arithmetic may not depend on others
      } else if (num_queries > 16) {
        attend.template operator()<2>();
      } else {
        attend.template operator()<1>();
      }
      FinishTile(args, head_blocks, lists, tile, head_block, shared->finished);
      __syncthreads();
    }
  }
}

template <class T, int kHeadDim, bool kReproducible>
void LaunchMmaKernel(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                     const ChunkAttentionLaunch& args) {
  LaunchShape shape;
  shape.grid = dim3(grid_blocks);
  shape.block = dim3(kMmaThreads);
  shape.shared_bytes = MmaAttentionSharedBytes(kHeadDim, kReproducible);
  shape.kernel = "chunk attention (mma)";
  Launch(stream, shape, MmaAttentionKernel<T, kHeadDim, kReproducible>, args, head_blocks);
}

template <class T, bool kReproducible>
void LaunchMmaOfHeadDim(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                        const ChunkAttentionLaunch& args) {
  switch (args.kv.head_dim) {
    case 64:
      return LaunchMmaKernel<T, 64, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 96:
      return LaunchMmaKernel<T, 96, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 128:
      return LaunchMmaKernel<T, 128, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 256:
      return LaunchMmaKernel<T, 256, kReproducible>(stream, grid_blocks, head_blocks, args);
  }
}

template <class T>
void LaunchMmaOfType(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                     const ChunkAttentionLaunch& args) {
  if (args.reproducible) {
    LaunchMmaOfHeadDim<T, true>(stream, grid_blocks, head_blocks, args);
  } else {
    LaunchMmaOfHeadDim<T, false>(stream, grid_blocks, head_blocks, args);
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_
