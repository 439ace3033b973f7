#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AMX_BLOCK_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_AMX_BLOCK_H_

#include <cstdint>

#include "kernels/cpu/attention_lines_ahead.h"
#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_pieces.h"

// The products of attention_amx_tile.h. Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {

// A block of sums in AMX tiles, kHalves x kPanels of them, 1 or 2 each. Tiles 0 to 3 are sums[row
// half][column half], 4 and 5 the halves of the left operand, 6 and 7 those of the right one.
template <class Tiles>
class AmxBlock {
 public:
  static constexpr int kRows = 16;     // of a tile
  static constexpr int kColumns = 16;  // of a tile of sums
  static constexpr int kPairs = 16;    // that one tile product goes over

  template <int kHalves, int kPanels>
  static void Zero() {
    Tiles::template Zero<0>();
    if constexpr (kPanels == 2) Tiles::template Zero<1>();
    if constexpr (kHalves == 2) Tiles::template Zero<2>();
    if constexpr (kHalves == 2 && kPanels == 2) Tiles::template Zero<3>();
  }

  // What Multiply asks memory for over so many steps, or nothing.
  template <bool kFetch>
  static auto Take(TileAhead& ahead, int steps) {
    if constexpr (kFetch) {
      return ahead.Take(steps);
    } else {
      return FetchNothing();
    }
  }

  // Adds x w over `steps` whole tiles of pairs. `fetch` as TileAhead gives it.
  template <int kHalves, int kPanels, class Fetch>
  static void Multiply(const uint32_t* x, int64_t x_stride, int steps, PairMatrix w, Fetch fetch) {
    const int64_t x_bytes = x_stride * 4;
    const int64_t w_bytes = w.stride * 4;
    for (int i = 0; i < steps; ++i, x += kPairs, w.p += kPairs * w.stride) {
      Tiles::template Load<4>(x, x_bytes);
      Tiles::template Load<6>(w.p, w_bytes);
      fetch.template Ask<kColumns>(i);
      Tiles::template DotBf16<0, 4, 6>();
      if constexpr (kPanels == 2) {
        Tiles::template Load<7>(w.p + kColumns, w_bytes);
        Tiles::template DotBf16<1, 4, 7>();
      }
      if constexpr (kHalves == 2) {
        Tiles::template Load<5>(x + kRows * x_stride, x_bytes);
        Tiles::template DotBf16<2, 5, 6>();
      }
      if constexpr (kHalves == 2 && kPanels == 2) Tiles::template DotBf16<3, 5, 7>();
    }
  }

  // `rows` of the block are stored.
  template <int kHalves, int kPanels>
  static void Store(float* out, int64_t stride, int rows) {
    StoreTile<0>(out, stride, rows);
    if constexpr (kPanels == 2) StoreTile<1>(out + kColumns, stride, rows);
    float* const lower = out + kRows * stride;
    if constexpr (kHalves == 2) StoreTile<2>(lower, stride, rows - kRows);
    if constexpr (kHalves == 2 && kPanels == 2) {
      StoreTile<3>(lower + kColumns, stride, rows - kRows);
    }
  }

  // Calls fn.operator()<halves, panels>(), as many as rows and columns ask for.
  template <class Fn>
  static void Dispatch(int rows, int columns, const Fn& fn) {
    if (rows > kRows) {
      columns > kColumns ? fn.template operator()<2, 2>() : fn.template operator()<2, 1>();
    } else {
      columns > kColumns ? fn.template operator()<1, 2>() : fn.template operator()<1, 1>();
    }
  }

 private:
  struct FetchNothing {
    template <int Elements>
    void Ask(int) const {}
  };
  template <int kTile>
  static void StoreTile(float* out, int64_t stride, int rows) {
    if (rows >= kRows) {
      Tiles::template Store<kTile>(out, stride * sizeof(float));
      return;
    }
    alignas(64) float sums[kRows][kColumns];
    Tiles::template Store<kTile>(sums, sizeof(sums[0]));
    for (int r = 0; r < rows; ++r) __builtin_memcpy(out + r * stride, sums[r], sizeof(sums[r]));
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_AMX_BLOCK_H_
