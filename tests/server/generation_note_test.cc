#include "server/generation_note.h"

#include <gtest/gtest.h>

#include <string>

#include "server/status_mapping.h"

namespace refrain::server {
namespace {

constexpr std::string_view kOfTheClient = "(a name of the client's)";

TEST(FieldForLogs, ShowsWhatLooksLikeAName) {
  for (const std::string& field :
       {std::string("temperature"), std::string("messages[12].content[0].image_url"),
        std::string("x-made_up.2"), std::string(64, 'a')}) {
    EXPECT_EQ(FieldForLogs(field), field);
  }
}

TEST(FieldForLogs, ShowsNothingElseThatAClientMadeUp) {
  for (const std::string& field :
       {std::string(), std::string("My SSN is 123"), std::string("structured_outputs.My password"),
        std::string("a:b"), std::string("a\nb"), std::string("caf\xC3\xA9"), std::string("\xFF"),
        std::string("a\0b", 3), std::string("{}"), std::string(65, 'a')}) {
    EXPECT_EQ(FieldForLogs(field), kOfTheClient) << field;
  }
}

TEST(AppendRefusal, NamesTheFieldAsLogsMay) {
  const auto line_of = [](std::string_view field) {
    std::string details;
    AppendRefusal(InvalidField(field, "is wrong"), &details);
    return details;
  };
  const std::string error = R"("error":"invalid_request_error","param":)";
  EXPECT_EQ(line_of("logit_bias.5"), error + R"("logit_bias.5")");
  EXPECT_EQ(line_of("structured_outputs.My password is hunter2"),
            error + "\"" + std::string(kOfTheClient) + "\"");
}

}  // namespace
}  // namespace refrain::server
