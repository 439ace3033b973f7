#ifndef REFRAIN_TOOLS_LOADGEN_BACKEND_H_
#define REFRAIN_TOOLS_LOADGEN_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

// One request, with all that was said before in its conversation.
struct GenerationRequest {
  PromptForm form = PromptForm::kTokenIds;
  std::vector<int32_t> token_ids;     // kTokenIds
  std::string text;                   // kText
  std::vector<ChatMessage> messages;  // kChat
  int32_t output_tokens = 16;
  bool wants_token_ids = false;  // of the answer
};

// Why a request failed. `kind` is one of a few words, by which reports count: connection_refused,
// connect_failed, client_limit, tls_failed, connection_lost, broken_stream, timeout, http_STATUS,
// grpc_CODE, error_event, aborted, bad_answer, no_tokens, unfinished.
struct Failure {
  std::string kind;
  std::string message;
};

// What the server said of an answer at its end.
struct AnswerEnd {
  std::optional<Failure> failure;
  std::optional<double> finished_s;  // when its finish_reason was read, in the loop's time
  std::optional<int32_t> prompt_tokens;
  std::optional<int32_t> output_tokens;
  std::optional<int32_t> cached_tokens;
  std::optional<double> retry_after_s;  // when to come back, as who refused the request said
  bool resent = false;                  // the request went out twice
};

// Who receives an answer. Called on the event loop's thread; OnEnd once, as the last call.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;

  // `at_s` is when the bytes were read, in the loop's time; `ids` may be empty, and so may
  // `content`, what of the tokens is the answer itself (reasoning is not). 0 tokens: content that
  // was held back of those before.
  virtual void OnTokens(double at_s, int32_t tokens, std::string_view content,
                        std::span<const int32_t> ids) = 0;
  virtual void OnEnd(double at_s, const AnswerEnd& end) = 0;
};

// A server seen through one protocol. All calls on the event loop's thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // The bytes of a request: made ahead of time, so that sending one costs little.
  virtual std::string Encode(const GenerationRequest& request) const = 0;

  // Sends what Encode made. `sink` must live until its OnEnd, which is never called from inside.
  virtual void Start(std::string encoded, AnswerSink* sink) = 0;

  // Ends all that is under way: their OnEnd comes, with "unfinished", before this returns.
  virtual void CancelAll() = 0;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_BACKEND_H_
