#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::kernels::cpu {
namespace {

struct CpuidLeaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

CpuidLeaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

constexpr bool Bit(uint32_t word, int bit) { return (word >> bit) & 1; }

// Register state that the operating system saves (XCR0).
uint64_t EnabledState() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

constexpr int kVexVnni = 4;  // leaf 7.1, eax

constexpr uint64_t kYmmState = 0x6;       // SSE and AVX
constexpr uint64_t kZmmState = 0xe6;      // and opmasks, upper halves, upper registers
constexpr uint64_t kTileState = 0x60000;  // tile configuration and tile data

// Tile data is off for a process until it asks (Linux 5.16 and later).
bool RequestTileData() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kTileDataFeature = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileDataFeature) == 0;
}

Isa Detect() {
  const CpuidLeaf leaf1 = Cpuid(1, 0);
  const CpuidLeaf leaf7 = Cpuid(7, 0);
  const CpuidLeaf leaf7_1 = Cpuid(7, 1);
  constexpr int kFma = 12, kOsxsave = 27, kAvx = 28, kF16c = 29;  // leaf 1, ecx
  if (!Bit(leaf1.c, kOsxsave) || !Bit(leaf1.c, kAvx)) return Isa::kPortable;
  const uint64_t state = EnabledState();

  constexpr int kAvx2 = 5;  // leaf 7, ebx
  if ((state & kYmmState) != kYmmState || !Bit(leaf7.b, kAvx2) || !Bit(leaf1.c, kFma) ||
      !Bit(leaf1.c, kF16c)) {
    return Isa::kPortable;
  }
  constexpr int kAvx512F = 16, kAvx512Dq = 17, kAvx512Bw = 30, kAvx512Vl = 31;  // leaf 7, ebx
  if ((state & kZmmState) != kZmmState || !Bit(leaf7.b, kAvx512F) || !Bit(leaf7.b, kAvx512Dq) ||
      !Bit(leaf7.b, kAvx512Bw) || !Bit(leaf7.b, kAvx512Vl)) {
    return Bit(leaf7_1.a, kVexVnni) ? Isa::kAvxVnni : Isa::kAvx2;
  }
  constexpr int kVnni = 11;  // leaf 7, ecx
  if (!Bit(leaf7.c, kVnni)) return Isa::kAvx512;
  constexpr int kBf16 = 5;  // leaf 7.1, eax
  if (!Bit(leaf7_1.a, kBf16)) return Isa::kAvx512Vnni;
  constexpr int kAmxBf16 = 22, kAmxTile = 24, kAmxInt8 = 25;  // leaf 7, edx
  if ((state & kTileState) != kTileState || !Bit(leaf7.d, kAmxBf16) || !Bit(leaf7.d, kAmxTile) ||
      !Bit(leaf7.d, kAmxInt8) || !RequestTileData()) {
    return Isa::kAvx512Bf16;
  }
  return Isa::kAmx;
}

std::string Vendor() {
  const CpuidLeaf leaf0 = Cpuid(0, 0);
  std::string vendor;
  for (const uint32_t word : {leaf0.b, leaf0.d, leaf0.c}) {
    vendor.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return vendor;
}

int Family() {
  const uint32_t signature = Cpuid(1, 0).a;
  const uint32_t family = signature >> 8 & 0xf;
  return static_cast<int>(family == 0xf ? family + (signature >> 20 & 0xff) : family);
}

}  // namespace

Isa DetectIsa() {
  static const Isa isa = Detect();
  return isa;
}

bool HasVexVnni() {
  static const bool has = Bit(Cpuid(7, 1).a, kVexVnni);
  return has;
}

bool HasAvx512Fp16() {
  constexpr int kFp16 = 23;  // leaf 7, edx
  static const bool has = DetectIsa() >= Isa::kAvx512 && Bit(Cpuid(7, 0).d, kFp16);
  return has;
}

Processor ThisProcessor() { return {DetectIsa(), Vendor(), Family()}; }

CacheLevel NearestFastCache(const Processor& processor) {
  constexpr int kZen5 = 0x1a;
  const bool first = processor.vendor == "AuthenticAMD" && processor.family >= kZen5;
  return first ? CacheLevel::kFirst : CacheLevel::kSecond;
}

Isa FastestIsa(Isa best, std::string_view vendor) {
  const bool slow_dot_products = best == Isa::kAvx512Bf16 && vendor == "GenuineIntel";
  return slow_dot_products ? Isa::kAvx512Vnni : best;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (int i = 0; i <= static_cast<int>(DetectIsa()); ++i) {
    if (const Isa isa = static_cast<Isa>(i); Runs(isa, DetectIsa())) isas.push_back(isa);
  }
  return isas;
}

absl::StatusOr<Isa> ResolveIsa(std::string_view name) { return ResolveIsa(name, ThisProcessor()); }

absl::StatusOr<Isa> ResolveIsa(std::string_view name, const Processor& processor) {
  if (name == "auto") return FastestIsa(processor.best, processor.vendor);
  const auto found = std::find(kIsaNames.begin(), kIsaNames.end(), name);
  if (found == kIsaNames.end()) {
    std::string message =
        absl::StrCat("backend.isa is \"", std::string(name), "\"; valid are auto");
    for (const std::string_view valid : kIsaNames) {
      absl::StrAppend(&message, ", ", std::string(valid));
    }
    return absl::InvalidArgumentError(message);
  }
  const Isa isa = static_cast<Isa>(found - kIsaNames.begin());
  if (!Runs(isa, processor.best)) {
    return absl::FailedPreconditionError(absl::StrCat("backend.isa is \"", std::string(name),
                                                      "\", but this machine's best level is \"",
                                                      std::string(Name(processor.best)), "\""));
  }
  return isa;
}

}  // namespace refrain::kernels::cpu
