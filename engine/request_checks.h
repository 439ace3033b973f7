#ifndef REFRAIN_ENGINE_REQUEST_CHECKS_H_
#define REFRAIN_ENGINE_REQUEST_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/request.h"

namespace refrain::engine {

struct RequestLimits {
  int32_t max_choices = 128;  // limits.n
  int32_t max_beams = 64;     // all of a request run at once: engine.max_sequences
  int64_t vocab_size = 0;
};

// What can be seen without encoding: numbers out of range, ids outside of the vocabulary. Pure.
// INVALID_ARGUMENT naming the field, the value and what is valid.
//
// With beams the sampling parameters must be at their defaults, since they would change nothing or
// something else than the search is defined for; nothing can be streamed before the end, but that
// is the front end's business.
absl::Status CheckRequest(const Request& request, const RequestLimits& limits);

// Of them, what is wrong with numbers alone.
absl::Status CheckSampling(const SamplingParams& sampling);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_REQUEST_CHECKS_H_
