#ifndef REFRAIN_TOOLS_LOADGEN_RECORDED_DIALOGUES_H_
#define REFRAIN_TOOLS_LOADGEN_RECORDED_DIALOGUES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

struct DialogueOptions {
  std::string path;
  int32_t most_turns = 1;          // of a conversation; 0: all
  int32_t output_tokens = 0;       // of every answer; 0: as long as the recorded one, else 128
  int32_t most_output_tokens = 0;  // longer answers are cut to that; 0: none are
  int64_t most_prompt_bytes = 0;  // with all said before; what is longer is left out; 0: nothing is
  double think_s = 0;
  std::optional<PromptForm> form;  // of lines of one's own; nothing: as each is written
  bool text_only = false;  // lines of token ids cannot be used: nothing can be added to them
};

// Bytes of English text in a token, about: recorded answers come as text.
inline constexpr int32_t kBytesPerToken = 4;

// ShareGPT's conversations: one JSON array, which may break off inside its last conversation (the
// published copies do): what is whole before is used. A conversation that does not begin with a
// person's words and an answer is left out. NOT_FOUND: no such file; INVALID_ARGUMENT from Next
// names the conversation that is not of this form.
absl::StatusOr<std::unique_ptr<Workload>> OpenShareGpt(const DialogueOptions& options);

// MT-bench's questions, one a line: `turns`, a person's messages.
absl::StatusOr<std::unique_ptr<Workload>> OpenMtBench(const DialogueOptions& options);

// QMSum's meetings, one a line: `meeting_transcripts`, `general_query_list`, `specific_query_list`.
// Each query is a request of its own: the meeting's transcript (shared by all its queries), then
// the question.
absl::StatusOr<std::unique_ptr<Workload>> OpenQmSum(const DialogueOptions& options);

// Lines of one's own: one session a line,
//   {"prompt": "text" | [ids], "max_tokens": n, "start_s": t}
//   {"messages": [{"role": ..., "content": ...}], "max_tokens": n, "start_s": t}
//   {"turns": [{"prompt" or "messages", "max_tokens": n, "think_s": s}, ...], "start_s": t}
// `max_tokens` (16), `start_s` and `think_s` may be left out. A session has the form that the
// options say, else token ids where its prompts are that, text where it is one `prompt`, and chat
// where it has `messages` or `turns`. A line that its form cannot send is one that cannot be read.
absl::StatusOr<std::unique_ptr<Workload>> OpenOwnLines(const DialogueOptions& options);

// Looks for a line that can be read but not be sent, up to the first that cannot be read: there a
// run ends in any case, and keeps what it has measured. INVALID_ARGUMENT names the line.
absl::Status CheckFormOfOwnLines(const DialogueOptions& options);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_RECORDED_DIALOGUES_H_
