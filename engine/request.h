#ifndef REFRAIN_ENGINE_REQUEST_H_
#define REFRAIN_ENGINE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/clock.h"
#include "engine/grammar/output_format.h"
#include "engine/shared_list.h"
#include "engine/text/chat_template.h"
#include "kvcache/types.h"

namespace refrain::engine {

using kvcache::TokenId;

struct ThinkingLimit;  // thinking_budget.h

// How the next token is chosen. The defaults choose from the model's own distribution. Order of
// application: logit bias, penalties, min_tokens' ban, temperature, min-p, top-k, top-p. Cheap to
// copy: every sequence of every prompt of a call has one.
struct SamplingParams {
  double temperature = 1.0;         // 0 = greedy
  double top_p = 1.0;               // (0, 1]
  double min_p = 0.0;               // [0, 1): least probability relative to the best token's
  int32_t top_k = 0;                // 0 = all
  double repetition_penalty = 1.0;  // > 0; over prompt and output
  double presence_penalty = 0.0;    // over output
  double frequency_penalty = 0.0;   // over output
  SharedList<std::pair<TokenId, float>> logit_bias;
  SharedList<TokenId> allowed_tokens;  // empty = all
  // Texts that are not to appear. Encoding adds the tokens of each, alone and behind a space, to
  // `banned_sequences`: the last token of one is not chosen while the output ends with the others.
  SharedList<std::string> bad_words;
  SharedList<std::vector<TokenId>> banned_sequences;
  // At least 0: so many tokens may be generated in a thought in front of the answer, whether or not
  // it is told apart; then its closing tag is all that may come, whatever else is allowed, until it
  // is there. Encoding adds `thinking_limit`, where the prompt leaves room for a thought.
  std::optional<int32_t> thinking_budget_tokens;
  std::shared_ptr<const ThinkingLimit> thinking_limit;
  std::optional<uint64_t> seed;  // none = a fresh one per request; the same seed and request give
                                 // the same tokens under `engine.reproducible`
};

// When a sequence ends. Cheap to copy, as SamplingParams are.
struct StopParams {
  int32_t max_tokens = 16;  // 0 = compute the prompt only
  int32_t min_tokens = 0;   // no end of generation before this many
  bool ignore_eos = false;
  SharedList<std::string> stop;  // bytes; matched across token borders
  SharedList<TokenId> stop_token_ids;
  bool include_stop_in_output = false;
  // Control tokens are not shown: no stop string is looked for in them, but around them.
  bool skip_special = true;
};

struct LogprobParams {
  std::optional<int32_t> top;         // of each output token: the token itself and this many best
  std::optional<int32_t> prompt_top;  // of each prompt token but the first, which are told then
};

// Beam search in place of sampling: as many beams as Request::sequences(); the n best hypotheses
// are the choices, best first. It works on the model's own distribution, so the sampling parameters
// must be at their defaults (temperature may be 0), and the output comes as a whole at the end.
struct BeamParams {
  static constexpr double kMaxLengthPenalty = 10;  // either sign; powers of lengths stay finite

  double length_penalty = 1.0;  // score = sum of log-probabilities / length^length_penalty
  bool early_stopping = false;  // end as soon as as many hypotheses as beams are finished
};

// A conversation to be rendered by the model's chat template.
struct ChatPrompt {
  ChatTemplateInput input;
  bool continue_final_message = false;
  bool may_call_tools = false;  // calls in the answer are run by the client; else they are text
};

struct TextPrompt {
  std::string text;  // UTF-8
  bool add_special_tokens = true;
  std::vector<TextSpan> plain_spans;  // control tokens that are spelled in these are text
};

struct TokenPrompt {
  std::vector<TokenId> ids;
};

// One thing a client asks for. A value; the engine copies what it keeps.
struct Request {
  static constexpr size_t kMaxCacheSaltCharacters = 128;
  // Of the prompt in all choices with `echo`, unless there is one choice only: each costs up to 300
  // bytes before it is sent.
  static constexpr int64_t kMaxEchoedTokens = int64_t{1} << 18;
  // Tokens and log-probabilities of all sequences, held until the choices are picked
  // (`picks_best`): if each has max_tokens, or what the context leaves.
  static constexpr int64_t kMaxHeldBytes = int64_t{1} << 27;

  std::string id;     // for logs; unique per process is enough
  uint64_t call = 0;  // requests of one call have one number; 0: there is no other
  std::variant<TextPrompt, ChatPrompt, TokenPrompt> prompt;
  // Let go of when the prompt's text is gone, because it has been encoded or nobody waits for it:
  // whoever bounds the bytes of texts sees so when they are free. May be null.
  std::shared_ptr<const void> prompt_hold;
  int32_t n = 1;  // sequences ("choices") that continue the one prompt
  // So many are computed, the n best of them are the choices, best first; none = n. The best have
  // the highest mean log-probability per generated token (beams: BeamParams' score). Over n, the
  // output comes as a whole at the end.
  std::optional<int32_t> best_of;
  SamplingParams sampling;
  std::optional<BeamParams> beam;  // none = sampling
  StopParams stop;
  LogprobParams logprobs;
  std::shared_ptr<const OutputFormat> format;  // null: any text; not with beams
  bool echo = false;         // the prompt's tokens are part of the output of every choice
  bool tell_prompt = false;  // the prompt's tokens are told, once, as choice 0's
  // Only the prompt's last so many count, an added bos among them; none = all.
  std::optional<int32_t> keep_prompt_tokens;
  int64_t priority = 0;      // lower first, under the priority policy
  std::string tenant;        // API key's name, "" = none
  double tenant_weight = 1;  // of the tenant's share where tenants compete; the last one counts
  bool keep_cached = false;  // a hint: its prompt will come again
  std::string cache_salt;    // adds to the namespace; at most kMaxCacheSaltCharacters
  std::optional<double> timeout_s;  // absent: the configuration's
  // Since when its time runs, this or the configuration's; absent: Submit.
  std::optional<Clock::TimePoint> arrived;

  int32_t sequences() const { return best_of.value_or(n); }
  // The choices are picked when all sequences have ended.
  bool picks_best() const { return beam.has_value() || sequences() > n; }
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_REQUEST_H_
