#include "kernels/cpu/level_choice.h"

#include "absl/strings/str_cat.h"

namespace refrain::kernels::cpu {

absl::StatusOr<ChosenLevel> ChooseLevel(std::string_view name, const Processor& processor,
                                        const LevelChecker& check) {
  const absl::StatusOr<Isa> first = ResolveIsa(name, processor);
  if (!first.ok()) return first.status();
  ChosenLevel chosen{*first, ""};
  while (chosen.isa != Isa::kPortable) {
    const absl::Status right = check(chosen.isa);
    if (right.ok()) break;
    absl::StrAppend(&chosen.warning, chosen.warning.empty() ? "" : "; ", "level ",
                    std::string(Name(chosen.isa)),
                    " computes wrong results on this machine and is not used (", right.message(),
                    ")");
    if (name != "auto") return absl::FailedPreconditionError(chosen.warning);
    do {
      const Isa below = static_cast<Isa>(static_cast<int>(chosen.isa) - 1);
      chosen.isa = FastestIsa(below, processor.vendor);
    } while (!Runs(chosen.isa, processor.best));
  }
  return chosen;
}

}  // namespace refrain::kernels::cpu
