#include "engine/request_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

// Collects the first complaint.
class Checker {
 public:
  template <typename T>
  void Require(bool holds, const char* field, const T& value, const auto&... valid) {
    if (holds || !status_.ok()) return;
    status_ =
        absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ", valid...));
  }
  // A call of a thousand prompts may have thousands of ids for each.
  void RequireIds(const char* field, std::span<const TokenId> ids, int64_t vocab_size) {
    uint32_t highest = 0;  // what is negative is high, too
    for (const TokenId id : ids) highest = std::max(highest, static_cast<uint32_t>(id));
    if (highest < vocab_size) return;
    for (const TokenId id : ids) RequireId(field, id, vocab_size);
  }
  void RequireId(const char* field, TokenId id, int64_t vocab_size) {
    const auto value = static_cast<int32_t>(id);
    Require(value >= 0 && value < vocab_size, field, value, "a token id from 0 to ",
            vocab_size - 1);
  }
  absl::Status status() const { return status_; }

 private:
  absl::Status status_;
};

void CheckChoices(const Request& request, const RequestLimits& limits, Checker& check) {
  check.Require(request.n >= 1 && request.n <= limits.max_choices, "n", request.n, "from 1 to ",
                limits.max_choices);
  check.Require(request.sequences() >= request.n && request.sequences() <= limits.max_choices,
                "best_of", request.sequences(), "from n, which is ", request.n, ", to ",
                limits.max_choices);
}

void CheckBeams(const Request& request, const RequestLimits& limits, Checker& check) {
  constexpr char kWithBeams[] = " with use_beam_search";
  const char* const width = request.best_of.has_value() ? "best_of" : "n";
  const int32_t beams = request.sequences();
  check.Require(beams <= limits.max_beams, width, beams, "at most ", limits.max_beams, kWithBeams,
                ", as all beams run at once");
  check.Require(beams <= limits.vocab_size / 2, width, beams, "at most half of the vocabulary of ",
                limits.vocab_size, kWithBeams);
  const double penalty = request.beam->length_penalty;
  constexpr double kMax = BeamParams::kMaxLengthPenalty;
  check.Require(std::abs(penalty) <= kMax, "length_penalty", penalty, "from ", -kMax, " to ", kMax);

  const SamplingParams& s = request.sampling;
  check.Require(s.temperature == 0 || s.temperature == 1, "temperature", s.temperature, "0 or 1",
                kWithBeams);
  check.Require(s.top_p == 1, "top_p", s.top_p, "1", kWithBeams);
  check.Require(s.min_p == 0, "min_p", s.min_p, "0", kWithBeams);
  check.Require(s.top_k == 0, "top_k", s.top_k, "0", kWithBeams);
  check.Require(s.repetition_penalty == 1, "repetition_penalty", s.repetition_penalty, "1",
                kWithBeams);
  check.Require(s.presence_penalty == 0, "presence_penalty", s.presence_penalty, "0", kWithBeams);
  check.Require(s.frequency_penalty == 0, "frequency_penalty", s.frequency_penalty, "0",
                kWithBeams);
  check.Require(s.logit_bias.empty(), "logit_bias", "set", "absent", kWithBeams);
  check.Require(s.allowed_tokens.empty(), "allowed_tokens", "set", "absent", kWithBeams);
  check.Require(s.bad_words.empty() && s.banned_sequences.empty(), "bad_words", "set", "absent",
                kWithBeams);
  check.Require(!s.thinking_budget_tokens.has_value(), "thinking_token_budget",
                s.thinking_budget_tokens.value_or(0), "absent", kWithBeams);
  check.Require(request.format == nullptr, "a form of the output", "set", "absent", kWithBeams);
  check.Require(request.stop.stop.empty(), "stop", "set", "absent", kWithBeams);
  check.Require(!request.echo, "echo", "on", "off", kWithBeams);
}

void CheckNumbers(const SamplingParams& s, Checker& check) {
  check.Require(std::isfinite(s.temperature) && s.temperature >= 0, "temperature", s.temperature,
                "at least 0");
  check.Require(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "over 0 and at most 1");
  check.Require(s.min_p >= 0 && s.min_p < 1, "min_p", s.min_p, "from 0 to under 1");
  check.Require(s.top_k >= 0, "top_k", s.top_k, "at least 0 (0 = all)");
  check.Require(std::isfinite(s.repetition_penalty) && s.repetition_penalty > 0,
                "repetition_penalty", s.repetition_penalty, "over 0");
  check.Require(std::isfinite(s.presence_penalty), "presence_penalty", s.presence_penalty,
                "finite");
  check.Require(std::isfinite(s.frequency_penalty), "frequency_penalty", s.frequency_penalty,
                "finite");
}

}  // namespace

absl::Status CheckSampling(const SamplingParams& sampling) {
  Checker check;
  CheckNumbers(sampling, check);
  return check.status();
}

absl::Status CheckRequest(const Request& request, const RequestLimits& limits) {
  Checker check;
  CheckChoices(request, limits, check);
  const SamplingParams& s = request.sampling;
  CheckNumbers(s, check);
  for (const auto& [id, bias] : s.logit_bias) {
    check.RequireId("logit_bias", id, limits.vocab_size);
    check.Require(!std::isnan(bias), "logit_bias", bias, "a number");
  }
  check.RequireIds("allowed_tokens", s.allowed_tokens, limits.vocab_size);
  check.Require(request.format == nullptr || s.allowed_tokens.empty(), "allowed_tokens", "set",
                "absent where the output has a form: no token might be left");
  check.Require(s.thinking_budget_tokens.value_or(0) >= 0, "thinking_token_budget",
                s.thinking_budget_tokens.value_or(0), "at least 0");
  for (const auto& sequence : s.banned_sequences) {
    check.RequireIds("banned_sequences", sequence, limits.vocab_size);
  }

  const StopParams& stop = request.stop;
  check.Require(stop.max_tokens >= 0, "max_tokens", stop.max_tokens, "at least 0");
  check.Require(stop.min_tokens >= 0 && stop.min_tokens <= stop.max_tokens, "min_tokens",
                stop.min_tokens, "from 0 to max_tokens, which is ", stop.max_tokens);
  check.RequireIds("stop_token_ids", stop.stop_token_ids, limits.vocab_size);

  const LogprobParams& logprobs = request.logprobs;
  check.Require(logprobs.top.value_or(0) >= 0 && logprobs.top.value_or(0) <= limits.vocab_size,
                "logprobs", logprobs.top.value_or(0), "from 0 to ", limits.vocab_size);
  check.Require(
      logprobs.prompt_top.value_or(0) >= 0 && logprobs.prompt_top.value_or(0) <= limits.vocab_size,
      "prompt_logprobs", logprobs.prompt_top.value_or(0), "from 0 to ", limits.vocab_size);
  const int32_t kept = request.keep_prompt_tokens.value_or(1);
  check.Require(kept >= 1, "keep_prompt_tokens", kept, "at least 1");
  check.Require(request.timeout_s.value_or(1) > 0, "timeout_s", request.timeout_s.value_or(1),
                "over 0");
  const size_t salt_characters = CountUtf8Characters(request.cache_salt);
  check.Require(salt_characters <= Request::kMaxCacheSaltCharacters, "cache_salt",
                absl::StrCat(salt_characters, " characters long"), "at most ",
                Request::kMaxCacheSaltCharacters);
  if (request.beam.has_value()) CheckBeams(request, limits, check);
  return check.status();
}

}  // namespace refrain::engine
