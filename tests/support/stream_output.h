#ifndef REFRAIN_TESTS_SUPPORT_STREAM_OUTPUT_H_
#define REFRAIN_TESTS_SUPPORT_STREAM_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/token_stream.h"

namespace refrain::testing {

// What must be equal, bit by bit, under engine.reproducible.
struct StreamOutput {
  std::vector<int32_t> choice_tokens;  // how many of `tokens` are of choice 0, of choice 1, ...
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;         // of each token and its rivals
  std::vector<uint32_t> prompt_logprob_bits;  // where they were asked for
  friend bool operator==(const StreamOutput&, const StreamOutput&) = default;
};

// Reads a stream to its end: all of its batches as one, with what the last one says. Fails the
// test, and returns what there was, when nothing comes for five minutes.
engine::StreamBatch ReadBatches(engine::TokenStream& stream);

// Reads a stream to its end, choice behind choice; nothing when it was cancelled. Any other failure
// fails the test.
std::optional<StreamOutput> ReadToEnd(engine::TokenStream& stream);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_STREAM_OUTPUT_H_
