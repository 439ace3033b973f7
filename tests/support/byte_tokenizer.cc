#include "tests/support/byte_tokenizer.h"

#include <algorithm>

namespace refrain::testing {
namespace {

using kvcache::TokenId;

constexpr std::string_view kEosText = "<eos>";
constexpr std::string_view kBosText = "<bos>";

}  // namespace

ByteTokenizer::ByteTokenizer() {
  for (int i = 0; i < 256; ++i) bytes_[i] = static_cast<char>(i);
}

absl::StatusOr<std::vector<TokenId>> ByteTokenizer::Encode(
    std::string_view utf8, const engine::EncodeOptions& options) const {
  std::vector<TokenId> ids;
  if (options.add_bos.value_or(false)) ids.push_back(kBos);
  for (const unsigned char byte : utf8) ids.push_back(TokenId{byte});
  return ids;
}

std::vector<engine::ControlToken> ByteTokenizer::FindControlTokens(
    std::string_view utf8, const engine::EncodeOptions& options) const {
  std::vector<engine::ControlToken> found;
  const std::string_view name = kEosText;
  for (size_t at = utf8.find(name); at != std::string_view::npos; at = utf8.find(name, at + 1)) {
    const auto overlaps = [&](const engine::TextSpan& span) {
      return span.begin_byte < at + name.size() && at < span.end_byte;
    };
    if (std::any_of(options.plain_spans.begin(), options.plain_spans.end(), overlaps)) continue;
    found.push_back({{at, at + name.size()}, kEos});
  }
  return found;
}

std::string_view ByteTokenizer::TokenBytes(TokenId id) const {
  if (id == kEos) return kEosText;
  if (id == kBos) return kBosText;
  const size_t index = kvcache::ToIndex(id);
  if (index >= bytes_.size()) return {};
  return std::string_view(&bytes_[index], 1);
}

std::optional<TokenId> ByteTokenizer::FindSpecial(std::string_view text) const {
  if (text == kEosText) return kEos;
  if (text == kBosText) return kBos;
  return std::nullopt;
}

}  // namespace refrain::testing
