#ifndef REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_
#define REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/fixed_rows_memory.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_rows_memory.h"
#include "kernels/tensor_view.h"

namespace refrain::kernels::cpu {

// Which forms of the activations an operation's weights read.
struct ActivationForms {
  bool bf16 = false;
  bool fixed = false;
  bool mixed = false;  // kFixed, with 8 bits for coarse rows
  bool words = false;  // of rows of two digits in these, FixedRows::words, too
  bool int8 = false;
  bool rough = false;
  bool tiles = false;
  bool exact_tiles = false;

  void Add(const PackedMatrix& matrix, const ProductKind& kind) {
    Add(matrix.form(kind), kind.mixes);
    words |= matrix.reads_words(kind);
  }
  // `mixes`: some rows are coarse.
  void Add(ActivationForm form, bool mixes) {
    bf16 |= form == ActivationForm::kBF16;
    fixed |= form == ActivationForm::kFixedOfAll || (form == ActivationForm::kFixed && !mixes);
    mixed |= form == ActivationForm::kFixed && mixes;
    int8 |= form == ActivationForm::kInt8;
    rough |= form == ActivationForm::kRough;
    tiles |= form == ActivationForm::kTiles || form == ActivationForm::kExactTiles;
    exact_tiles |= form == ActivationForm::kExactTiles;
  }
};

// The other forms of an operation's activations, in memory that is kept from call to call and only
// grows (to the largest rows x k seen). Used by CpuBackend from the engine thread.
class ActivationBuffer {
 public:
  explicit ActivationBuffer(Isa isa) : isa_(isa) {}

  // `x` ([rows, k] f32) in the forms asked for; valid until the next call. Few rows are converted
  // on the calling thread, without waking the pool. Fixed point needs k to be a multiple of 32.
  // `coarse_rows` as LinearArgs; `forms.mixed` and `forms.exact_tiles` read it.
  Activations Prepare(const TensorView& x, ActivationForms forms,
                      std::span<const uint8_t> coarse_rows, ThreadPool& pool);

  // Memory for the tiles of what belongs to `x`, which the caller fills: Prepare of `x` takes them
  // as they are, once. `exact`: groups that are not all coarse have low terms.
  TileRowsMemory& TilesInstead(const TensorView& x, bool exact,
                               std::span<const uint8_t> coarse_rows);
  // There are none.
  void ForgetTiles() { instead_of_ = nullptr; }

 private:
  // `stands_out` as FixedKernels::quantize_row.
  FixedRows PrepareFixed(const TensorView& x, int digits, bool words, float stands_out,
                         ThreadPool& pool, FixedRowsMemory& memory);
  MixedRows PrepareMixed(const TensorView& x, bool words, std::span<const uint8_t> coarse_rows,
                         ThreadPool& pool);
  static void SizeTiles(const TensorView& x, bool exact, std::span<const uint8_t> coarse_rows,
                        TileRowsMemory& memory);
  TileRows PrepareTiles(const TensorView& x, bool exact, std::span<const uint8_t> coarse_rows,
                        ThreadPool& pool);
  void PrepareBF16(const TensorView& x, ThreadPool& pool, Activations& out);

  Isa isa_;
  std::vector<uint16_t> bf16_;
  TileRowsMemory tiles_, tiles_instead_;
  const void* instead_of_ = nullptr;  // the view's data; null: tiles_instead_ means nothing
  FixedRowsMemory fixed_, int8_, rough_;
  // Of mixed rows, as MixedRows.
  FixedRowsMemory coarse_, exact_;
  std::vector<int32_t> coarse_before_, coarse_rows_, exact_rows_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_
