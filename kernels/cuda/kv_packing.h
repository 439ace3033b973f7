#ifndef REFRAIN_KERNELS_CUDA_KV_PACKING_H_
#define REFRAIN_KERNELS_CUDA_KV_PACKING_H_

#include <cstdint>

namespace refrain::kernels::cuda {

// Where an element of K or V lies inside one head of one chunk on a CUDA device
// (KvPacking::kSwizzledRows). The one place that knows; constexpr, so device code may call it too.
//
// K and V are both token rows. 2-byte elements are cut along the head dimension into panels of w
// elements: 64 where head_dim is a multiple of 64, 32 where it is one of 32 only. Panel p is
// [chunk_tokens][w], panels follow one another; inside it, the 16-byte unit u of token t lies at
// unit u ^ (t & 7) of its row (w = 64: rows of 128 bytes) or u ^ ((t >> 1) & 3) (w = 32: rows of 64
// bytes). That is what wgmma's 128- and 64-byte swizzle modes expect of a tile that begins at a
// multiple of 1,024 or 512 bytes, and what ldmatrix reads without bank conflicts: a head comes into
// shared memory by one linear copy and is used in place.
//
// Everything else (elements of 4 bytes and of 1, any other head_dim) is plain rows
// [chunk_tokens][head_dim].

// Elements per panel; 0 = plain rows.
constexpr int KvPanelElements(int element_bytes, int head_dim) {
  if (element_bytes != 2 || head_dim % 32 != 0) return 0;
  return head_dim % 64 == 0 ? 64 : 32;
}

inline constexpr int kKvUnitElements = 8;  // 2-byte elements in a swizzle unit of 16 bytes

// Where unit `unit` of token `token` lies in its row of a panel of `panel` (64 or 32) elements.
constexpr int KvSwizzledUnit(int panel, int token, int unit) {
  return panel == 64 ? unit ^ (token & 7) : unit ^ ((token >> 1) & 3);
}

// Index, in elements from the beginning of the head's K (or V) in the chunk.
constexpr int KvElementIndex(int element_bytes, int head_dim, int chunk_tokens, int token,
                             int dim) {
  const int panel = KvPanelElements(element_bytes, head_dim);
  if (panel == 0) return token * head_dim + dim;
  const int column = dim % panel;
  const int unit = KvSwizzledUnit(panel, token, column / kKvUnitElements);
  return (dim / panel * chunk_tokens + token) * panel + unit * kKvUnitElements +
         column % kKvUnitElements;
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_KV_PACKING_H_
