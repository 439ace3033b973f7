#ifndef REFRAIN_TOOLS_BENCH_ATTENTION_REPORT_H_
#define REFRAIN_TOOLS_BENCH_ATTENTION_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/attention_contest.h"

namespace refrain::bench {

// One method on one case.
struct Measurement {
  std::string suite;  // "grid", "completion" or "batch"
  std::string model, kv;
  int batch = 0;
  int prompt_tokens = 0;      // n_p
  int shared_tokens = 0;      // n_s
  int completion_tokens = 0;  // n_c: keys beyond the prompt
  std::string method;
  double median_s = 0, least_s = 0, most_s = 0;
  double ideal_s = 0;  // by the ceilings of the run
  // Time by two_phase's: the median of the rounds, on the curve over completion length of all steps
  // up to it; and what the ceilings allow.
  double by_two_phase = 0, by_two_phase_allowed = 0;
  std::string goals;  // of the grid, at two_phase: what was measured and its verdicts
  // Curves only: batch * completion / the time of all steps up to it.
  double tokens_per_s = 0;
};

// What a run measured, for files that tools/plot/attention_plot and spreadsheets read.
struct AttentionReport {
  std::string command, processor, level, date;
  int threads = 0;
  double read_bytes_per_s = 0;
  // Of every arithmetic that the level has: its name, operations per second.
  std::vector<std::pair<std::string, double>> flops_per_s;
  std::vector<Measurement> measurements;
  bool missed = false;  // a goal

  // False, with a message on stderr, where the file cannot be written.
  bool WriteJson(const std::string& path) const;
  bool WriteCsv(const std::string& path) const;
};

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_ATTENTION_REPORT_H_
