#include "tests/support/stream_output.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>

namespace refrain::testing {

std::optional<StreamOutput> ReadToEnd(engine::TokenStream& stream) {
  StreamOutput output;
  for (;;) {
    stream.WaitUntil(engine::TokenStream::Clock::now() + std::chrono::seconds(60));
    const engine::StreamBatch batch = stream.Read();
    for (const engine::TokenEvent& event : batch.tokens) {
      auto& bits = event.from_prompt ? output.prompt_logprob_bits : output.logprob_bits;
      if (!event.from_prompt) output.tokens.push_back(static_cast<int32_t>(event.token));
      if (event.logprob.has_value()) {
        bits.push_back(std::bit_cast<uint32_t>(event.logprob->logprob));
      }
      for (const engine::TokenLogprob& rival : event.top) {
        bits.push_back(std::bit_cast<uint32_t>(rival.logprob));
      }
    }
    if (!batch.finished) continue;
    if (absl::IsCancelled(batch.status)) return std::nullopt;
    EXPECT_TRUE(batch.status.ok()) << batch.status;
    return output;
  }
}

}  // namespace refrain::testing
