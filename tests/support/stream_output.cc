#include "tests/support/stream_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

#include "tests/support/slow_build.h"

namespace refrain::testing {

namespace {

struct Choice {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;
};

}  // namespace

engine::StreamBatch ReadBatches(engine::TokenStream& stream) {
  constexpr auto kPatience = std::chrono::minutes(5) * kSlowBuildFactor;
  engine::StreamBatch all;
  while (!all.finished) {
    if (!stream.WaitUntil(engine::TokenStream::Clock::now() + kPatience)) {
      ADD_FAILURE() << "a stream fell silent behind " << all.tokens.size() << " tokens";
      all.status = absl::DeadlineExceededError("the stream fell silent");
      return all;
    }
    engine::StreamBatch batch = stream.Read();
    std::move(batch.tokens.begin(), batch.tokens.end(), std::back_inserter(all.tokens));
    std::move(batch.ends.begin(), batch.ends.end(), std::back_inserter(all.ends));
    std::move(batch.text_ids.begin(), batch.text_ids.end(), std::back_inserter(all.text_ids));
    all.finished = batch.finished;
    all.status = batch.status;
    all.usage = batch.usage;
  }
  return all;
}

std::optional<StreamOutput> ReadToEnd(engine::TokenStream& stream) {
  const engine::StreamBatch all = ReadBatches(stream);
  if (absl::IsCancelled(all.status)) return std::nullopt;
  EXPECT_TRUE(all.status.ok()) << all.status;
  StreamOutput output;
  std::map<int32_t, Choice> choices;  // those of one stream come in any order
  for (const engine::TokenEvent& event : all.tokens) {
    Choice& choice = choices[event.choice];
    auto& bits = event.from_prompt ? output.prompt_logprob_bits : choice.logprob_bits;
    if (!event.from_prompt) choice.tokens.push_back(static_cast<int32_t>(event.token));
    if (event.logprob.has_value()) bits.push_back(std::bit_cast<uint32_t>(event.logprob->logprob));
    for (const engine::TokenLogprob& rival : event.top) {
      bits.push_back(std::bit_cast<uint32_t>(rival.logprob));
    }
  }
  for (const auto& [number, choice] : choices) {
    output.choice_tokens.push_back(static_cast<int32_t>(choice.tokens.size()));
    output.tokens.insert(output.tokens.end(), choice.tokens.begin(), choice.tokens.end());
    output.logprob_bits.insert(output.logprob_bits.end(), choice.logprob_bits.begin(),
                               choice.logprob_bits.end());
  }
  return output;
}

}  // namespace refrain::testing
