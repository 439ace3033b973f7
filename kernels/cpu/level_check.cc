#include "kernels/cpu/level_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/fixed_rows_memory.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/quantized_packing.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_rows_memory.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"

namespace refrain::kernels::cpu {
namespace {

constexpr double kTolerance = 1e-4;  // f32 sums of a few hundred values near 1

// Whole numbers in [-most, most], the same for the same index.
int Whole(uint32_t index, int most) {
  return static_cast<int>((index * 2654435761u >> 16) % (2 * most + 1)) - most;
}

absl::Status Wrong(const char* operation, DType dtype, const char* shape, double got, double want) {
  return absl::InternalError(absl::StrCat(operation, " over ", std::string(Traits(dtype).name),
                                          ", ", shape, ": ", got, " where it should be ", want));
}

bool Differs(double got, double want) {  // NaN differs
  return !(std::fabs(got - want) <= kTolerance * (1 + std::fabs(want)));
}

// One slot of part-full chunks, all of its last rows at once: in place and gathered, many rows (a
// part of a tile more than 32) and few.
class AttentionProbe {
 public:
  explicit AttentionProbe(DType dtype) {
    kv_.head_bytes = static_cast<size_t>(kChunkTokens) * kDim * Traits(dtype).block_bytes;
    kv_.v_offset_bytes = kv_.head_bytes;
    kv_.layer_bytes = kv_.chunk_bytes = (2 * kv_.head_bytes + 4095) / 4096 * 4096;
    kv_.dtype = dtype;
    kv_.packing = HostPackingOf(dtype);
    kv_.chunk_tokens = kChunkTokens;
    kv_.num_kv_heads = 1;
    kv_.head_dim = kDim;
    memory_.resize(kChunks * kv_.chunk_bytes);
    kv_.base = memory_.data();
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      chunks_.push_back({chunk, keys_});
      for (int token = 0; token < kTokens[chunk]; ++token, ++keys_) {
        for (int i = 0; i < kDim; ++i) {
          k_.push_back(Whole(keys_ * kDim + i, 1));
          v_.push_back(static_cast<float>(Whole(i * 977 + keys_, 8)) / 8);
          StoreKey(kv_, {chunk, 0, 0, token, i}, static_cast<float>(k_.back()));
          StoreValue(kv_, {chunk, 0, 0, token, i}, v_.back());
        }
      }
    }
  }

  absl::Status Check(const AttentionKernels& kernels, int rows, bool reproducible) {
    std::vector<float> q(rows * kDim), out(rows * kDim, NAN);
    for (int i = 0; i < rows * kDim; ++i) q[i] = static_cast<float>(Query(i / kDim, i % kDim));
    const AttentionRun run = {0, kChunks, 0, 1};
    const RunSlot slot = {0, 0, kOpenEnd};
    const SlotStep step = {rows, 0, 0, keys_};
    ChunkAttentionArgs args;
    args.num_heads = 1;
    args.scale = std::numbers::ln2_v<float>;  // weights are powers of two
    args.reproducible = reproducible;
    args.kv = kv_;
    args.plan = {{&run, 1}, chunks_, {&slot, 1}};
    args.steps = {&step, 1};
    args.q = F32View(q.data(), rows, kDim);
    args.out = F32View(out.data(), rows, kDim);
    ChunkAttention(pool_, kernels, args, scratch_);
    for (int r = 0; r < rows; ++r) {
      const std::vector<double> want = ExactRow(r, keys_ - rows + r + 1);
      for (int i = 0; i < kDim; ++i) {
        if (Differs(out[r * kDim + i], want[i])) {
          return Wrong("attention", kv_.dtype, rows > 1 ? "many rows" : "one row",
                       out[r * kDim + i], want[i]);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kDim = 64, kChunkTokens = 64, kChunks = 3;
  static constexpr int kTokens[kChunks] = {64, 37, 40};

  // Every sixteenth element counts, others in the next row.
  static int Query(int row, int i) { return i % 16 == row % 16 ? Whole(row * 31 + i, 1) : 0; }

  std::vector<double> ExactRow(int row, int keys) const {
    std::vector<double> sums(kDim, 0.0);
    double total = 0;
    for (int key = 0; key < keys; ++key) {
      int score = 0;
      for (int i = row % 16; i < kDim; i += 16) score += Query(row, i) * k_[key * kDim + i];
      const double weight = std::ldexp(1.0, score);
      total += weight;
      for (int i = 0; i < kDim; ++i) sums[i] += weight * v_[key * kDim + i];
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }

  KvPoolView kv_;
  std::vector<std::byte> memory_;
  std::vector<int> k_;    // [keys, kDim]
  std::vector<float> v_;  // [keys, kDim]
  std::vector<RunChunk> chunks_;
  int32_t keys_ = 0;
  ThreadPool pool_{1};
  AttentionScratch scratch_;
};

absl::Status CheckDenseForm(const DenseKernels& kernels, DenseForm form, DType dtype) {
  constexpr int64_t kN = 40, kK = 72, kPaddedK = 128;
  std::vector<float> w(kN * kK);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(Whole(i, 8)) / 8;
  CpuDevice device;
  ThreadPool pool(1);
  const WeightSlice slice = {DType::kF32, kN, kK, reinterpret_cast<const std::byte*>(w.data()), {}};
  const auto matrix = PackDense({&slice, 1}, form, kernels, device, pool);
  if (!matrix.ok()) return matrix.status();
  for (const int64_t rows : {1, 37}) {
    std::vector<float> x(rows * kK), out(rows * kN, NAN);
    std::vector<uint16_t> bf16(rows * kPaddedK, 0);
    for (int64_t i = 0; i < rows * kK; ++i) {
      x[i] = static_cast<float>(Whole(i + 7, 4));
      bf16[i / kK * kPaddedK + i % kK] = F32ToBf16(x[i]);
    }
    TileRowsMemory tiles;
    if (kernels.tiles != nullptr) {
      tiles.Resize(rows, kK, /*exact=*/false);
      for (int64_t row = 0; row < rows; ++row) {
        kernels.tiles->pack_row(&x[row * kK], kK, tiles.high(row), nullptr);
      }
    }
    const Activations activations = {.rows = rows,
                                     .k = kK,
                                     .f32 = x.data(),
                                     .f32_stride = kK,
                                     .bf16 = bf16.data(),
                                     .bf16_stride = kPaddedK,
                                     .tiles = tiles.view()};
    for (const bool reproducible : {false, true}) {
      (*matrix)->Multiply(activations, 0, rows, 0, (kN + kTileN - 1) / kTileN, out.data(), kN,
                          /*accumulate=*/false, reproducible);
      for (int64_t i = 0; i < rows * kN; ++i) {
        double want = 0;
        for (int64_t k = 0; k < kK; ++k) want += double{x[i / kN * kK + k]} * w[i % kN * kK + k];
        if (Differs(out[i], want)) {
          return Wrong("a product", dtype, rows > 1 ? "many rows" : "one row", out[i], want);
        }
      }
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kProbeN = 40, kProbeK = 768, kProbeBlocks = kProbeK / kBlockK;

// In four sums: this is most of what the check takes.
double MultiplyExactly(const double* x, const double* w) {
  double sums[4] = {};
  for (int64_t k = 0; k < kProbeK; k += 4) {
    for (int i = 0; i < 4; ++i) sums[i] += x[k + i] * w[k + i];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// The lengths of rows of kProbeK elements, as vectors.
std::vector<double> LengthsOf(const std::vector<double>& rows) {
  std::vector<double> lengths(rows.size() / kProbeK);
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = std::sqrt(MultiplyExactly(&rows[i * kProbeK], &rows[i * kProbeK]));
  }
  return lengths;
}

// Rows of activations in the fixed point that a level makes of them.
class FixedProbe {
 public:
  FixedProbe(const FixedKernels& kernels, int digit_count, bool words, int64_t rows)
      : rows_(rows), x_(rows * kProbeK), half_steps_(rows * kProbeBlocks), rounded_(x_.size()) {
    for (int64_t block = 0; block < rows * kProbeBlocks; ++block) {
      // One block in a row of three stands out.
      const int64_t row = block / kProbeBlocks;
      const bool stands_out = row % 3 == 0 && block % kProbeBlocks == row % kProbeBlocks;
      const float largest = stands_out ? 200 : 12.5;
      for (int64_t i = block * kBlockK; i < (block + 1) * kBlockK; ++i) {
        x_[i] = largest * static_cast<float>(Whole(i + 5, 100)) / 100;
      }
      const int steps = digit_count == 2 || stands_out ? kMaxTwoDigits : kMaxOneDigit;
      half_steps_[block] = largest / static_cast<float>(steps) / 2;
    }
    memory_.Resize(digit_count, rows, kProbeBlocks, words);
    for (int64_t row = 0; row < rows; ++row) {
      kernels.quantize_row(&x_[row * kProbeK], kProbeBlocks, /*stands_out=*/3, memory_.Row(row));
    }
    for (size_t i = 0; i < rounded_.size(); ++i) rounded_[i] = memory_.Value(i);
    lengths_ = LengthsOf(rounded_);
  }

  absl::Status CheckRounding() const {
    for (size_t i = 0; i < x_.size(); ++i) {
      if (!(std::fabs(rounded_[i] - x_[i]) < 1.01 * half_steps_[i / kBlockK])) {
        return absl::InternalError(absl::StrCat("rounding of activations, ", Shape(), ": ",
                                                rounded_[i], " where it should be ", x_[i]));
      }
    }
    return absl::OkStatus();
  }

  int64_t rows() const { return rows_; }
  const char* Shape() const { return rows_ > 1 ? "many rows" : "one row"; }
  FixedRows view() const { return memory_.view(); }
  const double* Rounded(int64_t row) const { return &rounded_[row * kProbeK]; }
  double Length(int64_t row) const { return lengths_[row]; }  // of what is rounded

 private:
  int64_t rows_;
  std::vector<float> x_;
  std::vector<float> half_steps_;  // by which an element of each block may be off
  std::vector<double> rounded_;    // what the elements became
  std::vector<double> lengths_;
  FixedRowsMemory memory_;
};

// A stored row of random quants; its scales, which are f16 numbers, are 1/16.
std::vector<std::byte> StoredRow(DType dtype, int64_t k, uint32_t seed) {
  const auto block_bytes = static_cast<size_t>(Traits(dtype).block_bytes);
  std::vector<std::byte> row(*RowBytes(dtype, k));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(Whole(seed + i, 127));
  constexpr uint16_t kSixteenth = 0x2c00;
  for (size_t block = 0; block < row.size(); block += block_bytes) {
    const size_t at = dtype == DType::kQ6_K ? block_bytes - 2 : 0;
    std::memcpy(&row[block + at], &kSixteenth, 2);
    const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_K;
    if (has_min) std::memcpy(&row[block + 2], &kSixteenth, 2);
  }
  return row;
}

// A weight of random quants, packed, and what multiplies it.
struct QuantizedProbe {
  QuantizedProbe(DType type, MultiplyQuantizedFn FixedKernels::*function,
                 MultiplyTilesFn TileKernels::*tiles)
      : dtype(type), multiply(function), multiply_tiles(tiles), w(kProbeN * kProbeK) {
    constexpr int64_t kLine = 64;
    const QuantizedFormat format = FormatOf(dtype);
    const int64_t tile_bytes = TileBytes(format, kProbeBlocks);
    memory.resize(kTiles * tile_bytes + kLine);
    uint8_t* const data =
        memory.data() + (kLine - reinterpret_cast<uintptr_t>(memory.data()) % kLine) % kLine;
    std::vector<float> row(kProbeK);
    for (int64_t n = 0; n < kProbeN; ++n) {
      uint8_t* const tile = data + n / kTileN * tile_bytes;
      const int lane = static_cast<int>(n % kTileN);
      PackRow(dtype, StoredRow(dtype, kProbeK, n * 7919).data(), kProbeBlocks, lane, tile);
      UnpackRow(dtype, tile, kProbeBlocks, lane, row.data());
      std::copy(row.begin(), row.end(), &w[n * kProbeK]);
    }
    lengths = LengthsOf(w);
    panels = {data, kProbeN, kProbeBlocks, tile_bytes, ScaleBytes(format, kProbeBlocks)};
  }

  static constexpr int64_t kTiles = (kProbeN + kTileN - 1) / kTileN;

  DType dtype;
  MultiplyQuantizedFn FixedKernels::*multiply;
  MultiplyTilesFn TileKernels::*multiply_tiles;
  std::vector<double> w;        // [kProbeN, kProbeK]
  std::vector<double> lengths;  // [kProbeN]
  std::vector<uint8_t> memory;
  QuantizedPanels panels{};
};

absl::Status CheckQuantized(const FixedKernels& kernels, const QuantizedProbe& weight,
                            const FixedProbe& x) {
  std::vector<float> out(x.rows() * kProbeN, NAN);
  (kernels.*weight.multiply)(
      weight.panels, x.view(),
      {0, x.rows(), 0, QuantizedProbe::kTiles, out.data(), kProbeN, /*accumulate=*/false});
  for (int64_t i = 0; i < x.rows() * kProbeN; ++i) {
    const int64_t row = i / kProbeN, n = i % kProbeN;
    const double want = MultiplyExactly(x.Rounded(row), &weight.w[n * kProbeK]);
    const double limit = 5e-6 * (1 + x.Length(row) * weight.lengths[n]);
    if (!(std::fabs(out[i] - want) <= limit)) {  // NaN is not within
      return Wrong("a product", weight.dtype, x.Shape(), out[i], want);
    }
  }
  return absl::OkStatus();
}

// Rows of activations as tiles: two exact groups, two in bf16, and a part of one.
class TilesProbe {
 public:
  explicit TilesProbe(const TileKernels& kernels) : x_(kRows * kProbeK), exactly_(x_.size()) {
    for (size_t i = 0; i < x_.size(); ++i) {
      exactly_[i] = x_[i] = static_cast<float>(Whole(i + 3, 30'000)) / 3000;
    }
    lengths_ = LengthsOf(exactly_);
    memory_.Resize(kRows, kProbeK, /*exact=*/true);
    for (int64_t row = 0; row < kExactRows; ++row) memory_.SetExact(row);
    for (int64_t row = 0; row < kRows; ++row) {
      kernels.pack_row(&x_[row * kProbeK], kProbeK, memory_.high(row), memory_.low(row));
    }
  }

  absl::Status Check(const TileKernels& kernels, const QuantizedProbe& weight) const {
    std::vector<float> out(kRows * kProbeN, NAN);
    (kernels.*weight.multiply_tiles)(
        weight.panels, memory_.view(),
        {0, kRows, 0, QuantizedProbe::kTiles, kProbeN, out.data(), kProbeN, /*accumulate=*/false});
    for (int64_t i = 0; i < kRows * kProbeN; ++i) {
      const int64_t row = i / kProbeN, n = i % kProbeN;
      const double want = MultiplyExactly(&exactly_[row * kProbeK], &weight.w[n * kProbeK]);
      // Rows in bf16 are off by up to 2^-8, weights by kWeightError, what is left by 2^-16.
      const bool exact = row < kExactRows;
      const double limit = (exact ? 2e-5 : 4e-3) * (1 + lengths_[row] * weight.lengths[n]);
      if (!(std::fabs(out[i] - want) <= limit)) {  // NaN is not within
        return Wrong("a product by tiles", weight.dtype, exact ? "exact rows" : "many rows", out[i],
                     want);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kRows = 70, kExactRows = 32;

  std::vector<float> x_;
  std::vector<double> exactly_, lengths_;
  TileRowsMemory memory_;
};

}  // namespace

absl::Status CheckQuantizedProducts(const QuantizedKernels& kernels) {
  // One of each way in which scales are stored, and of each number of bits.
  const QuantizedProbe weights[] = {{DType::kQ8_0, &FixedKernels::q8_0, &TileKernels::q8_0},
                                    {DType::kQ4_1, &FixedKernels::q4_1, &TileKernels::q4_1},
                                    {DType::kQ5_K, &FixedKernels::q5_k, &TileKernels::q5_k},
                                    {DType::kQ6_K, &FixedKernels::q6_k, &TileKernels::q6_k}};
  const auto check = [&](int digits, bool words) {
    const FixedKernels& fixed = kernels.by_digits[digits - 1];
    absl::Status status;
    for (const int64_t rows : {1, 37}) {
      const FixedProbe x(fixed, digits, words, rows);
      status.Update(x.CheckRounding());
      for (const QuantizedProbe& weight : weights) {
        if (status.ok()) status = CheckQuantized(fixed, weight, x);
      }
    }
    return status;
  };
  absl::Status status = check(2, /*words=*/false);
  if (status.ok()) status = check(1, /*words=*/false);
  if (status.ok() && kernels.least_rows_of_words != nullptr) status = check(2, /*words=*/true);
  if (!status.ok() || kernels.tiles == nullptr) return status;
  const TilesProbe x(*kernels.tiles);
  for (const QuantizedProbe& weight : weights) {
    if (status.ok()) status = x.Check(*kernels.tiles, weight);
  }
  return status;
}

absl::Status CheckAttention(const AttentionKernels& kernels) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    AttentionProbe probe(dtype);
    for (const int rows : {1, 37}) {
      for (const bool reproducible : {false, true}) {
        const absl::Status status = probe.Check(kernels, rows, reproducible);
        if (!status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDenseProducts(const DenseKernels& kernels) {
  absl::Status status = CheckDenseForm(kernels, DenseForm::kBF16, DType::kBF16);
  if (status.ok()) status = CheckDenseForm(kernels, DenseForm::kF32, DType::kF32);
  if (status.ok()) status = CheckDenseForm(kernels, DenseForm::kF16, DType::kF16);
  return status;
}

absl::Status CheckLevel(Isa isa) {
  absl::Status status = CheckAttention(AttentionKernelsOf(isa));
  if (status.ok()) status = CheckDenseProducts(DenseKernelsOf(isa));
  if (status.ok()) status = CheckQuantizedProducts(QuantizedKernelsFor(isa));
  return status;
}

}  // namespace refrain::kernels::cpu
