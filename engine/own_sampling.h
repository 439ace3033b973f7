#ifndef REFRAIN_ENGINE_OWN_SAMPLING_H_
#define REFRAIN_ENGINE_OWN_SAMPLING_H_

#include <string>

#include "engine/model/weight_source.h"
#include "engine/request.h"

namespace refrain::engine {

// The sampling parameters of requests that say nothing of them: what the model's files ask for,
// else SamplingParams' own. A value that a request could not ask for either (CheckSampling) is left
// out, and told in `warning`, as is a file that cannot be read; it is no reason not to serve.
// Called once at load.
SamplingParams OwnSampling(const WeightSource& source, std::string* warning);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_OWN_SAMPLING_H_
