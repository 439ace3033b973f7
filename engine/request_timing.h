#ifndef REFRAIN_ENGINE_REQUEST_TIMING_H_
#define REFRAIN_ENGINE_REQUEST_TIMING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/clock.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// When what happened to one request: written by LoopObserver and, at its ends, by RunningRequest.
// Without an observer it stays empty. Engine thread only.
struct RequestTiming {
  struct Sequence {
    Clock::TimePoint first_token;  // of these two only with tokens
    Clock::TimePoint last_token;
    int32_t tokens = 0;
  };

  bool observed = false;
  Clock::TimePoint submitted;
  Clock::TimePoint arrived;  // on the engine thread
  std::optional<Clock::TimePoint> started;
  std::optional<Clock::TimePoint> first_token;
  Clock::TimePoint last_token;
  std::vector<Sequence> sequences;   // by choice; of beams the first only
  std::array<int32_t, 4> ends = {};  // by FinishReason
  absl::StatusCode status = absl::StatusCode::kOk;

  // What goes to the consumer now; its ends are counted.
  void Sent(const StreamBatch& batch) {
    if (!observed) return;
    for (const ChoiceEnd& end : batch.ends) ++ends[static_cast<size_t>(end.reason)];
    if (batch.finished) status = batch.status.code();
  }
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_REQUEST_TIMING_H_
