#include <gtest/gtest.h>

#include <string>

#include "engine/text/chat_template.h"
#include "engine/text/jinja/json.h"
#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::RefuseEachAllocation;

// Scenario: a chat of maps of many keys, by a template that makes maps and sets of its own.
TEST(ChatWithoutMemoryTest, AfterAnyRefusedAllocationTheSameChatIsRendered) {
  const auto chat = ChatTemplate::Create(
      "{% set signs = {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8} %}"
      "{% for message in messages %}{% set ns = namespace(role=message.role) %}"
      "{{ ns.role }}{{ signs[message.content.strip('xyz .,-+*/!?0123456789')] }};"
      "{{ message | tojson }}{% endfor %}",
      "", "");
  ASSERT_TRUE(chat.ok()) << chat.status();
  std::string message = R"({"role": "user", "content": "xx b!")";
  for (char key = 'a'; key <= 'z'; ++key) message += std::string(", \"") + key + "\": 1";
  message += "}";
  const ChatTemplateInput input{.messages = *jinja::ParseJsonValue("[" + message + "]")};
  std::string text;
  const auto refused = RefuseEachAllocation([&] {
    const auto rendered = (*chat)->Render(input);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    text = rendered->text;
  });
  EXPECT_GT(refused, 100);
  EXPECT_EQ(text, "user2;" + message);
}

}  // namespace
}  // namespace refrain::engine
