#ifndef REFRAIN_KERNELS_CPU_LEVEL_CHOICE_H_
#define REFRAIN_KERNELS_CPU_LEVEL_CHOICE_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/isa.h"

namespace refrain::kernels::cpu {

// OK where a level computes what it should (level_check.h).
using LevelChecker = std::function<absl::Status(Isa)>;

struct ChosenLevel {
  Isa isa = Isa::kPortable;
  std::string warning;  // levels that were passed over, and why; "" where there is nothing to say
};

// The level that `name` ("auto" or a level's) means on `processor`, if it computes what it should.
// "auto" goes down else, each time to the fastest of those below (FastestIsa), and takes the
// portable one, which no instruction can spoil, unchecked.
//
// FAILED_PRECONDITION for a level by name that is wrong, with the check's finding; else
// ResolveIsa's failures.
absl::StatusOr<ChosenLevel> ChooseLevel(std::string_view name, const Processor& processor,
                                        const LevelChecker& check);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_LEVEL_CHOICE_H_
