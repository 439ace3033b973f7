#include "server/openai/make_answer_format.h"

#include <utility>

#include "server/concat.h"
#include "server/openai/choices_format.h"
#include "server/openai/responses_format.h"

namespace refrain::server::openai {
namespace {

std::unique_ptr<AnswerFormat> MakeResponsesFormat(const GenerationCall& call,
                                                  const AnswerOrigin& origin) {
  ResponsesFormat::Answer answer;
  answer.id = Concat("resp_", origin.request_id);
  answer.model = origin.model;
  answer.created_unix_s = origin.created_unix_s;
  answer.echo = call.echo;
  answer.has_logprobs = call.output.logprobs.has_value();
  answer.tokens_as_ids = call.output.tokens_as_ids;
  return std::make_unique<ResponsesFormat>(std::move(answer), origin.tokenizer);
}

std::unique_ptr<AnswerFormat> MakeChoicesFormat(const GenerationCall& call,
                                                const AnswerOrigin& origin) {
  ChoicesFormat::Answer answer;
  answer.endpoint = call.endpoint;
  answer.id =
      Concat(call.endpoint == Endpoint::kCompletions ? "cmpl-" : "chatcmpl-", origin.request_id);
  answer.model = origin.model;
  answer.created_unix_s = origin.created_unix_s;
  answer.output = call.output;
  answer.output.prefix.clear();
  answer.choices_per_prompt = call.first().n;
  answer.include_usage = call.include_usage;
  const engine::StopParams& stop = call.first().stop;
  for (const engine::TokenId token : stop.stop_token_ids) {
    const bool is_own_end = !stop.ignore_eos && origin.tokenizer->IsEndOfGeneration(token);
    if (!is_own_end) answer.named_ends.push_back(token);
  }
  const auto choices = static_cast<int32_t>(origin.prompts) * answer.choices_per_prompt;
  return std::make_unique<ChoicesFormat>(std::move(answer), choices, origin.tokenizer);
}

}  // namespace

std::unique_ptr<AnswerFormat> MakeAnswerFormat(const GenerationCall& call,
                                               const AnswerOrigin& origin) {
  return call.endpoint == Endpoint::kResponses ? MakeResponsesFormat(call, origin)
                                               : MakeChoicesFormat(call, origin);
}

}  // namespace refrain::server::openai
