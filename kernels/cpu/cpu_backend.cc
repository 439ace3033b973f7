#include "kernels/cpu/cpu_backend.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_linear_weight.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/level_check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/processors.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/second_copy.h"

namespace refrain::kernels::cpu {

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const CpuOptions& options) {
  auto backend = Create(options, ThisProcessor(), &CheckLevel);
  if (!backend.ok()) return backend;
  BackendInfo& info = (*backend)->info_;
  if (const int nodes = MemoryNodesOf(AllowedProcessors()); nodes > 1 && info.threads > 1) {
    absl::StrAppend(&info.warning, info.warning.empty() ? "" : "; ", "threads may run on ", nodes,
                    " NUMA nodes and then read memory of others, which is slower than one daemon"
                    " on each (numactl --cpunodebind=N --membind=N)");
  }
  return backend;
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const CpuOptions& options,
                                                               const Processor& processor,
                                                               const LevelChecker& check) {
  if (options.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend.threads is ", options.threads, "; it must be 0 or more"));
  }
  const absl::StatusOr<ChosenLevel> level = ChooseLevel(options.isa, processor, check);
  if (!level.ok()) return level.status();
  std::unique_ptr<CpuBackend> backend(new CpuBackend(level->isa, options.threads));
  std::string warning = level->warning;
  if (const int threads = backend->info_.threads; threads < options.threads) {
    absl::StrAppend(&warning, warning.empty() ? "" : "; ", "backend.threads is ", options.threads,
                    ", the system lets ", threads, " run");
  }
  backend->info_.warning = warning;
  return backend;
}

CpuBackend::CpuBackend(Isa isa, int threads)
    : isa_(isa), pool_(threads), weight_memory_(device_), activations_(isa), argmax_search_(isa) {
  info_.name = "cpu";
  info_.isa = std::string(Name(isa));
  info_.threads = pool_.threads();
  info_.preferred_kv = isa >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF16;
  info_.second_copies = SecondCopiesOf(isa);
}

absl::StatusOr<std::unique_ptr<LinearWeight>> CpuBackend::PackLinear(
    std::span<const WeightSlice> slices, const PackOptions& options) {
  return PackCpuLinear(slices, options, isa_, weight_memory_, pool_);
}

void CpuBackend::Embed(const EmbedArgs& args) {
  const auto& table = static_cast<const CpuLinearWeight&>(*args.table);
  pool_.ParallelForStretches(static_cast<int64_t>(args.ids.size()), /*grain=*/4,
                             [&](int64_t begin, int64_t end) {
                               for (int64_t row = begin; row < end; ++row) {
                                 const int32_t id = TokenOf(args.ids[row], args.sampled);
                                 if (id >= 0) table.DequantizeRow(id, args.out.F32Row(row));
                               }
                             });
}

void CpuBackend::Linear(const LinearArgs& args) { cpu::Linear(pool_, activations_, args); }

void CpuBackend::LinearArgMax(const LinearArgMaxArgs& args) {
  argmax_search_.Run(pool_, activations_, args);
}

void CpuBackend::GateUp(const GateUpArgs& args) { cpu::GateUp(pool_, isa_, activations_, args); }

void CpuBackend::RmsNorm(const RmsNormArgs& args) { cpu::RmsNorm(pool_, isa_, args); }

void CpuBackend::RopeAppend(const RopeAppendArgs& args) { cpu::RopeAppend(pool_, isa_, args); }

void CpuBackend::ChunkAttention(const ChunkAttentionArgs& args) {
  cpu::ChunkAttention(pool_, isa_, args, attention_scratch_);
}

void CpuBackend::SwiGlu(const SwiGluArgs& args) { cpu::SwiGlu(pool_, isa_, args); }

void CpuBackend::Add(const AddArgs& args) { cpu::Add(pool_, isa_, args); }

void CpuBackend::ForEachOnHost(int64_t count, const std::function<void(int64_t)>& fn) {
  pool_.ParallelFor(count, /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

}  // namespace refrain::kernels::cpu
