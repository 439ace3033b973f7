#include "engine/step_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace refrain::engine {
namespace {

void AppendId(std::string* out, SequenceId id) { absl::StrAppend(out, static_cast<uint64_t>(id)); }

}  // namespace

std::string StepPlan::ToString() const {
  return absl::StrCat("preempt [", absl::StrJoin(preempt, " ", AppendId), "] admit [",
                      absl::StrJoin(admit, " ", AppendId), "] work [",
                      absl::StrJoin(work, " ",
                                    [](std::string* out, const StepWork& w) {
                                      AppendId(out, w.sequence);
                                      absl::StrAppend(out, ":", w.num_tokens);
                                    }),
                      "]");
}

}  // namespace refrain::engine
