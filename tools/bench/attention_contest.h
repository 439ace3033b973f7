#ifndef REFRAIN_TOOLS_BENCH_ATTENTION_CONTEST_H_
#define REFRAIN_TOOLS_BENCH_ATTENTION_CONTEST_H_

#include <array>
#include <string_view>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/bench/attention_workload.h"
#include "tools/bench/cpu_peaks.h"
#include "tools/bench/naive_attention.h"

namespace refrain::bench {

// What the machine can do at most, measured in the same run.
struct Ceilings {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;
  Arithmetic arithmetic = Arithmetic::kF32;  // of the operations above

  // No machine with these ceilings is faster.
  double LeastSeconds(double flops, double bytes) const;
};

// The ways to compute one decode step of a batch whose slots share their first keys.
enum class Method {
  kNaive,     // monolithic K and V per sequence
  kPaged,     // chunks of its own for every sequence
  kSameIds,   // paged, with the shared pages given by hand: the same chunk ids for every sequence
  kTwoPhase,  // the shared chunks first, all sequences together
};
inline constexpr std::array kMethods = {Method::kNaive, Method::kPaged, Method::kSameIds,
                                        Method::kTwoPhase};
std::string_view Name(Method method);

struct Interval {
  double low, median, high;
};

// Times of one case, [round] in seconds; empty for a method that was left out. The ceilings are
// medians of probes within the same rounds.
struct ContestResult {
  std::array<std::vector<double>, kMethods.size()> seconds;
  Ceilings ceilings;

  bool Has(Method method) const { return !seconds[static_cast<int>(method)].empty(); }
  double Median(Method method) const;
  // Of the quotients a / b within one round, with the 95 % interval of that median.
  Interval Ratio(Method a, Method b) const;
};

struct ContestOptions {
  bool reproducible = false;
  bool own_chunks = true;  // with the methods that need memory for every sequence's own keys
  int min_rounds = 5;
  double min_seconds = 0.5;  // of all methods together; whichever is later
};

// Compares a row with the reference, and ends the program where it is wrong; then runs the methods
// on one case round after round, in turn forwards and backwards, so that what
// else the machine does meets them alike; before each call memory of 256 MiB is read, so that none
// finds its keys in the caches. Not thread-safe.
class AttentionContest {
 public:
  AttentionContest(kernels::cpu::ThreadPool& pool, kernels::cpu::Isa isa, Clock clock)
      : pool_(pool), isa_(isa), clock_(clock), probe_(pool, isa), naive_(pool, isa) {}

  // `kv` has the chunks for every method that runs. shape.rows is 1.
  ContestResult Run(const AttentionModel& model, const RandomKv& kv, const BatchShape& shape,
                    const ContestOptions& options);

 private:
  kernels::cpu::ThreadPool& pool_;
  kernels::cpu::Isa isa_;
  Clock clock_;
  PeakProbe probe_;
  NaiveAttention naive_;
  kernels::cpu::AttentionScratch scratch_;
};

// Least seconds of the two-phase method, of paged and naive (each sequence reads for itself), and
// of paged with pages shared by hand: what is shared comes from memory once at best, and is
// multiplied for each sequence. All of them by the same two ceilings.
double TwoPhaseLeastSeconds(const Ceilings& ceilings, const AttentionModel& model,
                            kernels::DType kv, const BatchShape& shape);
double PagedLeastSeconds(const Ceilings& ceilings, const AttentionModel& model, kernels::DType kv,
                         const BatchShape& shape);
double SameIdsLeastSeconds(const Ceilings& ceilings, const AttentionModel& model, kernels::DType kv,
                           const BatchShape& shape);
// Of one of these.
double LeastSeconds(Method method, const Ceilings& ceilings, const AttentionModel& model,
                    kernels::DType kv, const BatchShape& shape);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_ATTENTION_CONTEST_H_
