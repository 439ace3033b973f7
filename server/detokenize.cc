#include "server/detokenize.h"

#include "engine/text/detokenizer.h"

namespace refrain::server {

absl::StatusOr<std::string> Detokenize(const engine::Tokenizer& tokenizer,
                                       const std::vector<engine::TokenId>& ids, HeldBytes* held) {
  engine::Detokenizer detokenizer(&tokenizer, {.skip_special = false});
  const size_t others = held->bytes();
  size_t counted = kUncountedBytes;
  std::string text;
  for (const engine::TokenId id : ids) {
    text += detokenizer.Append(id);
    if (text.capacity() <= counted) continue;
    counted = text.capacity();
    if (absl::Status status = HoldBytes(others + counted, held); !status.ok()) return status;
  }
  text += detokenizer.Flush();
  return text;
}

}  // namespace refrain::server
