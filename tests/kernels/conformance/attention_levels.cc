#include "tests/kernels/conformance/attention_levels.h"

#include <gtest/gtest.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/kernels/cpu/attention_emulated_kernels.h"

namespace refrain::kernels {

std::string AttentionLevel::name() const {
  return isa + (emulated == Emulated::kNo ? "_" : "_emulated_") + std::to_string(threads) +
         "threads";
}

AttentionLevel AttentionLevel::On(int other_threads) const {
  AttentionLevel level = *this;
  level.threads = other_threads;
  return level;
}

void AttentionLevel::Attend(const ChunkAttentionArgs& args) const {
  cpu::ThreadPool pool(threads);
  cpu::AttentionScratch scratch;
  switch (emulated) {
    case Emulated::kNo:
      cpu::ChunkAttention(pool, *cpu::ResolveIsa(isa), args, scratch);
      return;
    case Emulated::kVnni:
      cpu::ChunkAttention(pool, cpu::EmulatedVnniAttentionKernels(), args, scratch);
      return;
    case Emulated::kBf16:
      cpu::ChunkAttention(pool, cpu::EmulatedBf16AttentionKernels(), args, scratch);
      return;
    case Emulated::kAmx:
      cpu::ChunkAttention(pool, cpu::EmulatedAmxAttentionKernels(), args, scratch);
      break;
  }
  const cpu::EmulatedTileLog log = cpu::TakeAttentionTileLog();
  EXPECT_EQ(log.violations, 0) << log.violation;
  EXPECT_FALSE(log.in_use) << "tiles were not released";
  const bool tiles_allowed =
      !args.reproducible && (args.kv.dtype == DType::kBF16 || args.kv.dtype == DType::kF8E4M3);
  EXPECT_TRUE(tiles_allowed || log.dots == 0);
}

std::vector<AttentionLevel> AttentionLevels() {
  using Emulated = AttentionLevel::Emulated;
  std::vector<AttentionLevel> levels;
  bool avx512 = false;
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    levels.push_back({std::string(cpu::Name(isa)), Emulated::kNo, isa >= cpu::Isa::kAvx512Bf16,
                      isa >= cpu::Isa::kAvx512Vnni, 1});
    avx512 |= isa == cpu::Isa::kAvx512;
  }
  levels.push_back(levels.back().On(3));
  if (!avx512) return levels;
  levels.push_back({"avx512_vnni", Emulated::kVnni, false, true, 1});
  levels.push_back({"avx512_bf16", Emulated::kBf16, true, true, 1});
  levels.push_back({"amx", Emulated::kAmx, true, true, 3});
  return levels;
}

}  // namespace refrain::kernels
