#ifndef REFRAIN_TOOLS_LOADGEN_RECORDER_H_
#define REFRAIN_TOOLS_LOADGEN_RECORDER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tools/loadgen/backend.h"
#include "tools/loadgen/samples.h"
#include "tools/loadgen/slo.h"

namespace refrain::loadgen {

// One request, from plan to end; times in the event loop's seconds.
struct RequestRecord {
  double planned_s = 0;
  double sent_s = 0;
  double first_token_s = 0;
  double last_token_s = 0;  // or of the answer's finish_reason
  double end_s = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::optional<int32_t> cached_tokens;
  std::optional<bool> is_short;  // fewer tokens than were asked for; nothing: nobody says how many
  bool resent = false;
  std::optional<Failure> failure;
};

struct FailureCount {
  int64_t count = 0;
  std::string example;  // the first message
};

// What a run came to.
struct RunResult {
  double duration_s = 0;  // from the beginning to the last end
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t good = 0;  // completed within the limits of the SLO
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::optional<int64_t> cached_tokens;  // nothing when the server never said
  int64_t input_tokens_of_those = 0;     // of the answers that it said it of
  int64_t short_answers = 0;             // of those completed
  int64_t unknown_lengths = 0;           // of those completed: nothing says whether they are short
  int64_t resent = 0;  // requests that went out twice, for their connection was closed
  std::map<std::string, FailureCount> failures;  // by kind
  std::array<Summary, kMetrics> metrics;         // by Metric, ms, of completed requests
  Summary itl;                                   // between tokens, ms, of all requests
  Summary send_lag;                              // from plan to sending, ms, of all requests
  int64_t peak_in_flight = 0;

  int64_t came() const { return completed + failed; }
  double failed_share() const {
    return came() == 0 ? 0 : static_cast<double>(failed) / static_cast<double>(came());
  }
};

// Gathers what the requests of one run took. It decides nothing and prints nothing. One thread.
class Recorder {
 public:
  explicit Recorder(Slo slo);

  void Sent(double planned_s, double sent_s);
  // Time between events with tokens; an event of several tokens counts for each of them.
  void Gap(double gap_s, int32_t tokens);
  // An answer's first event: the tokens after the first one come at once, too.
  void FirstTokens(int32_t tokens) { AddTogether(tokens); }
  void Ended(const RequestRecord& record);
  // One that failed before it was sent.
  void NeverSent(const RequestRecord& record);

  RunResult Finish(double begin_s) const;

  int64_t in_flight() const { return in_flight_; }
  int64_t completed() const { return result_.completed; }
  int64_t failed() const { return result_.failed; }
  int64_t output_tokens() const { return result_.output_tokens; }

 private:
  void AddTogether(int32_t tokens);
  void AddFailure(const Failure& failure);

  const Slo slo_;
  RunResult result_;
  std::array<Samples, kMetrics> metrics_;
  Histogram itl_;
  Histogram send_lag_;
  int64_t in_flight_ = 0;
  double last_end_s_ = 0;
};

// The four values of an answer. It has no TPOT, which is then 0, when its tokens, or its only one,
// came at one time: between them there is none to measure.
struct RequestValues {
  MetricValues ms = {};
  bool has_tpot = false;
};
RequestValues ValuesOf(const RequestRecord& record);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_RECORDER_H_
