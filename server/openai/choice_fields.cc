#include "server/openai/choice_fields.h"

#include <algorithm>

#include <variant>

#include "server/concat.h"

namespace refrain::server::openai {
namespace {

void RefuseWithBeams(FieldReader& fields, const engine::Request& request) {
  const auto require = [&](bool holds, const char* name, const char* valid) {
    if (!holds) fields.Refuse(name, Concat("must be ", valid, " with use_beam_search"));
  };
  const engine::SamplingParams& sampling = request.sampling;
  // 1 is the default and the distribution that is searched; 0 is what other servers ask for.
  require(sampling.temperature == 0 || sampling.temperature == 1, "temperature", "0 or 1");
  require(sampling.top_p == 1, "top_p", "1");
  require(sampling.min_p == 0, "min_p", "0");
  require(sampling.top_k == 0, "top_k", "-1 or 0");
  require(sampling.repetition_penalty == 1, "repetition_penalty", "1");
  require(sampling.presence_penalty == 0, "presence_penalty", "0");
  require(sampling.frequency_penalty == 0, "frequency_penalty", "0");
  require(sampling.logit_bias.empty(), "logit_bias", "absent");
  require(sampling.allowed_tokens.empty(), "allowed_token_ids", "absent");
  require(sampling.bad_words.empty(), "bad_words", "absent");
  require(!sampling.thinking_budget_tokens.has_value(), "thinking_token_budget", "-1 or absent");
  require(request.stop.stop.empty(), "stop", "absent");
  require(!request.echo, "echo", "false");
}

void RefuseWithForm(FieldReader& fields, const engine::Request& request) {
  const engine::OutputFormat& form = *request.format;
  const bool forces_calls = std::holds_alternative<engine::OutputFormat::ToolCalls>(form.form);
  const std::string_view asked_by = forces_calls ? "tool_choice" : std::string_view(form.field);
  if (request.beam.has_value()) {
    fields.Refuse("use_beam_search",
                  Concat("must be false where '", asked_by, "' asks for a form of the answer"));
  }
  // They may leave no way to it.
  if (!request.sampling.allowed_tokens.empty()) {
    fields.Refuse("allowed_token_ids",
                  Concat("must be absent where '", asked_by, "' asks for a form of the answer"));
  }
}

}  // namespace

void ReadChoiceFields(FieldReader& fields, const ModelLimits& limits, engine::Request* request) {
  const auto max_choices = static_cast<double>(limits.max_choices);
  request->n = static_cast<int32_t>(fields.Integer("n", {1, max_choices}).value_or(1));
  if (const auto best_of = fields.Integer("best_of", {1, max_choices})) {
    request->best_of = static_cast<int32_t>(*best_of);
    if (*best_of < request->n) {
      fields.Refuse("best_of", Concat("is ", *best_of, ", less than n, which is ", request->n));
    }
  }
  request->timeout_s = fields.Number("timeout", kTimeoutRange);
  engine::BeamParams beam;
  constexpr double kMax = engine::BeamParams::kMaxLengthPenalty;
  beam.length_penalty = fields.Number("length_penalty", {-kMax, kMax}).value_or(1);
  beam.early_stopping = fields.Bool("early_stopping").value_or(false);
  if (fields.Bool("use_beam_search").value_or(false)) request->beam = beam;
}

void RefuseContradictions(FieldReader& fields, const ModelLimits& limits,
                          const engine::Request& request, bool stream) {
  if (stream && request.picks_best()) {
    fields.Refuse("stream", request.beam.has_value() ? "must be false with use_beam_search"
                                                     : "must be false with best_of over n");
  }
  if (request.format != nullptr) RefuseWithForm(fields, request);
  if (!request.beam.has_value()) return;
  const int32_t most_beams = std::min(limits.max_beams, limits.vocab_size / 2);
  if (request.sequences() > most_beams) {
    fields.Refuse(request.best_of.has_value() ? "best_of" : "n",
                  Concat("must be at most ", most_beams, " with use_beam_search, not ",
                         request.sequences(), ": all beams run at once"));
  }
  RefuseWithBeams(fields, request);
}

}  // namespace refrain::server::openai
