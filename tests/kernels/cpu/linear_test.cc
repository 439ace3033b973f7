#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/product_jobs.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels::cpu {
namespace {

std::unique_ptr<CpuBackend> Make(Isa isa, int threads) {
  auto backend = CpuBackend::Create({threads, std::string(Name(isa))});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

// |got - want| over |want|, both as vectors.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
    norm += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(error / norm);
}

// Three slices of two types, as attention weights of mixed files are, ragged and reordered.
struct MixedWeight {
  static constexpr int64_t kCols = 256;
  std::vector<std::byte> q = RandomRows(DType::kQ4_K, 40, kCols, 1);
  std::vector<std::byte> k = RandomRows(DType::kQ4_K, 21, kCols, 2);
  std::vector<std::byte> v = RandomRows(DType::kQ6_K, 19, kCols, 3);
  std::vector<int32_t> order;

  MixedWeight() {
    for (int i = 0; i < 40; ++i) order.push_back((i * 11 + 5) % 40);
  }
  std::vector<WeightSlice> Slices() const {
    return {{DType::kQ4_K, 40, kCols, q.data(), order},
            {DType::kQ4_K, 21, kCols, k.data(), {}},
            {DType::kQ6_K, 19, kCols, v.data(), {}}};
  }
};

class LinearTest : public testing::TestWithParam<Isa> {};

TEST_P(LinearTest, MixedSlicesMatchTheOracle) {
  const MixedWeight weight;
  ReferenceBackend reference;
  const auto want_weight = *reference.PackLinear(weight.Slices(), {});
  for (const auto& [compute, tolerance] : {std::pair{ComputeDType::kAuto, 1e-4},
                                           {ComputeDType::kInt8, 1e-2},
                                           {ComputeDType::kF32, 1e-6}}) {
    for (const int threads : {1, 3}) {
      const auto backend = Make(GetParam(), threads);
      const auto got_weight = *backend->PackLinear(weight.Slices(), {compute});
      ASSERT_EQ(got_weight->n(), 80);
      ASSERT_EQ(got_weight->k(), 256);
      for (const int64_t rows : {1, 4, 9, 70}) {
        for (const bool accumulate : {false, true}) {
          std::vector<float> x = RandomFloats(rows * 256, 4);
          std::vector<float> got = RandomFloats(rows * 80, 5), want = got;
          backend->Linear({got_weight.get(), F32View(x.data(), rows, 256),
                           F32View(got.data(), rows, 80), accumulate});
          reference.Linear({want_weight.get(), F32View(x.data(), rows, 256),
                            F32View(want.data(), rows, 80), accumulate});
          EXPECT_LT(RelativeError(got, want), tolerance) << rows << " rows, " << threads;
        }
      }
    }
  }
}

TEST_P(LinearTest, RowsHaveTheSameBitsForAnyCountAndThreads) {
  const MixedWeight weight;
  const int64_t rows = 61;
  std::vector<float> x = RandomFloats(rows * 256, 6);
  const auto one = Make(GetParam(), 1), three = Make(GetParam(), 3);
  const auto weight_one = *one->PackLinear(weight.Slices(), {});
  const auto weight_three = *three->PackLinear(weight.Slices(), {});
  std::vector<float> together(rows * 80), alone(rows * 80);
  three->Linear({weight_three.get(), F32View(x.data(), rows, 256),
                 F32View(together.data(), rows, 80), false, true});
  for (int64_t row = 0; row < rows; ++row) {
    one->Linear({weight_one.get(), F32View(&x[row * 256], 1, 256), F32View(&alone[row * 80], 1, 80),
                 false, true});
  }
  EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0);
}

// Coarse rows of a weight of two types, of which one may have 15 bits all the same (Q8_0, where
// words are multiplied).
TEST_P(LinearTest, PartsTakeCoarseRowsEachInItsOwnWay) {
  constexpr int64_t kRows = 10, kCols = 256, kQ = 40, kV = 19;  // fewer rows than tiles multiply
  const auto q = RandomRows(DType::kQ8_0, kQ, kCols, 1), v = RandomRows(DType::kQ6_K, kV, kCols, 2);
  const WeightSlice slices[] = {{DType::kQ8_0, kQ, kCols, q.data(), {}},
                                {DType::kQ6_K, kV, kCols, v.data(), {}}};
  const auto backend = Make(GetParam(), 3);
  const auto weight = *backend->PackLinear(slices, {});
  std::vector<float> x = RandomFloats(kRows * kCols, 4);
  std::vector<uint8_t> coarse(kRows);
  for (int64_t row = 0; row < kRows; ++row) coarse[row] = row % 3 != 0;
  const auto multiply = [&](std::span<const uint8_t> coarse_rows) {
    std::vector<float> out(kRows * (kQ + kV), NAN);
    backend->Linear({weight.get(), F32View(x.data(), kRows, kCols),
                     F32View(out.data(), kRows, kQ + kV), false, false, coarse_rows});
    return out;
  };
  const std::vector<float> got = multiply(coarse), exact = multiply({});
  EXPECT_LT(RelativeError(got, exact), 1e-2);
  const bool words = GetParam() == Isa::kAvx2 || GetParam() == Isa::kAvx512;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto same = [&](int64_t begin, int64_t end) {
      const auto at = got.begin() + row * (kQ + kV);
      return std::equal(at + begin, at + end, exact.begin() + row * (kQ + kV) + begin);
    };
    EXPECT_EQ(same(0, kQ), coarse[row] == 0 || words) << row;
    EXPECT_EQ(same(kQ, kQ + kV), coarse[row] == 0) << row;
  }
}

// By tiles: a group of 16 rows has the bits of exact rows but where all of it is coarse.
void ExpectCoarseGroups(const std::vector<uint8_t>& coarse, const std::vector<float>& got,
                        const std::vector<float>& exact) {
  const auto rows = static_cast<int64_t>(coarse.size());
  const auto columns = static_cast<int64_t>(got.size()) / rows;
  for (int64_t row = 0; row < rows; ++row) {
    const auto group = coarse.begin() + row / kTileRows * kTileRows;
    const auto group_end = coarse.begin() + std::min(rows, (row / kTileRows + 1) * kTileRows);
    const bool is_coarse = std::find(group, group_end, 0) == group_end;
    const float* const a = &got[row * columns];
    const float* const b = &exact[row * columns];
    ASSERT_EQ(std::memcmp(a, b, columns * sizeof(float)) != 0, is_coarse) << row;
    double error = 0, size = 0;
    for (int64_t i = 0; i < columns; ++i) {
      error += (a[i] - b[i]) * (a[i] - b[i]);
      size += b[i] * b[i];
    }
    ASSERT_LE(error, size * 0.01 * 0.01) << row;
  }
}

// Coarse rows are computed as kInt8 does, the others as with 15 bits, to the bit, whatever the
// others are; by tiles as ExpectCoarseGroups says.
TEST_P(LinearTest, CoarseRowsHave8Bits) {
  const MixedWeight weight;
  const auto backend = Make(GetParam(), 2);
  const auto fixed = *backend->PackLinear(weight.Slices(), {});
  const auto int8 = *backend->PackLinear(weight.Slices(), {ComputeDType::kInt8});
  const auto gate_data = RandomRows(DType::kQ4_1, 80, 256, 15);
  const WeightSlice gate_slice{DType::kQ4_1, 80, 256, gate_data.data(), {}};
  const auto gate = *backend->PackLinear({&gate_slice, 1}, {});
  const auto gate_int8 = *backend->PackLinear({&gate_slice, 1}, {ComputeDType::kInt8});
  struct Case {
    int64_t rows;
    int every;  // so many rows behind each other are coarse, the next one is not
  };
  for (const Case& one :
       {Case{70, 9}, {70, 1}, {71, 0}, {13, 3}, {200, 63}, {6, 5}, {7, 6}, {2, 1}, {1, 1}}) {
    std::vector<float> x = RandomFloats(one.rows * 256, 14);
    // Some blocks stand out, in which kInt8 has two digits.
    for (size_t i = 0; i < x.size(); ++i) x[i] *= i / 32 % 11 == 3 ? 30 : 1;
    std::vector<uint8_t> coarse(one.rows);
    for (int64_t i = 0; i < one.rows; ++i) coarse[i] = i % (one.every + 1) < one.every ? 1 : 0;
    const TensorView view = F32View(x.data(), one.rows, 256);
    std::vector<float> got(one.rows * 80, 0.5f), want15 = got, want8 = got;
    const auto out = [&](std::vector<float>& to) { return F32View(to.data(), one.rows, 80); };
    backend->Linear({fixed.get(), view, out(got), true, false, coarse});
    backend->Linear({fixed.get(), view, out(want15), true});
    backend->Linear({int8.get(), view, out(want8), true});
    const bool tiles = GetParam() >= Isa::kAmx && one.rows >= 24;
    if (tiles) ExpectCoarseGroups(coarse, got, want15);
    for (int64_t row = 0; row < one.rows && !tiles; ++row) {
      const std::vector<float>& want = coarse[row] != 0 ? want8 : want15;
      ASSERT_EQ(std::memcmp(&got[row * 80], &want[row * 80], 80 * sizeof(float)), 0)
          << "row " << row << " of " << one.rows;
      ASSERT_NE(std::memcmp(&want8[row * 80], &want15[row * 80], 80 * sizeof(float)), 0);
    }
    std::vector<float> got_gated(one.rows * 80), gated15 = got_gated, gated8 = got_gated;
    backend->GateUp({gate.get(), gate.get(), view, out(got_gated), false, coarse});
    backend->GateUp({gate.get(), gate.get(), view, out(gated15)});
    backend->GateUp({gate_int8.get(), gate_int8.get(), view, out(gated8)});
    if (tiles) ExpectCoarseGroups(coarse, got_gated, gated15);
    for (int64_t row = 0; row < one.rows && !tiles; ++row) {
      const std::vector<float>& want = coarse[row] != 0 ? gated8 : gated15;
      ASSERT_EQ(std::memcmp(&got_gated[row * 80], &want[row * 80], 80 * sizeof(float)), 0) << row;
    }
  }
}

// Of more rows than a job has: what the reader makes of GateUp's results is the same, told of it or
// not; and results of later calls are not taken for those.
TEST_P(LinearTest, GateUpHandsResultsToTheReaderItWasToldOf) {
  const int64_t rows = 1100, hidden = 96, ffn = 64, n = 40;
  const auto backend = Make(GetParam(), 3);
  const auto pack = [&](int64_t to, int64_t from, uint32_t seed) {
    const auto data = RandomRows(DType::kQ4_1, to, from, seed);
    const WeightSlice slice{DType::kQ4_1, to, from, data.data(), {}};
    return *backend->PackLinear({&slice, 1}, {});
  };
  const auto gate = pack(ffn, hidden, 1), up = pack(ffn, hidden, 2), down = pack(n, ffn, 3);
  const std::vector<float> x = RandomFloats(rows * hidden, 4),
                           other = RandomFloats(rows * hidden, 5);
  std::vector<uint8_t> coarse(rows);
  for (int64_t i = 0; i < rows; ++i) coarse[i] = i / 100 % 2 == 0 ? 1 : 0;
  std::vector<float> between(rows * ffn);
  const auto run = [&](const std::vector<float>& from, const LinearWeight* reader) {
    std::vector<float> out(rows * n);
    const TensorView results = F32View(between.data(), rows, ffn);
    backend->GateUp({gate.get(), up.get(), F32View(const_cast<float*>(from.data()), rows, hidden),
                     results, false, coarse, reader});
    backend->Linear({down.get(), results, F32View(out.data(), rows, n), false, false, coarse});
    return out;
  };
  const std::vector<float> want = run(x, nullptr), want_other = run(other, nullptr);
  std::fill(between.begin(), between.end(), 7.0f);
  EXPECT_EQ(run(x, down.get()), want);
  const bool kept = std::count(between.begin(), between.end(), 7.0f) == rows * ffn;
  EXPECT_EQ(kept, GetParam() >= Isa::kAmx) << "whether results went to tiles alone";
  EXPECT_EQ(run(other, nullptr), want_other);
  EXPECT_EQ(run(x, down.get()), want);
}

TEST_P(LinearTest, GateUpMatchesTheOracle) {
  const int64_t ffn = 150, hidden = 96;
  const auto gate_data = RandomRows(DType::kQ4_1, ffn, hidden, 7);
  const auto up_data = RandomRows(DType::kQ8_0, ffn, hidden, 8);
  const WeightSlice gate{DType::kQ4_1, ffn, hidden, gate_data.data(), {}};
  const WeightSlice up{DType::kQ8_0, ffn, hidden, up_data.data(), {}};
  ReferenceBackend reference;
  const auto want_gate = *reference.PackLinear({&gate, 1}, {});
  const auto want_up = *reference.PackLinear({&up, 1}, {});
  for (const auto& [compute, tolerance] : {std::pair{ComputeDType::kAuto, 1e-4},
                                           {ComputeDType::kInt8, 2e-2},
                                           {ComputeDType::kF32, 2e-6}}) {
    for (const int threads : {1, 3}) {
      const auto backend = Make(GetParam(), threads);
      const auto got_gate = *backend->PackLinear({&gate, 1}, {compute});
      const auto got_up = *backend->PackLinear({&up, 1}, {compute});
      for (const int64_t rows : {1, 5, 67, 300}) {
        std::vector<float> x = RandomFloats(rows * hidden, 9);
        std::vector<float> got(rows * ffn), want(rows * ffn);
        backend->GateUp({got_gate.get(), got_up.get(), F32View(x.data(), rows, hidden),
                         F32View(got.data(), rows, ffn)});
        reference.GateUp({want_gate.get(), want_up.get(), F32View(x.data(), rows, hidden),
                          F32View(want.data(), rows, ffn)});
        EXPECT_LT(RelativeError(got, want), tolerance) << rows << " rows, " << threads;
      }
    }
  }
}

// Each of two calls waits for the other one to begin.
TEST(CpuBackendTest, CallsForEachOnceAndOnSeveralThreads) {
  const auto backend = Make(Isa::kPortable, 2);
  std::atomic<int> begun = 0;
  std::atomic<bool> together = false;
  backend->ForEachOnHost(2, [&](int64_t) {
    ++begun;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (begun < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    if (begun == 2) together = true;
  });
  EXPECT_TRUE(together);
  std::vector<std::atomic<int>> calls(1000);
  backend->ForEachOnHost(1000, [&](int64_t i) { ++calls[i]; });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
  backend->ForEachOnHost(0, [](int64_t) { FAIL(); });
}

TEST_P(LinearTest, EmbedLooksUpRows) {
  const MixedWeight weight;
  const auto backend = Make(GetParam(), 2);
  ReferenceBackend reference;
  const auto table = *backend->PackLinear(weight.Slices(), {.embedding = true});
  const auto want_table = *reference.PackLinear(weight.Slices(), {.embedding = true});
  const std::vector<int32_t> ids = {0, 79, 61, 60, 40, 39, 7, 7};
  std::vector<float> got(8 * 256), want(8 * 256);
  backend->Embed({table.get(), ids, F32View(got.data(), 8, 256)});
  reference.Embed({want_table.get(), ids, F32View(want.data(), 8, 256)});
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(CutWorkTest, CoversTheProductAndFeedsEveryThread) {
  for (const int64_t tiles : {1, 2, 3, 36, 60, 96, 3072}) {
    for (const int64_t rows : {1, 4, 5, 8, 63, 64, 512, 2048}) {
      for (const int64_t k : {32, 576, 1536, 14336}) {
        for (const int threads : {1, 2, 16}) {
          const WorkGrid grid = CutWork(tiles, rows, k, threads);
          ASSERT_GE(grid.tiles_per_job, 1);
          ASSERT_GE(grid.rows_per_job, 1);
          ASSERT_GE(grid.tiles_per_job * grid.tile_jobs(), tiles);
          ASSERT_GE(grid.rows_per_job * grid.row_jobs(), rows);
          if (tiles >= 2 * threads) {
            ASSERT_GE(grid.tile_jobs() * grid.row_jobs(), threads)
                << tiles << " tiles, " << rows << " rows, " << threads << " threads";
          }
        }
      }
    }
  }
}

TEST(CutTileWorkTest, CoversTheProductInPairsOfGroupsAndFeedsEveryThread) {
  for (const int64_t tiles : {1, 2, 3, 36, 60, 96, 3072}) {
    for (const int64_t rows : {16, 31, 64, 512, 2000}) {
      for (const int64_t k : {32, 576, 1536, 14336}) {
        for (const auto& [threads, kind] :
             {std::pair{1, TileJobKind::kWhole}, std::pair{2, TileJobKind::kWhole},
              std::pair{16, TileJobKind::kWhole}, std::pair{2, TileJobKind::kPairs},
              std::pair{16, TileJobKind::kPairs}}) {
          SCOPED_TRACE(testing::Message() << tiles << " tiles, " << rows << " rows, k " << k << ", "
                                          << threads << " threads");
          const WorkGrid grid = CutTileWork(tiles, rows, k, threads, kind);
          // Rows that a cache holds (k of 14,336 has 1 MiB with 36), or many that take k in blocks.
          const bool fits = grid.rows_per_job * k <= std::max<int64_t>(512 * 1024, 32 * k);
          const bool in_blocks =
              kind == TileJobKind::kWhole && grid.tiles_per_job > 2 &&
              grid.rows_per_job >= std::min<int64_t>(tiles > 96 ? rows : rows / threads, 192);
          ASSERT_TRUE(fits || in_blocks) << grid.rows_per_job << " rows";
          if (kind == TileJobKind::kWhole && threads == 1 && tiles > 2) {
            ASSERT_GE(grid.rows_per_job, std::min<int64_t>(rows, 192));
          }
          ASSERT_GE(grid.tiles_per_job, 1);
          ASSERT_TRUE(grid.rows_per_job % (2 * kTileRows) == 0 || grid.rows_per_job == rows);
          ASSERT_LE(grid.rows_per_job, 1024);  // GateUp's stack
          ASSERT_GE(grid.tiles_per_job * grid.tile_jobs(), tiles);
          ASSERT_GE(grid.rows_per_job * grid.row_jobs(), rows);
          if (tiles >= 2 * threads) {
            ASSERT_GE(grid.tile_jobs() * grid.row_jobs(), threads);
          }
        }
      }
    }
  }
}

TEST(CutTileWorkTest, RowsAreDividedWhereColumnsAreFew) {
  const auto rows_per_job = [](int64_t tiles, int64_t rows, int threads, TileJobKind kind) {
    return CutTileWork(tiles, rows, /*k=*/576, threads, kind).rows_per_job;
  };
  EXPECT_EQ(rows_per_job(36, 512, 2, TileJobKind::kWhole), 256);
  EXPECT_EQ(rows_per_job(36, 500, 2, TileJobKind::kWhole), 256);
  EXPECT_EQ(rows_per_job(36, 64, 2, TileJobKind::kWhole), 32);
  EXPECT_EQ(rows_per_job(96, 64, 2, TileJobKind::kWhole), 64);
  EXPECT_EQ(rows_per_job(96, 256, 2, TileJobKind::kWhole), 128);
  EXPECT_EQ(rows_per_job(96, 256, 1, TileJobKind::kWhole), 256);
  EXPECT_EQ(rows_per_job(512, 256, 2, TileJobKind::kWhole), 256);
  EXPECT_EQ(rows_per_job(36, 256, 2, TileJobKind::kPairs), 256);
  // Several threads for each part of the rows.
  EXPECT_EQ(rows_per_job(36, 128, 16, TileJobKind::kWhole), 32);
  // Every thread has jobs of its own rows, one behind the other.
  const WorkGrid grid = CutTileWork(36, 512, 576, 2, TileJobKind::kWhole);
  EXPECT_EQ(grid.row_jobs(), 2);
  EXPECT_GE(grid.tile_jobs(), 6);
}

TEST(CpuBackendTest, RefusesBadOptions) {
  EXPECT_EQ(CpuBackend::Create({-1, "auto"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CpuBackend::Create({1, "mmx"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, SaysWhatItIs) {
  const auto backend = CpuBackend::Create({3, "portable"});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->info().name, "cpu");
  EXPECT_EQ((*backend)->info().isa, "portable");
  EXPECT_EQ((*backend)->info().threads, 3);
}

}  // namespace
}  // namespace refrain::kernels::cpu
