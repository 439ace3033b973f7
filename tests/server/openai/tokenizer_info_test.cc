// What /tokenizer_info tells of models whose files say much, and of those that say little.

#include "server/openai/tokenizer_info.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"

namespace refrain::server::openai {
namespace {

using nlohmann::json;
using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::ServedFake;

TEST(TokenizerInfo, TellsWhatTheFilesSay) {
  engine::ModelInfo model;
  model.max_context_tokens = 4096;
  model.tokenizer = {.tokenizer_class = "LlamaTokenizer",
                     .tokens = {{"bos_token", "<s>"},
                                {"eos_token", "</s>"},
                                {"mask_token", "<mask>"},
                                {"pad_token", "\"pad\""}},
                     .adds_bos = true,
                     .chat_template = "{{ \"\\n\" }}"};
  EXPECT_EQ(json::parse(TokenizerInfoObject(model)), json({{"tokenizer_class", "LlamaTokenizer"},
                                                           {"model_max_length", 4096},
                                                           {"add_bos_token", true},
                                                           {"bos_token", "<s>"},
                                                           {"eos_token", "</s>"},
                                                           {"mask_token", "<mask>"},
                                                           {"pad_token", "\"pad\""},
                                                           {"unk_token", nullptr},
                                                           {"chat_template", "{{ \"\\n\" }}"}}));
}

// The usual tokens are told of as not there; a template is not.
TEST(TokenizerInfo, TellsWhatIsNotThere) {
  engine::ModelInfo model;
  model.max_context_tokens = 16;
  model.tokenizer.tokens["eos_token"] = "\xff";
  EXPECT_EQ(json::parse(TokenizerInfoObject(model)),
            json({{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"model_max_length", 16},
                  {"add_bos_token", false},
                  {"bos_token", nullptr},
                  {"eos_token", "\xef\xbf\xbd"},
                  {"pad_token", nullptr},
                  {"unk_token", nullptr}}));
}

TEST(TokenizerInfo, IsThereWhereItWasAskedFor) {
  for (const bool on : {false, true}) {
    const ServedFake served({}, {}, {.version = "9.9.9", .tokenizer_info = on});
    RawClient client(served.port());
    client.Send(GetRequest("/tokenizer_info"));
    EXPECT_EQ(client.ReadResponse().status, on ? 200 : 404);
  }
}

}  // namespace
}  // namespace refrain::server::openai
