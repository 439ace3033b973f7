#ifndef REFRAIN_TOOLS_LOADGEN_OPENAI_WIRE_H_
#define REFRAIN_TOOLS_LOADGEN_OPENAI_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/loadgen/backend.h"
#include "tools/loadgen/extra_body.h"

namespace refrain::loadgen {

// What every request of a run has.
struct WireOptions {
  std::string model;
  double temperature = 0;
  bool ignore_eos = true;
  ExtraMembers extra_members;
};

// The path and the JSON body of a streamed request with usage at its end.
std::string_view CompletionPath(PromptForm form);
std::string EncodeBody(const WireOptions& options, const GenerationRequest& request);

// What one event of a stream says.
struct StreamEvent {
  int32_t tokens = 0;   // as many as ids, else one if there is text or, of a completion, a choice
  std::string text;     // of whatever kind: reasoning and calls of tools, too
  std::string content;  // what of it is the answer, with which a conversation goes on
  std::vector<int32_t> token_ids;
  std::optional<std::string> finish_reason;
  std::optional<int32_t> prompt_tokens;
  std::optional<int32_t> output_tokens;
  std::optional<int32_t> cached_tokens;
  std::optional<std::string> error;
};

// INVALID_ARGUMENT when it is no event of such a stream. An `error` is what `error` or, without
// choices, `message` or `detail` says: servers have it in all three.
absl::StatusOr<StreamEvent> DecodeEvent(std::string_view json);

// True for the reasons by which a server says that it gave the answer up.
bool IsAbort(std::string_view finish_reason);

// As a JSON string, in quotes. Text that is no UTF-8 gets replacement characters.
std::string QuotedJson(const std::string& text);

// The message of an error's body or event, or its beginning when it is of another form.
std::string ErrorMessage(std::string_view body);

// `data[0].id` of /v1/models. INVALID_ARGUMENT when there is none.
absl::StatusOr<std::string> FirstModel(std::string_view body);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_OPENAI_WIRE_H_
