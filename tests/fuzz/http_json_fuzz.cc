// Request bodies of the generation endpoints: whatever the bytes, a call or an error that can be
// shown to the client comes out.

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

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using refrain::server::openai::Endpoint;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const refrain::server::ModelLimits limits = {.served_name = "m",
                                               .vocab_size = 258,
                                               .max_context_tokens = 4096,
                                               .max_choices = 8,
                                               .max_beams = 6,
                                               .tools = refrain::engine::ToolFormat::kHermes};
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
  }
  return 0;
}
