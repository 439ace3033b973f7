// First byte: what the rest is. Text goes through three fixed tokenizers, which must give its bytes
// back; other kinds are files of a tokenizer, which must be accepted or refused, and then encode.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

// All bytes in the byte-level alphabet, some merges, and special tokens.
TokenizerSpec SmallBpe(const char* pre_tokenizer) {
  TokenizerSpec spec;
  spec.pre_tokenizer = pre_tokenizer;
  uint32_t moved = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    std::string token;
    AppendUtf8(itself ? byte : moved++, &token);
    spec.tokens.push_back(token);
  }
  for (const char* merge : {"a a", "aa aa", "t h", "th e", "\u0120 a", "\u0120 \u0120", "e r"}) {
    std::string joined = merge;
    spec.merges.push_back(joined);
    joined.erase(joined.find(' '), 1);
    spec.tokens.push_back(joined);
  }
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const char* special : {"<|im_start|>", "<|im_end|>", "<|im_", "<tool>"}) {
    spec.tokens.push_back(special);
    spec.token_types.push_back(TokenType::kControl);
  }
  spec.token_types.back() = TokenType::kUserDefined;
  return spec;
}

TokenizerSpec SmallPieces() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    spec.tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    spec.token_types.push_back(TokenType::kByte);
  }
  for (const char* piece : {"aa", "th", "the", "\u2581the", "\u2581", "\u2581\u2581", "a", "t", "h",
                            "e", "\u00e9", "aaaa"}) {
    spec.tokens.push_back(piece);
    spec.token_types.push_back(TokenType::kNormal);
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) spec.scores.push_back(-static_cast<float>(id));
  return spec;
}

std::vector<std::unique_ptr<Tokenizer>> MakeTokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : {"smollm", "llama-bpe", "qwen2", "gpt2"}) {
    tokenizers.push_back(CreateTokenizer(SmallBpe(name)).value());
  }
  tokenizers.push_back(CreateTokenizer(SmallPieces()).value());
  return tokenizers;
}

void EncodeAndDecode(const Tokenizer& tokenizer, std::string_view text, bool has_all_bytes) {
  const TextSpan middle[] = {{text.size() / 3, text.size() / 2}};
  for (const bool parse_special : {false, true}) {
    EncodeOptions options{.parse_special = parse_special, .add_bos = false};
    if (text.size() > 6) options.plain_spans = middle;
    const auto ids = tokenizer.Encode(text, options);
    if (!ids.ok()) {
      if (has_all_bytes) __builtin_trap();
      continue;
    }
    Detokenizer detokenizer(&tokenizer, {.skip_special = false});
    std::string decoded;
    for (const kvcache::TokenId id : *ids) {
      if (kvcache::ToIndex(id) >= tokenizer.vocab_size()) __builtin_trap();
      const std::string piece = detokenizer.Append(id);
      if (!IsValidUtf8(piece)) __builtin_trap();
      decoded += piece;
    }
    decoded += detokenizer.Flush();
    if (has_all_bytes && decoded != ReplaceIllFormedUtf8(text)) __builtin_trap();
  }
}

int FuzzOne(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Tokenizer>>& tokenizers =
      *new std::vector<std::unique_ptr<Tokenizer>>(MakeTokenizers());
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::string_view kSample = "the <|im_start|>theaa 12\u00e9\n <s>";
  switch (data[0]) {
    case 'J': {
      const auto spec = ParseTokenizerJson(rest);
      if (!spec.ok()) return 0;
      const auto tokenizer = CreateTokenizer(*spec);
      if (tokenizer.ok()) EncodeAndDecode(**tokenizer, kSample, /*has_all_bytes=*/false);
      return 0;
    }
    case 'S': {
      const auto tokenizer = CreateSentencePieceTokenizer(rest);
      if (tokenizer.ok()) EncodeAndDecode(**tokenizer, kSample, /*has_all_bytes=*/false);
      return 0;
    }
    default:
      for (size_t i = 0; i + 1 < tokenizers.size(); ++i) {
        EncodeAndDecode(*tokenizers[i], rest, /*has_all_bytes=*/true);
      }
      EncodeAndDecode(*tokenizers.back(), rest, /*has_all_bytes=*/false);
      return 0;
  }
}

}  // namespace
}  // namespace refrain::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return refrain::engine::FuzzOne(data, size);
}
