#include "kernels/cuda/gemm.h"

#include <algorithm>

#include "kernels/cuda/gemm_kernels.h"

namespace refrain::kernels::cuda {
namespace {

// Up to here one reading of the weights is all that the FMA kernel costs.
constexpr int64_t kFmaRows = 4;

// As gemm_tile.h has them: rows and columns of a tile of few rows, and its steps of k.
constexpr int64_t kFewRows = 256;
constexpr int64_t kTileRows = 64;
constexpr int64_t kTileCols = 64;
constexpr int64_t kStep = 64;
// Less than so many steps do not pay for their sums being stored and read; those of a tile of up to
// 16 rows are a quarter of a larger one's.
constexpr int64_t kLeastSteps = 8;
constexpr int64_t kSmallTileRows = 16;
constexpr int64_t kLeastStepsOfSmallTile = 4;
constexpr int64_t kMostSplits = 8;

}  // namespace

int ChooseSplits(const GemmLaunch& args, int multiprocessors) {
  if (args.rows > kFewRows || args.rows == 0 || args.weight.rows == 0) return 1;
  const int64_t tiles =
      ((args.weight.rows + kTileCols - 1) / kTileCols) * ((args.rows + kTileRows - 1) / kTileRows);
  const int64_t steps = (args.weight.cols + kStep - 1) / kStep;
  // At least four blocks for each multiprocessor (where fewer fit the others follow), whose loads
  // hide one another's latency: rounded down, a product of more tiles than half of that would be
  // left with one block where four fit. Quantised weights are fewer bytes under way for each block,
  // and wait for their unpacking.
  const int64_t blocks = (Traits(args.weight.dtype).quantized ? 6 : 4) * int64_t{multiprocessors};
  const int64_t wanted = (blocks + tiles - 1) / tiles;
  const int64_t least = args.rows <= kSmallTileRows ? kLeastStepsOfSmallTile : kLeastSteps;
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, steps / least), 1, kMostSplits));
}

size_t MostSplitSumBytes(const DeviceMatrix& weight, int64_t rows, int multiprocessors) {
  size_t most = 0;
  GemmLaunch args;
  args.weight = weight;
  for (args.rows = 1; args.rows <= std::min(rows, kFewRows); ++args.rows) {
    if (ChooseGemm(weight.dtype, args.rows) != GemmKernel::kTile) continue;
    args.splits = ChooseSplits(args, multiprocessors);
    if (args.splits > 1) most = std::max(most, SplitSumBytes(args));
  }
  return most;
}

GemmKernel ChooseGemm(DType weight, int64_t rows) {
  return HasTileKernel(weight) && rows > kFmaRows ? GemmKernel::kTile : GemmKernel::kFma;
}

void LaunchGemm(Stream& stream, GemmKernel kernel, const GemmLaunch& args) {
  if (args.rows == 0 || args.weight.rows == 0) return;
  if (kernel == GemmKernel::kTile) {
    const bool launched = LaunchDenseTileGemm(stream, args) ||
                          LaunchBlock32TileGemm(stream, args) ||
                          LaunchBlock256TileGemm(stream, args);
    if (launched && args.splits > 1) LaunchAddSplits(stream, args);
    if (launched) return;
  }
  LaunchFmaGemm(stream, args);
}

}  // namespace refrain::kernels::cuda
