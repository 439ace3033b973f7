#include "engine/text/token_table.h"

#include <algorithm>
#include <bit>

#include "engine/text/utf8.h"

namespace refrain::engine {

int32_t TokenTable::Add(std::string_view bytes, TokenType type) {
  arena_.append(bytes);
  const size_t text_bytes =
      IsValidUtf8(bytes) ? bytes.size() : bytes.size() * kReplacementCharacter.size();
  most_text_bytes_ = std::max(most_text_bytes_, text_bytes);
  offsets_.push_back(arena_.size());
  types_.push_back(type);
  return static_cast<int32_t>(types_.size()) - 1;
}

void TokenTable::IndexText() {
  slots_.assign(std::bit_ceil(2 * types_.size() + 1), -1);
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < static_cast<int32_t>(types_.size()); ++id) {
    const std::string_view bytes = BytesOf(id);
    if (types_[id] != TokenType::kNormal || bytes.empty()) continue;
    size_t slot = hash_(bytes) & mask;
    while (slots_[slot] >= 0 && BytesOf(slots_[slot]) != bytes) slot = (slot + 1) & mask;
    if (slots_[slot] < 0) slots_[slot] = id;
  }
}

int32_t TokenTable::FindText(std::string_view bytes) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_(bytes) & mask;
  while (slots_[slot] >= 0 && BytesOf(slots_[slot]) != bytes) slot = (slot + 1) & mask;
  return slots_[slot];
}

}  // namespace refrain::engine
