#ifndef REFRAIN_KERNELS_CUDA_GEMM_TILE_H_
#define REFRAIN_KERNELS_CUDA_GEMM_TILE_H_

// Device code: the GEMM of tensor cores, a template over the weight's type and the tile. For the
// .cu files that instantiate it.
//
// A block computes a tile [kM, kN] of out. k goes by in steps of 64; of each, x [kM, 64], rounded
// to 16 bits before, and W [kN, 64] come into shared memory as 16-bit elements, rows of 128 bytes
// whose 16-byte units are exchanged (unit u of row r at u ^ (r & 7)), so that stores and ldmatrix
// meet no bank conflict. kStages steps are there or on their way: x, and W where it is stored in 16
// bits, by copies that nobody waits for before they are multiplied; quantised weights of the next
// step are read into registers, converted and stored behind the products. Warps share out the tile
// as kWarpsM x kWarpsN. With splits, blocks of the same tile (blockIdx.z) share out the steps.

#include <algorithm>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/gemm_kernels.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/load_activations.h"
#include "kernels/cuda/load_weights.h"

namespace refrain::kernels::cuda {

template <int kTileM, int kTileN, int kTileWarpsM, int kTileWarpsN>
struct GemmTile {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kWarpsM = kTileWarpsM, kWarpsN = kTileWarpsN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kStep = 64;          // of k
  static constexpr int kUnits = kStep / 8;  // 16-byte units of a row
  static constexpr int kWarpM = kM / kWarpsM, kWarpN = kN / kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;
  static constexpr int kUnitsOfX = kM * kUnits, kUnitsOfW = kN * kUnits;
  static constexpr int kOwnX = (kUnitsOfX + kThreads - 1) / kThreads;
  static constexpr int kOwnW = (kUnitsOfW + kThreads - 1) / kThreads;
  static constexpr int kStages = kM < 64 ? 4 : 3;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0);

  struct Stage {
    uint4 x[kM * kUnits];
    uint4 w[kN * kUnits];
  };
  struct Shared {
    Stage stages[kStages];
  };
};

constexpr int SwizzledUnit(int row, int unit) { return row * 8 + (unit ^ (row & 7)); }

constexpr bool IsDense(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

// What a thread brings of every step's x and W, into its places in a stage.
template <class Tile, class T, DType kDType>
class GemmOperands {
 public:
  __device__ __forceinline__ GemmOperands(const GemmLaunch& args, int64_t first_row,
                                          int64_t first_n)
      : x_end_(RoundedStride(args.weight.cols)), w_end_(args.weight.cols), args_(args) {
#pragma unroll
    for (int i = 0; i < Tile::kOwnX; ++i) {
      const int64_t row = first_row + UnitOf(i) / 8;
      x_[i] = row < args.rows ? args.rounded_x + 2 * row * x_end_ : nullptr;
    }
#pragma unroll
    for (int i = 0; i < Tile::kOwnW; ++i) {
      const int64_t n = first_n + UnitOf(i) / 8;
      w_[i] = n < args.weight.rows ? args.weight.data + n * args.weight.row_bytes : nullptr;
    }
  }

  // Puts copies of x, and of W where that is stored in 16 bits, on their way: elements from k on.
  __device__ __forceinline__ void Copy(int64_t k, typename Tile::Stage& stage) const {
#pragma unroll
    for (int i = 0; i < Tile::kOwnX; ++i) {
      const int unit = UnitOf(i);
      if (unit >= Tile::kUnitsOfX) continue;
      const int64_t at = k + unit % 8 * 8;
      const bool valid = x_[i] != nullptr && at < x_end_;
      CopyAsync16(&stage.x[SwizzledUnit(unit / 8, unit % 8)],
                  valid ? x_[i] + 2 * at : args_.rounded_x, valid);
    }
    if constexpr (IsDense(kDType)) {
#pragma unroll
      for (int i = 0; i < Tile::kOwnW; ++i) {
        const int unit = UnitOf(i);
        if (unit >= Tile::kUnitsOfW) continue;
        const int64_t at = k + unit % 8 * 8;
        const bool valid = w_[i] != nullptr && at < w_end_;
        CopyAsync16(&stage.w[SwizzledUnit(unit / 8, unit % 8)],
                    valid ? w_[i] + 2 * at : args_.weight.data, valid);
      }
    }
  }

  // Quantised weights, by way of registers. Rows end in zeros.
  __device__ __forceinline__ void Load(int64_t k) {
#pragma unroll
    for (int i = 0; i < Tile::kOwnW; ++i) {
      const int unit = UnitOf(i);
      if (unit >= Tile::kUnitsOfW) continue;
      const int64_t at = k + unit % 8 * 8;
      loaded_[i] = make_uint4(0, 0, 0, 0);
      if (w_[i] == nullptr || at >= w_end_) continue;
      float values[8];
      LoadWeights8<kDType>(w_[i], w_[i] + args_.weight.side_bytes, at, values);
      loaded_[i] = PackUnit<T>(values);
    }
  }

  __device__ __forceinline__ void Store(typename Tile::Stage& stage) const {
#pragma unroll
    for (int i = 0; i < Tile::kOwnW; ++i) {
      const int unit = UnitOf(i);
      if (unit < Tile::kUnitsOfW) stage.w[SwizzledUnit(unit / 8, unit % 8)] = loaded_[i];
    }
  }

 private:
  static __device__ __forceinline__ int UnitOf(int i) {
    return i * Tile::kThreads + static_cast<int>(threadIdx.x);
  }

  const int64_t x_end_, w_end_;
  const GemmLaunch& args_;
  const std::byte* x_[Tile::kOwnX];  // rows; null: there is none
  const std::byte* w_[Tile::kOwnW];
  uint4 loaded_[IsDense(kDType) ? 1 : Tile::kOwnW];
};

template <class Tile, class T>
__device__ __forceinline__ void MultiplyStage(
    const typename Tile::Stage& stage, int warp_row, int warp_col,
    float (&sums)[Tile::kFragmentsM][Tile::kFragmentsN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k16 = 0; k16 < Tile::kStep / 16; ++k16) {
    uint32_t a[Tile::kFragmentsM][4], b[Tile::kFragmentsN][2];
#pragma unroll
    for (int m = 0; m < Tile::kFragmentsM; ++m) {
      // Matrices: rows 0-7 and 8-15 at k 0-7, then both at k 8-15.
      const int row = warp_row + 16 * m + lane % 16;
      LoadMatrixX4(a[m], &stage.x[SwizzledUnit(row, 2 * k16 + lane / 16)]);
    }
#pragma unroll
    for (int n = 0; n < Tile::kFragmentsN; n += 2) {
      // Matrices: columns 0-7 at k 0-7 and 8-15, then columns 8-15.
      const int col = warp_col + 8 * n + lane / 16 * 8 + lane % 8;
      uint32_t pair[4];
      LoadMatrixX4(pair, &stage.w[SwizzledUnit(col, 2 * k16 + lane / 8 % 2)]);
      b[n][0] = pair[0], b[n][1] = pair[1];
      b[n + 1][0] = pair[2], b[n + 1][1] = pair[3];
    }
#pragma unroll
    for (int m = 0; m < Tile::kFragmentsM; ++m) {
#pragma unroll
      for (int n = 0; n < Tile::kFragmentsN; ++n) MmaM16N8K16<T>(sums[m][n], a[m], b[n]);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void StoreSums(
    const GemmLaunch& args, int64_t first_row, int64_t first_n,
    const float (&sums)[Tile::kFragmentsM][Tile::kFragmentsN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < Tile::kFragmentsM; ++m) {
#pragma unroll
    for (int n = 0; n < Tile::kFragmentsN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first_row + 16 * m + lane / 4 + 8 * (i / 2);
        const int64_t col = first_n + 8 * n + lane % 4 * 2 + i % 2;
        if (row >= args.rows || col >= args.weight.rows) continue;
        if (args.splits > 1) {
          args.split_sums[(blockIdx.z * args.rows + row) * args.weight.rows + col] = sums[m][n][i];
          continue;
        }
        float& out = args.out.data[row * args.out.stride + col];
        out = args.accumulate ? out + sums[m][n][i] : sums[m][n][i];
      }
    }
  }
}

template <class Tile, class T, DType kDType>
__global__ void __launch_bounds__(Tile::kThreads, IsDense(kDType) ? 2 : 1)
    TileGemm(GemmLaunch args) {
  auto& shared = *SharedMemory<typename Tile::Shared>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / Tile::kWarpsN * Tile::kWarpM;
  const int warp_col = warp % Tile::kWarpsN * Tile::kWarpN;
  const int64_t first_row = int64_t{blockIdx.y} * Tile::kM;
  const int64_t first_n = int64_t{blockIdx.x} * Tile::kN;
  const int64_t all_steps = (args.weight.cols + Tile::kStep - 1) / Tile::kStep;
  const int64_t begin = all_steps * blockIdx.z / args.splits;
  const int64_t steps = all_steps * (blockIdx.z + 1) / args.splits - begin;
  const int64_t first_k = begin * Tile::kStep;
  constexpr int kStages = Tile::kStages;
  const auto stage_of = [&](int64_t step) ->
      typename Tile::Stage& { return shared.stages[step % kStages]; };
  GemmOperands<Tile, T, kDType> operands(args, first_row, first_n);
  const auto begin_step = [&](int64_t step) {
    if (step < steps) operands.Copy(first_k + step * Tile::kStep, stage_of(step));
    CopyAsyncCommit();
  };

  float sums[Tile::kFragmentsM][Tile::kFragmentsN][4] = {};
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) begin_step(step);
  if constexpr (!IsDense(kDType)) {
    operands.Load(first_k);
    operands.Store(stage_of(0));
  }
  for (int64_t step = 0; step < steps; ++step) {
    CopyAsyncWait<kStages - 2>();
    __syncthreads();  // and nobody multiplies the stage any more that is filled next
    begin_step(step + kStages - 1);
    [[maybe_unused]] const bool more = step + 1 < steps;
    if constexpr (!IsDense(kDType)) {
      if (more) operands.Load(first_k + (step + 1) * Tile::kStep);
    }
    MultiplyStage<Tile, T>(stage_of(step), warp_row, warp_col, sums);
    if constexpr (!IsDense(kDType)) {
      if (more) operands.Store(stage_of(step + 1));
    }
  }
  StoreSums<Tile>(args, first_row + warp_row, first_n + warp_col, sums);
}

template <class Tile, class T, DType kDType>
void LaunchTile(Stream& stream, const GemmLaunch& args) {
  const auto blocks = static_cast<unsigned>((args.weight.rows + Tile::kN - 1) / Tile::kN);
  constexpr int64_t kMostRows = int64_t{65535} * Tile::kM;
  for (int64_t row = 0; row < args.rows; row += kMostRows) {
    GemmLaunch part = args;
    part.rounded_x += 2 * row * RoundedStride(args.weight.cols);
    part.out.data += row * args.out.stride;
    part.rows = std::min(kMostRows, args.rows - row);
    const auto row_blocks = static_cast<unsigned>((part.rows + Tile::kM - 1) / Tile::kM);
    Launch(stream,
           {dim3(blocks, row_blocks, static_cast<unsigned>(args.splits)), Tile::kThreads,
            sizeof(typename Tile::Shared), "TileGemm"},
           TileGemm<Tile, T, kDType>, part);
  }
}

// The tile for the number of rows. Every tile sums k in the same order.
template <DType kDType>
void LaunchTileFor(Stream& stream, const GemmLaunch& args) {
  using T = std::conditional_t<kDType == DType::kBF16, BF16, F16>;
  if (args.rows <= 16) {
    LaunchTile<GemmTile<16, 64, 1, 4>, T, kDType>(stream, args);
  } else if (args.rows <= 256) {
    LaunchTile<GemmTile<64, 64, 2, 2>, T, kDType>(stream, args);
  } else {
    LaunchTile<GemmTile<128, 128, 2, 4>, T, kDType>(stream, args);
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_GEMM_TILE_H_
