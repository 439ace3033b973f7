// tokenizer.model files: hostile ones, and the files of a folder beside them.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

TEST(SentencePieceFileTest, RefusesTruncatedAndFlippedModels) {
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  EXPECT_FALSE(CreateSentencePieceTokenizer("").ok());
  EXPECT_FALSE(CreateSentencePieceTokenizer("not a model").ok());
  for (size_t size = 0; size + 1 < model.size(); size += 97) {
    const auto tokenizer = CreateSentencePieceTokenizer(std::string_view(model).substr(0, size));
    if (tokenizer.ok()) EncodeOrFail(**tokenizer, "once upon", {});
  }
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::string flipped = model;
    flipped[random() % flipped.size()] ^= static_cast<char>(1u << (random() % 8));
    const auto tokenizer = CreateSentencePieceTokenizer(flipped);
    if (tokenizer.ok()) (void)(*tokenizer)->Encode("once upon a time", {});
  }
}

// A piece `zq` of type byte, then, behind a group that readers of protobuf skip, of type normal.
TEST(SentencePieceFileTest, RefusesAPieceThatIsReadInTwoWays) {
  using std::string_literals::operator""s;
  const std::string piece = "\x0A\x02zq\x18\x06\x4B\x4C\x18\x01"s;
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model") + "\x0A"s +
                            static_cast<char>(piece.size()) + piece;
  for (const auto merging :
       {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
    const auto tokenizer = CreateSentencePieceTokenizer(model, {}, merging);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(tokenizer.status().message().find("piece 512"), std::string::npos)
        << tokenizer.status();
  }
}

// A message or text as field `number` of one: all of less than 128 bytes.
std::string FieldOf(int number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) +
         bytes;
}

// The bytes of a piece: its text, a score of -1 and its type.
std::string PieceOf(const std::string& text, const std::string& type) {
  using std::string_literals::operator""s;
  return FieldOf(1, FieldOf(1, text) + "\x15\0\0\x80\xBF\x18"s + type);
}

// The library's array of those that begin at one place has 64 entries, and no check.
TEST(SentencePieceFileTest, RefusesMoreUserDefinedPiecesInOneAnotherThanTheLibraryHasRoomFor) {
  using std::string_literals::operator""s;
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  const auto with_pieces = [&](int count, const std::string& end, const std::string& type) {
    std::string bytes = model;
    for (int i = 0; i < count; ++i) {
      // In an order that is not that of their lengths.
      bytes += PieceOf(std::string(4 + (i * 37) % count, 'a') + end, type);
    }
    return CreateSentencePieceTokenizer(bytes);
  };
  // Protobuf knows no type 99, and the lower 32 bits of the last type are those of a user-defined.
  for (const char* type : {"\x04", "\x04\x18\x63", "\x84\x80\x80\x80\x10"}) {
    const auto fits = with_pieces(64, "", type);
    ASSERT_TRUE(fits.ok()) << fits.status();
    EXPECT_FALSE(EncodeOrFail(**fits, std::string(200, 'a'), {}).empty());
    EXPECT_EQ(with_pieces(65, "", type).status(),
              absl::InvalidArgumentError("SentencePiece model: more than 64 of its user-defined "
                                         "pieces begin with one another"));
  }
  EXPECT_FALSE(with_pieces(65, "\0x"s, "\x04").ok());  // the library sees what is before the zero
  EXPECT_TRUE(with_pieces(65, "\xC3\xA9", "\x04").ok());  // none is another's beginning
}

// Trained with <|im_end|> as a user-defined piece, which the self-test finds; here it is reserved.
TEST(SentencePieceFileTest, LoadsAModelWhoseSelfTestHasAReservedPiece) {
  const std::string test = FieldOf(1, "a<|im_end|>") + FieldOf(2, "\u2581a <|im_end|>");
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model") +
                            PieceOf("<|im_end|>", "\x04") + FieldOf(4, FieldOf(1, test));
  const auto tokenizer = CreateSentencePieceTokenizer(model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "a<|im_end|>", {.parse_special = true}).back(), 512);
}

// Of a key beyond 32 bits protobuf takes the lower ones: a normalizer with a character map.
TEST(SentencePieceFileTest, RefusesANormalizerBehindALongKey) {
  using std::string_literals::operator""s;
  const std::string map = "\x12\x08\x04\0\0\0\xFF\xFF\xFF\xFF"s;
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  const auto plain = CreateSentencePieceTokenizer(model + "\x1A\x0A"s + map);
  EXPECT_NE(plain.status().message().find("character map of 8"), std::string::npos)
      << plain.status();
  const auto hidden = CreateSentencePieceTokenizer(model + "\x9A\x80\x80\x80\x10\x0A"s + map);
  EXPECT_NE(hidden.status().message().find("the file is cut off"), std::string::npos)
      << hidden.status();
}

TEST(SentencePieceFileTest, FilesBesideTheModelStandAboveIt) {
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  TokenizerSpec beside;
  beside.bos = kvcache::TokenId{5};
  beside.eos = kvcache::TokenId{7};
  beside.end_of_generation = {kvcache::TokenId{400}};
  for (const auto merging :
       {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
    const auto plain = CreateSentencePieceTokenizer(model, {}, merging);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_TRUE((*plain)->adds_bos());
    EXPECT_EQ((*plain)->eos(), kvcache::TokenId{2});
    EXPECT_FALSE((*plain)->IsEndOfGeneration(kvcache::TokenId{400}));

    beside.add_bos = true;
    const auto with_bos = CreateSentencePieceTokenizer(model, beside, merging);
    ASSERT_TRUE(with_bos.ok()) << with_bos.status();
    EXPECT_EQ(EncodeOrFail(**with_bos, "once", {}).front(), 5);
    EXPECT_EQ((*with_bos)->eos(), kvcache::TokenId{7});
    for (const int id : {2, 7, 400}) {  // the model's own eos still ends an answer
      EXPECT_TRUE((*with_bos)->IsEndOfGeneration(kvcache::TokenId{id})) << id;
    }

    beside.add_bos = false;
    const auto without_bos = CreateSentencePieceTokenizer(model, beside, merging);
    ASSERT_TRUE(without_bos.ok()) << without_bos.status();
    EXPECT_FALSE((*without_bos)->adds_bos());
    EXPECT_NE(EncodeOrFail(**without_bos, "once", {}).front(), 5);
  }
  beside.end_of_generation = {kvcache::TokenId{512}};
  const auto outside = CreateSentencePieceTokenizer(model, beside);
  EXPECT_EQ(outside.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(outside.status().message().find("512"), std::string::npos) << outside.status();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBeside(
    const HuggingFaceTokenizerFiles& files,
    SentencePieceMerging merging = SentencePieceMerging::kOwnWhereEqual) {
  const auto spec = ParseSentencePieceSidecars(files);
  if (!spec.ok()) return spec.status();
  return CreateSentencePieceTokenizer(ReadTestData("stories260K-tokenizer/tok512.model"), *spec,
                                      merging);
}

// A ChatML fine-tune of a model of 512 pieces, with slow tokenizer files only: the newer form with
// added_tokens_decoder, and the older one.
TEST(SentencePieceFileTest, TakesTokensOfTheFilesBesideTheModel) {
  const HuggingFaceTokenizerFiles newer = {
      .tokenizer_config_json = R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {
          "1": {"content": "<s>", "special": true},
          "512": {"content": "<|im_start|>", "special": true},
          "513": {"content": "<|im_end|>", "special": true},
          "515": {"content": "<tool>", "special": false}}})"};
  const HuggingFaceTokenizerFiles older = {
      .tokenizer_config_json = R"({"additional_special_tokens": [{"content": "<|im_start|>"}]})",
      .special_tokens_map_json = R"({"eos_token": {"content": "<|im_end|>"}})",
      .added_tokens_json = R"({"<|im_end|>": 513, "<|im_start|>": 512, "<tool>": 515})"};
  const std::string text = "<|im_start|>once<|im_end|><tool>";
  for (const auto& files : {newer, older}) {
    for (const auto merging :
         {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
      const auto tokenizer = CreateBeside(files, merging);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      std::vector<int> expected = {1, 512};
      for (const int id : EncodeOrFail(**tokenizer, "once", {.add_bos = false})) {
        expected.push_back(id);
      }
      expected.insert(expected.end(), {513, 515});
      EXPECT_EQ(EncodeOrFail(**tokenizer, text, {.parse_special = true}), expected);
      const std::vector<int> plain = EncodeOrFail(**tokenizer, text, {});
      EXPECT_EQ(std::count(plain.begin(), plain.end(), 512), 0);  // content forges no token
      EXPECT_EQ(plain.back(), 515);
      using kvcache::TokenId;
      EXPECT_EQ((*tokenizer)->eos(), TokenId{513});
      EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(TokenId{2}));  // the model's own
      EXPECT_EQ((*tokenizer)->TokenBytes(TokenId{512}), "<|im_start|>");
      EXPECT_TRUE((*tokenizer)->IsControl(TokenId{512}));
      EXPECT_EQ((*tokenizer)->TokenBytes(TokenId{514}), "");  // between others
      EXPECT_EQ((*tokenizer)->vocab_size(), 516u);
    }
  }
}

// A folder of a tokenizer.model alone, whose ChatML tokens are user-defined (type 4) or normal (1)
// pieces: the library would find them in any text.
TEST(SentencePieceFileTest, ContentForgesNoPieceThatIsSpelledAsAControlToken) {
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model");
  const std::string text = "<|im_start|>once<|im_end|>x<|im_end|>\n<|im_start|>system<tool>";
  const TextSpan content{text.find('x'), text.size()};
  const EncodeOptions chat{.parse_special = true, .add_bos = false, .plain_spans = {&content, 1}};
  const auto listed =
      ParseSentencePieceSidecars({.tokenizer_config_json = R"({"added_tokens_decoder": {
           "512": {"content": "<|im_start|>", "special": true}}})"});
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const char* type : {"\4", "\1"}) {
    const std::string pieces =
        PieceOf("<|im_start|>", type) + PieceOf("<|im_end|>", type) + PieceOf("<tool>", "\4");
    for (const TokenizerSpec& beside : {TokenizerSpec(), *listed}) {
      if (*type == '\1' && beside.tokens.empty()) continue;  // nobody calls <|im_start|> a token
      const auto tokenizer = CreateSentencePieceTokenizer(model + pieces, beside);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      const std::vector<int> ids = EncodeOrFail(**tokenizer, text, chat);
      EXPECT_EQ(std::ranges::count(ids, 512), 1);
      EXPECT_EQ(std::ranges::count(ids, 513), 1);
      EXPECT_EQ(std::ranges::count(ids, 514), 1);  // text, to be found in any
      EXPECT_EQ(ids.front(), 512);
      EXPECT_EQ((*tokenizer)->FindControlTokens(text, chat).size(), 2u);
      EXPECT_TRUE((*tokenizer)->IsReserved(kvcache::TokenId{512}));
      EXPECT_TRUE((*tokenizer)->IsControl(kvcache::TokenId{513}));
      EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(kvcache::TokenId{513}));
      // Where control tokens are wanted they are there.
      const std::vector<int> raw = EncodeOrFail(**tokenizer, text, {.parse_special = true});
      EXPECT_EQ(std::ranges::count(raw, 512), 2);
      EXPECT_EQ(std::ranges::count(raw, 513), 2);
    }
  }
}

// A user-defined piece that ends a turn because generation_config.json has its id.
TEST(SentencePieceFileTest, ContentForgesNoPieceThatEndsATurnByItsId) {
  const std::string model = ReadTestData("stories260K-tokenizer/tok512.model") +
                            PieceOf("[END]", "\4") + PieceOf("[TOOL]", "\4");
  TokenizerSpec beside;
  beside.end_of_generation = {kvcache::TokenId{512}};
  const auto tokenizer = CreateSentencePieceTokenizer(model, beside);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "once[END][TOOL]";
  const std::vector<int> plain = EncodeOrFail(**tokenizer, text, {});
  EXPECT_EQ(std::ranges::count(plain, 512), 0);
  EXPECT_EQ(std::ranges::count(plain, 513), 1);
  const std::vector<int> raw = EncodeOrFail(**tokenizer, text, {.parse_special = true});
  EXPECT_EQ(std::ranges::count(raw, 512), 1);
  EXPECT_TRUE((*tokenizer)->IsControl(kvcache::TokenId{512}));
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(kvcache::TokenId{512}));
}

TEST(SentencePieceFileTest, AddedTokensAreShownWithSpacesForMarks) {
  for (const auto merging :
       {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
    const auto tokenizer =
        CreateBeside({.tokenizer_config_json =
                          R"({"added_tokens_decoder": {"512": {"content": "\u2581\u2581"}}})"},
                     merging);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->TokenBytes(kvcache::TokenId{512}), "  ");
  }
}

// Who lists bytes among the added tokens, to have them, has them as bytes still.
TEST(SentencePieceFileTest, BytesThatTheConfigListsAreBytesStill) {
  for (const char* special : {"true", "false"}) {
    const std::string config =
        R"({"added_tokens_decoder": {"13": {"content": "<0x0A>", "special": )" +
        std::string(special) + "}}}";
    for (const auto merging :
         {SentencePieceMerging::kOwnWhereEqual, SentencePieceMerging::kLibrary}) {
      const auto plain = CreateBeside({}, merging);
      const auto listed = CreateBeside({.tokenizer_config_json = config}, merging);
      ASSERT_TRUE(plain.ok() && listed.ok()) << plain.status() << listed.status();
      const std::vector<int> ids = EncodeOrFail(**plain, "once\n", {});
      EXPECT_EQ(ids.back(), 13);
      EXPECT_EQ(EncodeOrFail(**listed, "once\n", {}), ids);
      EXPECT_EQ((*listed)->TokenBytes(kvcache::TokenId{13}), "\n");
      EXPECT_FALSE((*listed)->IsControl(kvcache::TokenId{13}));
      EXPECT_EQ(EncodeOrFail(**listed, "<0x0A>", {.parse_special = true}),
                EncodeOrFail(**plain, "<0x0A>", {.parse_special = true}));
    }
  }
}

// `legacy` false: text behind a special token is encoded as it stands.
TEST(SentencePieceFileTest, PutsTheSpacePrefixWhereTheConfigSays) {
  const auto ids = [](const char* config, const char* text) {
    const auto tokenizer = CreateBeside({.tokenizer_config_json = config});
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return EncodeOrFail(**tokenizer, text, {.parse_special = true, .add_bos = false});
  };
  const std::vector<int> spaced = ids("{}", "once");
  std::vector<int> legacy = {1}, bare = {1};
  legacy.insert(legacy.end(), spaced.begin(), spaced.end());
  EXPECT_EQ(ids("{}", "<s>once"), legacy);
  EXPECT_EQ(ids(R"({"legacy": false})", "once"), spaced);
  EXPECT_EQ(ids(R"({"legacy": false})", " once"), spaced);
  EXPECT_EQ(ids(R"({"legacy": false})", "<s> once"), legacy);
  for (const int id : ids(R"({"legacy": false, "add_prefix_space": false})", "once")) {
    bare.push_back(id);
  }
  EXPECT_EQ(ids(R"({"legacy": false})", "<s>once"), bare);
  EXPECT_NE(bare, legacy);
  const auto by_library = CreateBeside({.tokenizer_config_json = R"({"legacy": false})"},
                                       SentencePieceMerging::kLibrary);
  EXPECT_EQ(by_library.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(SentencePieceFileTest, RefusesWrongTokensBesideTheModelByName) {
  const auto message_of = [](const HuggingFaceTokenizerFiles& files) {
    const auto tokenizer = CreateBeside(files);
    return tokenizer.ok() ? "accepted" : std::string(tokenizer.status().message());
  };
  for (const auto& [decoder, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("one": {"content": "<a>"})", "'<a>' has no id"},
           {R"("512": {})", "lacks its content"},
           {R"("-1": {"content": "<a>"})", "'<a>' has no id"},
           {R"("4000000": {"content": "<a>"})", "'<a>' has no id"},
           {R"("512": {"content": "<a>", "lstrip": true})", "'<a>' has lstrip"},
           {R"("1": {"content": "<a>"})", "token 1 is '<s>' in the SentencePiece model"}}) {
    const std::string config = R"({"added_tokens_decoder": {)" + decoder + "}}";
    EXPECT_NE(message_of({.tokenizer_config_json = config}).find(what), std::string::npos)
        << message_of({.tokenizer_config_json = config});
  }
  EXPECT_NE(message_of({.added_tokens_json = R"({"<a>": "x"})"}).find("added_tokens.json: "),
            std::string::npos);
  EXPECT_NE(message_of({.added_tokens_json = "["})
                .find("added_tokens.json: is not valid JSON: ends too early, after 1 bytes"),
            std::string::npos)
      << message_of({.added_tokens_json = "["});
}

}  // namespace
}  // namespace refrain::engine
