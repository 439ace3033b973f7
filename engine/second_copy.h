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
  size_t free_bytes = 0;    // of the back end's memory
  size_t weight_bytes = 0;  // of all weights as they are packed without it
  int64_t cache_bytes = 0;  // kv_cache.memory_bytes; 0: a share of what is left
};

struct SecondCopyPlan {
  size_t bytes = 0;     // 0: none is to be made
  std::string warning;  // why there is none that was asked for, else ""
};

// Whether the weights of all layers whose types gain by it (BackendInfo::second_copies) are to be
// kept a second time, in f16, for products of many rows. The embedding and the output head are
// never: few of their rows are multiplied at a time. There is none without room beside the weights
// and a KV cache of the size asked for; `auto` makes it only where a gain was measured, of up to a
// tenth of the memory that is free. Under `reproducible` products may not hang on how many rows
// there are, and other arithmetic than the default keeps its own form of the weights. Pure.
SecondCopyPlan PlanSecondCopy(const WeightSource& source, const kernels::BackendInfo& backend,
                              const SecondCopyQuestion& question);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SECOND_COPY_H_
