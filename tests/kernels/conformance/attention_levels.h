#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_LEVELS_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_LEVELS_H_

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/attention_args.h"

namespace refrain::kernels {

// ChunkAttention of the CPU back end at one level: one of this machine, or one whose instructions
// it has not got, in emulation.
struct AttentionLevel {
  enum class Emulated { kNo, kVnni, kBf16, kAmx };

  std::string isa;
  Emulated emulated = Emulated::kNo;
  // Over K and V in bf16, and in E4M3, which are widened to it, q and weights are rounded to bf16.
  bool dots = false;
  // Where rows are many, over K and V in 16 bits or fewer, words are multiplied.
  bool words = false;
  int threads = 1;

  std::string name() const;
  AttentionLevel On(int other_threads) const;

  // Computes args.out. Fails the test where emulated tiles were used as hardware would not allow.
  void Attend(const ChunkAttentionArgs& args) const;

  // Whether something is rounded but sums.
  bool Rounds(DType kv, bool reproducible) const {
    if (dots && (kv == DType::kBF16 || kv == DType::kF8E4M3)) return true;
    return words && !reproducible && kv != DType::kF32;
  }
};

inline std::ostream& operator<<(std::ostream& out, const AttentionLevel& level) {
  return out << level.name();
}

// Every level, each on one thread, the machine's best on three too; emulated AMX on three.
std::vector<AttentionLevel> AttentionLevels();

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_LEVELS_H_
