#ifndef REFRAIN_KERNELS_CPU_ISA_H_
#define REFRAIN_KERNELS_CPU_ISA_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::kernels::cpu {

// Instruction-set levels, the better the later. Each contains the ones before it, but for
// kAvxVnni, which kAvx512 does not contain (Runs). A kernel file is compiled once per level it has
// code for; a level without a kernel of its own uses the nearest one below.
enum class Isa : uint8_t {
  kPortable,    // plain C++, x86-64 baseline
  kAvx2,        // AVX2, FMA, F16C
  kAvxVnni,     // and AVX-VNNI (Intel's client processors from Alder Lake, Sierra Forest)
  kAvx512,      // kAvx2 and AVX-512 F, BW, DQ, VL
  kAvx512Vnni,  // and VNNI (Cascade Lake, Ice Lake)
  kAvx512Bf16,  // and BF16 (Zen 4, Cooper Lake)
  kAmx,         // and AMX tiles, bf16 and int8 (Sapphire Rapids)
};

inline constexpr std::array<std::string_view, 7> kIsaNames = {
    "portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

constexpr std::string_view Name(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

// Whether a processor whose best level is `best` runs `isa`. One with AVX-512 VNNI has kAvxVnni's
// dot product, encoded in another way (HasVexVnni) where it does not know both.
constexpr bool Runs(Isa isa, Isa best) {
  return isa <= best && !(isa == Isa::kAvxVnni && best == Isa::kAvx512);
}

// The best level this machine and kernel can run. For AMX the process must have asked the kernel
// for tile data, which this does (arch_prctl), once.
Isa DetectIsa();

// Whether VPDPBUSD may be encoded as AVX-VNNI has it.
bool HasVexVnni();

// Whether AVX-512's instructions on f16 may be used (Sapphire Rapids): a level of its own would
// have nothing but them, and what they make is the same.
bool HasAvx512Fp16();

// What "auto" looks at.
struct Processor {
  Isa best = Isa::kPortable;  // level that it and the operating system can run
  std::string vendor;         // as CPUID gives it: "GenuineIntel", "AuthenticAMD"
  int family = 0;             // the displayed one, extended family added
};
Processor ThisProcessor();

// Which cache is asked for what few rows read from memory soon.
enum class CacheLevel : uint8_t { kFirst, kSecond };

// The second one's misses under way are more, and on Zen 4 asking the first one kept decoding at
// two thirds of the bandwidth. Zen 5 brings as much into its first one, where reading finds it
// sooner (docs/results/attention-zen5.md).
CacheLevel NearestFastCache(const Processor& processor);

// The level that "auto" takes of those up to `best`; `vendor` as CPUID gives it.
// Intel's processors take two cycles for 32 products by BF16 dot product, and do 64 by f32
// multiply-adds meanwhile (docs/results/attention-bf16.md): without AMX tiles the level below is
// faster, and more precise. AMD's do as many dot products as multiply-adds.
Isa FastestIsa(Isa best, std::string_view vendor);

// Every level this machine can run, in ascending order, the best last: what tests force one by one.
std::vector<Isa> SupportedIsas();

// "auto" (FastestIsa) or a name; INVALID_ARGUMENT names the value and the valid ones,
// FAILED_PRECONDITION the level that the machine has not got.
absl::StatusOr<Isa> ResolveIsa(std::string_view name);
absl::StatusOr<Isa> ResolveIsa(std::string_view name, const Processor& processor);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ISA_H_
