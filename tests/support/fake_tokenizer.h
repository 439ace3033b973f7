#ifndef REFRAIN_TESTS_SUPPORT_FAKE_TOKENIZER_H_
#define REFRAIN_TESTS_SUPPORT_FAKE_TOKENIZER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace refrain::testing {

// A vocabulary given as strings, the last of which is the end of generation. Text is encoded byte
// by byte: byte b is token b % (size - 1). `before_encode` sees each text first, `paced_encode` the
// pace.
class FakeTokenizer : public engine::Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  absl::StatusOr<std::vector<kvcache::TokenId>> Encode(
      std::string_view utf8, const engine::EncodeOptions& options) const override {
    if (before_encode) before_encode(utf8);
    if (paced_encode) paced_encode(options.pace);
    if (options.pace != nullptr && options.pace->stopped()) {
      return absl::CancelledError("tokenizing was stopped");
    }
    std::vector<kvcache::TokenId> ids;
    if (bos_token.has_value() && options.add_bos.value_or(true)) ids.push_back(*bos_token);
    for (const char byte : utf8) {
      ids.push_back(kvcache::TokenId{
          static_cast<int32_t>(static_cast<uint8_t>(byte) % (pieces_.size() - 1))});
    }
    return ids;
  }
  std::vector<engine::ControlToken> FindControlTokens(std::string_view,
                                                      const engine::EncodeOptions&) const override {
    return {};
  }
  size_t FewestTokens(std::string_view utf8) const override { return utf8.size(); }
  std::string_view TokenBytes(kvcache::TokenId id) const override {
    return kvcache::ToIndex(id) < pieces_.size() ? std::string_view(pieces_[kvcache::ToIndex(id)])
                                                 : std::string_view();
  }
  bool IsControl(kvcache::TokenId id) const override { return id == *eos(); }
  bool IsEndOfGeneration(kvcache::TokenId id) const override { return id == *eos(); }
  size_t vocab_size() const override { return pieces_.size(); }
  std::optional<kvcache::TokenId> bos() const override { return bos_token; }
  std::optional<kvcache::TokenId> eos() const override {
    return kvcache::TokenId{static_cast<int32_t>(pieces_.size()) - 1};
  }
  bool adds_bos() const override { return bos_token.has_value(); }
  bool adds_space_prefix() const override { return false; }
  std::optional<kvcache::TokenId> FindSpecial(std::string_view) const override {
    return std::nullopt;
  }

  std::optional<kvcache::TokenId> bos_token;  // put before texts
  std::function<void(std::string_view)> before_encode;
  std::function<void(engine::EncodePace*)> paced_encode;  // the work; null for a short text

 private:
  std::vector<std::string> pieces_;
};

// Single letters, pairs of letters, and "</s>".
inline std::vector<std::string> LetterVocabulary() {
  std::vector<std::string> pieces;
  for (char a = 'a'; a <= 'p'; ++a) pieces.push_back(std::string(1, a));
  for (const char* pair : {"ab", "bc", "cd", "abc", "de", "aa", "x ", " y"}) pieces.push_back(pair);
  pieces.push_back("</s>");
  return pieces;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FAKE_TOKENIZER_H_
