#ifndef REFRAIN_TOOLS_CACHESIM_TRACE_H_
#define REFRAIN_TOOLS_CACHESIM_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcache/types.h"

namespace refrain::cachesim {

// One prompt as the blocks of which it consists. A block's number names its tokens and all before
// them: two requests share a prefix exactly as far as their numbers are equal.
struct TraceRequest {
  double arrival_s = 0;
  int32_t tokens = 0;  // of the prompt; the last block may be part-full
  std::vector<int32_t> blocks;
  kvcache::AnswerEnd answer = kvcache::AnswerEnd::kOther;
};

// Requests in order of arrival, and what they are made of.
struct Trace {
  int32_t block_tokens = 0;
  int32_t distinct_blocks = 0;  // blocks are numbered from 0 by first use
  int64_t distinct_tokens = 0;
  int64_t prompt_tokens = 0;  // of all requests
  std::vector<TraceRequest> requests;
};

struct TraceOptions {
  // Sessions whose traces do not say when they began start this long after one another.
  double session_gap_s = 0;
};

// Reads a trace, plain or gzipped, one JSON object a line, in either of two formats told apart by
// the first line:
//
//   Mooncake   {"timestamp": ms, "input_length": n, "hash_ids": [...]}: one request, ids of its
//              512-token blocks, the last one possibly part-full; perhaps an "output_length"
//   agentic    {"id": "...", "block_size": n, "requests": [...]}: one session; a request has "t"
//              (seconds from the session's start), "in" and "hash_ids" (full blocks only, ids local
//              to the session), perhaps "stop" ("tool_use", "end_turn") and "out" (tokens), or is a
//              sub-agent with "requests" of its own
//
// NOT_FOUND: no such file. INVALID_ARGUMENT names file, line and field.
absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceOptions& options);

}  // namespace refrain::cachesim

#endif  // REFRAIN_TOOLS_CACHESIM_TRACE_H_
