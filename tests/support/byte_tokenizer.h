#ifndef REFRAIN_TESTS_SUPPORT_BYTE_TOKENIZER_H_
#define REFRAIN_TESTS_SUPPORT_BYTE_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "kvcache/types.h"

namespace refrain::testing {

// One token per byte (ids 0 to 255), then <eos> and <bos>.
class ByteTokenizer final : public engine::Tokenizer {
 public:
  static constexpr kvcache::TokenId kEos{256};
  static constexpr kvcache::TokenId kBos{257};

  ByteTokenizer();

  absl::StatusOr<std::vector<kvcache::TokenId>> Encode(
      std::string_view utf8, const engine::EncodeOptions& options) const override;
  // Of "<eos>", although Encode makes none of it.
  std::vector<engine::ControlToken> FindControlTokens(
      std::string_view utf8, const engine::EncodeOptions& options) const override;
  std::string_view TokenBytes(kvcache::TokenId id) const override;
  bool IsControl(kvcache::TokenId id) const override { return id == kEos || id == kBos; }
  bool IsEndOfGeneration(kvcache::TokenId id) const override { return id == kEos; }
  size_t vocab_size() const override { return 258; }
  std::optional<kvcache::TokenId> bos() const override { return kBos; }
  std::optional<kvcache::TokenId> eos() const override { return kEos; }
  bool adds_bos() const override { return false; }
  bool adds_space_prefix() const override { return false; }
  std::optional<kvcache::TokenId> FindSpecial(std::string_view text) const override;

 private:
  std::array<char, 256> bytes_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_BYTE_TOKENIZER_H_
