#ifndef REFRAIN_ENGINE_SECOND_COPY_H_
#define REFRAIN_ENGINE_SECOND_COPY_H_

#include <cstddef>
#include <string>

#include "engine/model/weight_source.h"
#include "engine/options.h"
#include "kernels/backend.h"

namespace refrain::engine {

struct SecondCopyQuestion {
  SecondCopyOption wanted = SecondCopyOption::kAuto;
  kernels::ComputeDType compute = kernels::ComputeDType::kAuto;
  bool reproducible = false;
  size_t total_bytes = 0;  // of the back end's memory, free or not
  size_t room_bytes = 0;   // of it free behind the weights as they are
};

struct SecondCopyPlan {
  size_t bytes = 0;     // 0: none is to be made
  std::string warning;  // why there is none that was asked for, else ""
};

// Whether the weights of all layers whose types gain by it (BackendInfo::second_copies) are to be
// kept a second time, in f16, for products of many rows. The embedding and the output head are
// never: few of their rows are multiplied at a time. `auto` takes up to a tenth of the back end's
// memory, and no more than is free; `on` whatever it takes. Under `reproducible` products may not
// hang on how many rows there are, and other arithmetic than the default keeps its own form of the
// weights. Pure.
SecondCopyPlan PlanSecondCopy(const WeightSource& source, const kernels::BackendInfo& backend,
                              const SecondCopyQuestion& question);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SECOND_COPY_H_
