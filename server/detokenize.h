#ifndef REFRAIN_SERVER_DETOKENIZE_H_
#define REFRAIN_SERVER_DETOKENIZE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/byte_budget.h"
#include "server/hold_bytes.h"

namespace refrain::server {

// The text of these ids, control tokens as they are spelled. Over kUncountedBytes it counts in
// `held`, beside what that holds; UNAVAILABLE when the budget has no room. Any thread.
absl::StatusOr<std::string> Detokenize(const engine::Tokenizer& tokenizer,
                                       const std::vector<engine::TokenId>& ids, HeldBytes* held);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_DETOKENIZE_H_
