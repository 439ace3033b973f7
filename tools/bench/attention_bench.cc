// Times ChunkAttention of the CPU back end: decode against the read bandwidth and prefill against
// the multiply-add rate that the same run measured just before. Each case is first compared with
// the reference on a sample of its rows. K and V are random and private to each slot; the pool of a
// decode case is larger than the caches where the context is long, and short contexts show cache
// speed (more than 100 % of memory bandwidth is possible there).
//
//   attention_bench [--threads N] [--isa LEVEL] [--reproducible] [--cpu-time] [--filter TEXT]
//
// --cpu-time measures the CPU time of the process: for a busy machine, with --threads 1.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/host_device.h"
#include "tools/bench/cpu_peaks.h"

namespace refrain::kernels {
namespace {

struct Options {
  int threads = 0;
  std::string isa = "auto";
  bool reproducible = false;
  bench::Clock clock = bench::Clock::kWall;
  std::string filter;
};

struct Model {
  const char* name;
  int num_heads, num_kv_heads, head_dim;
};

constexpr Model kModels[] = {{"9/3 d=64", 9, 3, 64}, {"32/8 d=128", 32, 8, 128}};
constexpr int kChunkTokens = 64;

// Slots of one length, their last `rows` keys new; `shared` leading keys are the same chunks for
// all.
class Workload {
 public:
  Workload(HostDevice& device, const Model& model, DType dtype, int slots, int keys, int rows,
           int shared)
      : slots_(slots), keys_(keys), rows_(rows) {
    const int shared_chunks = shared / kChunkTokens;
    const int own_chunks = (keys + kChunkTokens - 1) / kChunkTokens - shared_chunks;
    const int num_chunks = shared_chunks + slots * own_chunks;
    KvPoolView& kv = args_.kv;
    kv.dtype = dtype;
    kv.chunk_tokens = kChunkTokens;
    kv.num_kv_heads = model.num_kv_heads;
    kv.head_dim = model.head_dim;
    kv.head_bytes = size_t{kChunkTokens} * model.head_dim * Traits(dtype).block_bytes;
    kv.v_offset_bytes = model.num_kv_heads * kv.head_bytes;
    kv.layer_bytes = kv.chunk_bytes = (2 * kv.v_offset_bytes + 4095) / 4096 * 4096;
    auto memory = device.Allocate(num_chunks * kv.chunk_bytes, /*huge_pages=*/true);
    if (!memory.ok()) {
      std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
      std::exit(1);
    }
    pool_ = *std::move(memory);
    kv.base = pool_.data();
    Fill(num_chunks * kv.chunk_bytes, dtype);

    chunks_.reserve(num_chunks);
    for (int i = 0; i < shared_chunks; ++i) chunks_.push_back({i, i * kChunkTokens});
    if (shared_chunks > 0) {
      for (int slot = 0; slot < slots; ++slot) run_slots_.push_back({slot, 0, shared});
      runs_.push_back({0, shared_chunks, 0, slots});
    }
    for (int slot = 0; slot < slots; ++slot) {
      const auto begin = static_cast<int32_t>(chunks_.size());
      for (int i = 0; i < own_chunks; ++i) {
        chunks_.push_back({shared_chunks + slot * own_chunks + i, i * kChunkTokens});
      }
      const auto entry = static_cast<int32_t>(run_slots_.size());
      run_slots_.push_back({slot, shared_chunks * kChunkTokens, kOpenEnd});
      if (own_chunks > 0) {
        runs_.push_back({begin, static_cast<int32_t>(chunks_.size()), entry, entry + 1});
      }
      steps_.push_back({rows, slot * rows, 0, keys});
    }
    const int64_t cols = int64_t{model.num_heads} * model.head_dim;
    q_.resize(slots * rows * cols);
    out_.resize(q_.size());
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : q_) x = normal(random);
    args_.num_heads = model.num_heads;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
    args_.plan = {runs_, chunks_, run_slots_};
    args_.steps = steps_;
    args_.q = F32View(q_.data(), slots * rows, cols);
    args_.out = F32View(out_.data(), slots * rows, cols);
  }

  ChunkAttentionArgs& args() { return args_; }
  const std::vector<float>& out() const { return out_; }

  // Multiply-adds times two, of the rows' own keys only.
  double flops() const {
    double pairs = 0;
    for (int row = 0; row < rows_; ++row) pairs += keys_ - rows_ + row + 1;
    return 4.0 * pairs * slots_ * args_.num_heads * args_.kv.head_dim;
  }
  // K and V of every slot, shared ones counted for each.
  double bytes() const {
    return 2.0 * slots_ * keys_ * args_.kv.num_kv_heads * args_.kv.head_dim *
           Traits(args_.kv.dtype).block_bytes;
  }

  // The reference on the first and the last row; exits when it disagrees.
  void Check() const {
    const int64_t cols = args_.out.cols;
    ChunkAttentionArgs args = args_;
    std::vector<float> want(out_.size());
    args.out = F32View(want.data(), args_.out.rows, cols);
    for (const auto& [slot, row] : {std::pair{0, 0}, std::pair{slots_ - 1, rows_ - 1}}) {
      std::vector<SlotStep> steps(steps_.size());
      const int row_index = slot * rows_ + row;
      steps[slot] = {1, row_index, 0, keys_ - rows_ + row + 1};
      args.steps = steps;
      ReferenceAttention(args);
      for (int64_t i = row_index * cols; i < (row_index + 1) * cols; ++i) {
        if (std::fabs(out_[i] - want[i]) <= 2e-5f) continue;
        std::fprintf(stderr, "wrong: slot %d row %d element %d is %g, should be %g\n", slot, row,
                     static_cast<int>(i % cols), out_[i], want[i]);
        std::exit(1);
      }
    }
  }

 private:
  void Fill(size_t bytes, DType dtype) {
    // 64 Ki values, repeated: filling must not take longer than the benchmark.
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    const size_t width = Traits(dtype).block_bytes;
    std::vector<std::byte> values((1 << 16) * width);
    for (size_t i = 0; i < values.size(); i += width) {
      const float x = normal(random);
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(x) : F32ToBf16(x);
      std::memcpy(values.data() + i, dtype == DType::kF32 ? static_cast<const void*>(&x) : &half,
                  width);
    }
    for (size_t done = 0, i = 0; done < bytes; ++i) {
      const size_t skip = i * 4096 % values.size() / 3 / 64 * 64;
      const size_t count = std::min(values.size() - skip, bytes - done);
      std::memcpy(pool_.data() + done, values.data() + skip, count);
      done += count;
    }
  }

  int slots_, keys_, rows_;
  DeviceBuffer pool_;
  std::vector<RunChunk> chunks_;
  std::vector<AttentionRun> runs_;
  std::vector<RunSlot> run_slots_;
  std::vector<SlotStep> steps_;
  std::vector<float> q_, out_;
  ChunkAttentionArgs args_;
};

struct Timing {
  double median_s, best_s;
};

Timing Time(bench::Clock clock, const std::function<void()>& fn) {
  fn();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 5 || (total < 0.4 && seconds.size() < 200)) {
    const double begin = bench::Seconds(clock);
    fn();
    seconds.push_back(bench::Seconds(clock) - begin);
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front()};
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), pool_(options.threads), isa_(*cpu::ResolveIsa(options.isa)) {}

  int Run() {
    const double read = bench::ReadBytesPerSecond(pool_, options_.clock);
    const double fma = bench::F32FlopsPerSecond(pool_, isa_, options_.clock);
    std::printf("level %s, %d threads%s; measured: read %.1f GB/s, f32 multiply-add %.0f GFLOP/s\n",
                std::string(cpu::Name(isa_)).c_str(), pool_.threads(),
                options_.reproducible ? ", reproducible" : "", read * 1e-9, fma * 1e-9);
    std::printf("%-52s %10s %10s %8s %8s %7s\n", "case", "median us", "best us", "GB/s", "GFLOP/s",
                "of peak");
    for (const Model& model : kModels) {
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
        for (const int keys : {512, 2048, 8192}) {
          for (const int slots : {1, 8, 32}) {
            Case(model, dtype, slots, keys, 1, 0, AttentionMode::kTwoPhase, read, fma);
          }
        }
        for (const int keys : {512, 2048, 6000}) {
          Case(model, dtype, 1, keys, keys, 0, AttentionMode::kTwoPhase, read, fma);
        }
        for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
          Case(model, dtype, 32, 2048 + 64, 1, 2048, mode, read, fma);
        }
      }
    }
    return ran_ == 0 ? 1 : 0;
  }

 private:
  void Case(const Model& model, DType dtype, int slots, int keys, int rows, int shared,
            AttentionMode mode, double read, double fma) {
    char name[120];
    std::snprintf(name, sizeof(name), "%s %s %s %d x %d%s", model.name,
                  std::string(Traits(dtype).name).c_str(), rows > 1 ? "prefill" : "decode", slots,
                  keys,
                  shared == 0                     ? ""
                  : mode == AttentionMode::kPaged ? " shared 2048, paged"
                                                  : " shared 2048, two_phase");
    if (std::string(name).find(options_.filter) == std::string::npos) return;
    ++ran_;
    Workload work(device_, model, dtype, slots, keys, rows, shared);
    work.args().mode = mode;
    work.args().reproducible = options_.reproducible;
    const auto attend = [&] { cpu::ChunkAttention(pool_, isa_, work.args(), scratch_); };
    attend();
    work.Check();
    const Timing timing = Time(options_.clock, attend);
    const double bytes_per_s = work.bytes() / timing.median_s;
    const double flops_per_s = work.flops() / timing.median_s;
    const double of_peak = rows > 1 || shared > 0 ? flops_per_s / fma
                                                  : std::max(bytes_per_s / read, flops_per_s / fma);
    std::printf("%-52s %10.1f %10.1f %8.1f %8.1f %6.0f%%\n", name, timing.median_s * 1e6,
                timing.best_s * 1e6, bytes_per_s * 1e-9, flops_per_s * 1e-9, of_peak * 100);
    std::fflush(stdout);
  }

  Options options_;
  HostDevice device_;
  cpu::ThreadPool pool_;
  cpu::Isa isa_;
  cpu::AttentionScratch scratch_;
  int ran_ = 0;
};

}  // namespace
}  // namespace refrain::kernels

int main(int argc, char** argv) {
  refrain::kernels::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--reproducible") {
      options.reproducible = true;
    } else if (flag == "--cpu-time") {
      options.clock = refrain::bench::Clock::kCpu;
    } else if (flag == "--threads" && has_value) {
      options.threads = std::atoi(argv[++i]);
    } else if (flag == "--isa" && has_value) {
      options.isa = argv[++i];
    } else if (flag == "--filter" && has_value) {
      options.filter = argv[++i];
    } else {
      std::fprintf(stderr, "unknown argument %s; see the head of attention_bench.cc\n", argv[i]);
      return 2;
    }
  }
  const auto isa = refrain::kernels::cpu::ResolveIsa(options.isa);
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.status().ToString().c_str());
    return 2;
  }
  return refrain::kernels::Bench(options).Run();
}
