// Normalization form C: what is composed, where texts may be cut for it, and what it costs.

#include "engine/text/composed_text.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <chrono>
#include <string>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/utf8.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

std::string Composed(const std::string& text) {
  std::string storage;
  return std::string(ComposeText(text, nullptr, &storage));
}

class StopAfter : public EncodePace {
 public:
  explicit StopAfter(int checkpoints) : left_(checkpoints) {}
  int seen() const { return seen_; }

 private:
  void Checkpoint() override {
    ++seen_;
    if (--left_ == 0) Stop();
  }
  int left_;
  int seen_ = 0;
};

TEST(ComposedTextTest, EqualsHuggingFace) {
  const auto pairs = ReadTestJson("text-golden/composed.json");
  ASSERT_GT(pairs.size(), 400u);
  std::string all, all_composed;
  for (const auto& pair : pairs) {
    const auto text = pair[0].get<std::string>();
    const auto composed = pair[1].get<std::string>();
    EXPECT_EQ(Composed(text), composed) << text;
    EXPECT_EQ(Composed(composed), composed) << text;
    all += text + "\n";  // which takes no mark
    all_composed += composed + "\n";
  }
  EXPECT_EQ(Composed(all), all_composed);
}

TEST(ComposedTextTest, LeavesTextThatCannotChangeWhereItIs) {
  const std::string text = "plain, caf\u00e9 \u0100\u02ff\n";
  std::string storage;
  EXPECT_EQ(ComposeText(text, nullptr, &storage).data(), text.data());
  EXPECT_EQ(Composed(text + "\u0300"), text + "\u0300");  // no letter before it
}

TEST(ComposedTextTest, IsCutWhereNothingJoinsOnly) {
  size_t begins = 0;
  for (int code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    begins += BeginsComposition(code_point) ? 1 : 0;
    utf8proc_int32_t parts[4];
    int last = 0;
    const auto count = utf8proc_decompose_char(
        code_point, parts, 4, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &last);
    ASSERT_TRUE(count > 0 && count <= 4) << code_point;
    for (int i = 1; i < count; ++i) EXPECT_FALSE(BeginsComposition(parts[i])) << code_point;
    if (BeginsComposition(code_point)) {
      EXPECT_EQ(utf8proc_get_property(parts[0])->combining_class, 0) << code_point;
    }
    std::string apart, together;
    for (int i = 0; i < count; ++i) AppendUtf8(parts[i], &apart);
    AppendUtf8(code_point, &together);
    const std::string composed = Composed(apart);
    EXPECT_LE(apart.size(), kMaxBytesPerComposedByte * composed.size()) << code_point;
    EXPECT_LE(together.size(), kMaxBytesPerComposedByte * composed.size()) << code_point;
  }
  EXPECT_GT(begins, 100000u);
}

TEST(ComposedTextTest, TakesMarksWithoutEnd) {
  // Each two out of order: a library's exchange of neighbours would take half a minute.
  std::string text = "a";
  std::string ordered = "a";
  for (int i = 0; i < 100000; ++i) text += "\u0302\u0323";
  const auto begin = std::chrono::steady_clock::now();
  const std::string composed = Composed(text);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ordered = "\u1ead";  // a, dot below, circumflex
  for (int i = 1; i < 100000; ++i) ordered += "\u0323";
  for (int i = 1; i < 100000; ++i) ordered += "\u0302";
  EXPECT_TRUE(composed == ordered);
}

TEST(ComposedTextTest, TellsItsPaceAndStops) {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "e\u0301\u4e00 ";
  std::string storage;
  StopAfter never(-1);
  EXPECT_EQ(ComposeText(text, &never, &storage).size(), 10000u * 6);
  EXPECT_GE(never.seen(), 100);
  StopAfter second(2);
  EXPECT_LT(ComposeText(text, &second, &storage).size(), 1000u);
}

// Bytes by themselves, with the normalizer that is named, or none.
std::unique_ptr<Tokenizer> ByteTokenizer(const char* normalizer, const char* special = "<s>") {
  auto json = nlohmann::ordered_json::parse(R"({"model": {"type": "BPE", "merges": []},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}})");
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    // The byte-level alphabet of GPT-2.
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    static int next;
    if (byte == 0) next = 256;
    std::string spelling;
    AppendUtf8(printable ? byte : next++, &spelling);
    json["model"]["vocab"][spelling] = id++;
  }
  json["added_tokens"] = {{{"id", id}, {"content", special}, {"special", true}}};
  if (normalizer != nullptr) json["normalizer"] = {{"type", normalizer}};
  const auto spec = ParseTokenizerJson(json.dump());
  EXPECT_TRUE(spec.ok()) << spec.status();
  auto tokenizer = CreateTokenizer(*spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(ComposedTextTest, TokenizersComposeWhereTheirFileSaysSo) {
  const auto composing = ByteTokenizer("NFC", "<e\u0301>");
  const auto plain = ByteTokenizer(nullptr);
  EXPECT_EQ(EncodeOrFail(*plain, "e\u0301", {}), (std::vector<int>{0x65, 0xCC, 0x81}));
  EXPECT_EQ(EncodeOrFail(*composing, "e\u0301", {}), (std::vector<int>{0xC3, 0xA9}));
  // Special tokens are found as they are spelled.
  EXPECT_EQ(EncodeOrFail(*composing, "<e\u0301>e\u0301", {.parse_special = true}),
            (std::vector<int>{256, 0xC3, 0xA9}));
  // Repaired first: U+FFFD takes no accent.
  EXPECT_EQ(EncodeOrFail(*composing, "\xFF\u0301", {}),
            (std::vector<int>{0xEF, 0xBF, 0xBD, 0xCC, 0x81}));
}

TEST(ComposedTextTest, FewestTokensCountsWhatMayJoin) {
  const auto composing = ByteTokenizer("NFC");
  const auto plain = ByteTokenizer(nullptr);
  for (const std::string part : {"\u1112\u1161\u11ab", "\u212a", "u\u0308\u0300", "abc"}) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += part;
    EXPECT_LE(composing->FewestTokens(text), EncodeOrFail(*composing, text, {}).size()) << part;
    EXPECT_GE(composing->FewestTokens(text), plain->FewestTokens(text) / 3) << part;
    EXPECT_GT(composing->FewestTokens(text), 0u) << part;
  }
}

}  // namespace
}  // namespace refrain::engine
