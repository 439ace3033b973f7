#include "tests/support/stream_output.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <map>

namespace refrain::testing {

namespace {

struct Choice {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;
};

}  // namespace

std::optional<StreamOutput> ReadToEnd(engine::TokenStream& stream) {
  StreamOutput output;
  std::map<int32_t, Choice> choices;  // those of one stream come in any order
  for (;;) {
    stream.WaitUntil(engine::TokenStream::Clock::now() + std::chrono::seconds(60));
    const engine::StreamBatch batch = stream.Read();
    for (const engine::TokenEvent& event : batch.tokens) {
      Choice& choice = choices[event.choice];
      auto& bits = event.from_prompt ? output.prompt_logprob_bits : choice.logprob_bits;
      if (!event.from_prompt) choice.tokens.push_back(static_cast<int32_t>(event.token));
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
    for (const auto& [number, choice] : choices) {
      output.choice_tokens.push_back(static_cast<int32_t>(choice.tokens.size()));
      output.tokens.insert(output.tokens.end(), choice.tokens.begin(), choice.tokens.end());
      output.logprob_bits.insert(output.logprob_bits.end(), choice.logprob_bits.begin(),
                                 choice.logprob_bits.end());
    }
    return output;
  }
}

}  // namespace refrain::testing
