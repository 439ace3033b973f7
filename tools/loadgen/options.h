#ifndef REFRAIN_TOOLS_LOADGEN_OPTIONS_H_
#define REFRAIN_TOOLS_LOADGEN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/loadgen/extra_body.h"
#include "tools/loadgen/load_run.h"
#include "tools/loadgen/slo.h"
#include "tools/loadgen/sweep.h"
#include "tools/loadgen/synthetic_prompt.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

enum class WorkloadKind { kSharedPrompts, kShareGpt, kMooncake, kMtBench, kQmSum, kOwnLines };

// What follows the last session of a file.
enum class Repeat {
  kOff,
  kNew,   // the file again, with prompts that no pass had before
  kSame,  // the file again as it is: a server with a prefix cache has all of it by then
};

// What the command line says.
struct Options {
  bool help = false;
  // --- server ---
  std::string url;
  std::string grpc_address;
  int32_t calls_per_connection = 100;  // of gRPC, at a time
  std::string model;
  std::string api_key_file;
  std::string tls_ca_file;  // empty: the system's authorities
  bool tls_verify = true;
  std::optional<PromptForm> prompt_form;  // nothing: found out, or each line's own
  double temperature = 0;
  bool ignore_eos = true;
  ExtraMembers extra_body;
  double timeout_s = 300;
  // --- load ---
  LoadOptions load;
  uint64_t seed = 1;
  int32_t warmup_requests = 0;
  // --- workload ---
  WorkloadKind workload = WorkloadKind::kSharedPrompts;
  std::string file;
  Repeat repeat = Repeat::kOff;
  int32_t turns = 1;
  double think_s = 0;
  int32_t output_tokens = 0;  // 0: what the workload says
  int32_t most_output_tokens = 0;
  int32_t most_input_tokens = 0;
  double shared_share = 1;
  int32_t shared_prompts = 1;
  int32_t shared_tokens = 1024;
  int32_t unique_tokens = 64;
  int32_t block_tokens = 512;
  TokenRange token_range;
  // --- result ---
  Slo slo;
  std::optional<SweepOptions> sweep;
  double sweep_precision = 0.1;
  double sweep_most = 1e6;
  bool watch_metrics = true;
  std::vector<std::string> more_metrics;
  std::string json_path;
  std::string label;
};

extern const char kHelp[];

// `seed` stands unless one is given. INVALID_ARGUMENT names the option, its value, and what is
// valid; also for options that do not go together, or that the load would pass over.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments, uint64_t seed);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_OPTIONS_H_
