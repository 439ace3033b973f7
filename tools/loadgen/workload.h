#ifndef REFRAIN_TOOLS_LOADGEN_WORKLOAD_H_
#define REFRAIN_TOOLS_LOADGEN_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

// How prompts go over the wire.
enum class PromptForm {
  kTokenIds,  // completions of exactly these ids
  kText,      // completions of text
  kChat,      // chat completions
};

struct ChatMessage {
  std::string role;
  std::string content;
};

// What one request adds to its conversation: ids, or messages. As text, messages are their contents
// joined by line ends; turns and answers follow each other as they are.
struct Turn {
  std::vector<int32_t> token_ids;
  std::vector<ChatMessage> messages;
  int32_t output_tokens = 16;  // asked for
  double think_s = 0;          // between the answer before and this request
};

// A conversation: each request repeats what was said before, with the server's own answers.
struct Session {
  std::vector<Turn> turns;        // at least one
  std::optional<double> start_s;  // when a trace says it began
  // In which it goes over the wire; nothing: as the run says.
  std::optional<PromptForm> form;
};

// A source of sessions, read one after another so that a workload may be larger than memory. One
// thread.
class Workload {
 public:
  virtual ~Workload() = default;

  // Nothing at the end; made-up workloads have none. INVALID_ARGUMENT names file, line and field.
  virtual absl::StatusOr<std::optional<Session>> Next() = 0;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_WORKLOAD_H_
