#include "kernels/cuda/chunk_attention_mma_kernel.h"

namespace refrain::kernels::cuda {

void LaunchMmaAttentionF16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                           const ChunkAttentionLaunch& args) {
  LaunchMmaOfType<F16>(stream, grid_blocks, head_blocks, args);
}

namespace {

template <int kHeadDim>
constexpr size_t SharedBytes(bool reproducible) {
  return reproducible ? MmaLayout<kHeadDim>::kTotalsEnd : MmaLayout<kHeadDim>::kQueriesEnd;
}

}  // namespace

size_t MmaAttentionSharedBytes(int head_dim, bool reproducible) {
  switch (head_dim) {
    case 64:
      return SharedBytes<64>(reproducible);
    case 96:
      return SharedBytes<96>(reproducible);
    case 128:
      return SharedBytes<128>(reproducible);
  }
  return SharedBytes<256>(reproducible);
}

bool MmaAttentionHas(int head_dim, DType kv_dtype) {
  const bool dim = head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
  return dim && (kv_dtype == DType::kF16 || kv_dtype == DType::kBF16 || kv_dtype == DType::kF8E4M3);
}

void LaunchMmaAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                        const ChunkAttentionLaunch& args) {
  switch (args.kv.dtype) {
    case DType::kF16:
      return LaunchMmaAttentionF16(stream, grid_blocks, head_blocks, args);
    case DType::kF8E4M3:
      return LaunchMmaAttentionE4m3(stream, grid_blocks, head_blocks, args);
    default:
      return LaunchMmaAttentionBf16(stream, grid_blocks, head_blocks, args);
  }
}

}  // namespace refrain::kernels::cuda
