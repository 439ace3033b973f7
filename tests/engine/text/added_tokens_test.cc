// Added tokens that take white space with them, or are found as single words only.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::ordered_json;
using kvcache::TokenId;

Json Golden() { return ReadTestJson("added-tokens-golden/added_tokens.json"); }

std::unique_ptr<Tokenizer> TokenizerOf(const Json& json) {
  const auto spec = ParseTokenizerJson(json.dump());
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return nullptr;
  auto tokenizer = CreateTokenizer(*spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(AddedTokensTest, IdsAreThoseOfHuggingFace) {
  const Json golden = Golden();
  size_t compared = 0;
  for (const auto& [name, of_tokenizer] : golden.items()) {
    const auto tokenizer = TokenizerOf(of_tokenizer["tokenizer"]);
    ASSERT_NE(tokenizer, nullptr) << name;
    for (const Json& one : of_tokenizer["cases"]) {
      const std::string text = one[0];
      EXPECT_EQ(EncodeOrFail(*tokenizer, text, {.parse_special = true, .add_bos = false}),
                IdsOf(one[1]))
          << name << ' ' << one[0];
      EXPECT_EQ(EncodeOrFail(*tokenizer, text, {.add_bos = false}), IdsOf(one[2]))
          << name << ", text only, " << one[0];
      ++compared;
    }
  }
  EXPECT_GE(compared, 250u);
}

}  // namespace
}  // namespace refrain::engine
