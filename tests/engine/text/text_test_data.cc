#include "tests/engine/text/text_test_data.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/sentencepiece_pieces.h"

namespace refrain::engine {

std::string ReadTestData(const std::string& path) {
  std::ifstream stream("tests/data/" + path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << "tests/data/" << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

nlohmann::ordered_json ReadTestJson(const std::string& path) {
  return nlohmann::ordered_json::parse(ReadTestData(path));
}

TokenizerSpec SmolLm2Spec() {
  const std::string tokenizer = ReadTestData("smollm2-tokenizer/tokenizer.json");
  const std::string config = ReadTestData("smollm2-tokenizer/tokenizer_config.json");
  absl::StatusOr<TokenizerSpec> spec =
      ParseTokenizerJson({.tokenizer_json = tokenizer, .tokenizer_config_json = config});
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : TokenizerSpec();
}

std::unique_ptr<Tokenizer> SmolLm2Tokenizer() {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = CreateTokenizer(SmolLm2Spec());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TokenizerSpec SpecOfSentencePieceModel(const std::string& model_bytes) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  for (const SentencePieceEntry& piece : ReadSentencePieces(model_bytes)) {
    spec.tokens.push_back(piece.text);
    spec.scores.push_back(piece.score);
    spec.token_types.push_back(static_cast<TokenType>(piece.type));
  }
  spec.unk = kvcache::TokenId{0};
  spec.bos = kvcache::TokenId{1};
  spec.eos = kvcache::TokenId{2};
  return spec;
}

std::string Repeat(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

std::vector<int> EncodeOrFail(const Tokenizer& tokenizer, const std::string& text,
                              const EncodeOptions& options) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<int> out;
  if (!ids.ok()) return out;
  for (const kvcache::TokenId id : *ids) out.push_back(static_cast<int>(id));
  return out;
}

std::vector<int> IdsOf(const nlohmann::ordered_json& ids) { return ids.get<std::vector<int>>(); }

}  // namespace refrain::engine
