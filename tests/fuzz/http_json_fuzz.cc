// Request bodies of the generation endpoints: whatever the bytes, a call or an error that can be
// shown to the client comes out, whatever the model's chat template can do.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/request_checks.h"
#include "server/json.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"

namespace {

using refrain::engine::MessageForm;
using refrain::engine::ReasoningFormat;
using refrain::engine::ToolFormat;
using refrain::server::ModelLimits;

void Require(bool condition) {
  if (!condition) std::abort();
}

ModelLimits Limits(ToolFormat tools, ReasoningFormat reasoning, MessageForm form) {
  return {.served_name = "m",
          .vocab_size = 258,
          .max_context_tokens = 4096,
          .max_choices = 8,
          .max_beams = 6,
          .tools = tools,
          .message_forms = {.without_tools = form, .with_tools = form},
          .reasoning = reasoning};
}

void Feed(std::string_view body, const ModelLimits& limits) {
  using refrain::server::openai::Endpoint;
  for (const Endpoint endpoint :
       {Endpoint::kCompletions, Endpoint::kChatCompletions, Endpoint::kResponses}) {
    const auto call = refrain::server::openai::ParseGenerationCall(endpoint, body, limits);
    if (!call.ok()) {
      const auto error = refrain::server::ApiErrorFromStatus(call.status());
      Require(error.http_status == 400 || error.http_status == 404);
      // The answer is JSON, whatever of the request it quotes.
      Require(refrain::server::ParseJson(refrain::server::ErrorBody(error)).ok());
      continue;
    }
    Require(!call->requests.empty());
    // What the answer repeats of the request.
    Require(refrain::server::ParseJson("{" + call->echo + "}").ok());
    for (const auto& request : call->requests) {
      Require(request.n >= 1 && request.n <= request.sequences());
      Require(request.sequences() <= limits.max_choices);
      Require(!call->stream || !request.picks_best());
      // The engine asks the same again.
      Require(refrain::engine::CheckRequest(request, {.max_choices = limits.max_choices,
                                                      .max_beams = limits.max_beams,
                                                      .vocab_size = limits.vocab_size})
                  .ok());
      Require(request.stop.max_tokens >= 0 && request.stop.max_tokens <= limits.max_context_tokens);
      Require(request.stop.min_tokens <= request.stop.max_tokens);
      Require(request.sampling.top_p > 0 && request.sampling.top_p <= 1);
    }
    // What its answer is read by is the model's, or nothing.
    Require(call->output.tools == ToolFormat::kNone || call->output.tools == limits.tools);
    Require(call->output.reasoning ==
            (endpoint == Endpoint::kCompletions ? ReasoningFormat::kNone : limits.reasoning));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ModelLimits kModels[] = {
      Limits(ToolFormat::kHermes, ReasoningFormat::kNone, {}),
      Limits(ToolFormat::kLlama3, ReasoningFormat::kThink, {.argument_strings = true}),
      Limits(ToolFormat::kUnknown, ReasoningFormat::kThink,
             {.null_content = true, .argument_strings = true, .broken_arguments = true}),
  };
  for (const ModelLimits& limits : kModels) {
    Feed({reinterpret_cast<const char*>(data), size}, limits);
  }
  return 0;
}
