// A daemon with a model whose chat template cannot be used, over HTTP.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/daemon.h"
#include "tests/server/daemon_process.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::server {
namespace {

using nlohmann::json;
using ::refrain::testing::DaemonArguments;
using ::refrain::testing::DaemonProcess;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;

constexpr char kBeyond[] = "{% for m in messages %}\n{% include m.role %}{% endfor %}";

class ChatTemplateDaemonTest : public ::testing::Test {
 protected:
  // The daemon itself, with a tiny model.
  DaemonProcess Start(const std::string& chat_template, const std::string& file = "") {
    const auto model =
        refrain::testing::WriteTinyGguf({.chat_template = chat_template}, directory_.path());
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<std::string> more = {"--set", "kv_cache.memory_bytes=4MiB"};
    if (!file.empty()) more.insert(more.end(), {"--set", "model.chat_template_file=" + file});
    return DaemonProcess(DaemonArguments(*model, more), {.program = "server/refraind"});
  }

  std::string Write(const std::string& source) {
    const std::string path = directory_.path() + "/other.jinja";
    std::ofstream(path) << source;
    return path;
  }

  static RawResponse Post(DaemonProcess& daemon, const char* path, const json& members) {
    json body = {{"model", "tiny"}, {"max_tokens", 2}};
    body.update(members);
    RawClient client(daemon.Port());
    client.Send(PostRequest(path, body.dump()));
    return client.ReadResponse();
  }

  static std::string ErrorOf(const RawResponse& response) {
    EXPECT_EQ(response.status, 400) << response.body;
    return json::parse(response.body)["error"]["message"];
  }

  testing::TemporaryDirectory directory_;
};

const json kMessages = {{{"role", "user"}, {"content", "Hi"}}};
const json kTools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
constexpr char kChats[] = "/v1/chat/completions";

TEST_F(ChatTemplateDaemonTest, RefusesChatsWithTheConstructAndServesTheRest) {
  DaemonProcess daemon = Start(kBeyond);
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  for (const char* part : {"line 2", "'include'", "chats are refused", "chat_template_file"}) {
    EXPECT_NE(daemon.output().find(part), std::string::npos) << daemon.output();
  }
  for (const json& more : {json::object(), json({{"stream", true}}), json({{"tools", kTools}})}) {
    json request = {{"messages", kMessages}};
    request.update(more);
    const std::string error = ErrorOf(Post(daemon, kChats, request));
    for (const char* part : {"line 2", "'include'", "use completions"}) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  }
  EXPECT_NE(ErrorOf(Post(daemon, "/tokenize", {{"messages", kMessages}})).find("line 2"),
            std::string::npos);
  EXPECT_EQ(Post(daemon, "/v1/completions", {{"prompt", "Hi"}}).status, 200);
  RawClient client(daemon.Port());
  client.Send(GetRequest("/v1/models"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(ChatTemplateDaemonTest, ANameIsNoTemplate) {
  DaemonProcess daemon = Start("mistral-v99");
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  EXPECT_NE(daemon.output().find("mistral-v99"), std::string::npos) << daemon.output();
  EXPECT_EQ(ErrorOf(Post(daemon, kChats, {{"messages", kMessages}})),
            "the model has no chat template: use completions with a text prompt");
  EXPECT_EQ(Post(daemon, "/v1/completions", {{"prompt", "Hi"}}).status, 200);
}

TEST_F(ChatTemplateDaemonTest, TheConfigurationMayNameAnother) {
  DaemonProcess daemon =
      Start(kBeyond, Write("{% for m in messages %}{{ m.content }}{% endfor %}"));
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  const RawResponse response = Post(daemon, kChats, {{"messages", kMessages}});
  EXPECT_EQ(response.status, 200) << response.body;
}

TEST_F(ChatTemplateDaemonTest, DoesNotStartWithoutTheTemplateThatItIsToHave) {
  const std::string absent = directory_.path() + "/absent.jinja";
  const std::string beyond = Write(kBeyond);
  for (const std::string& path : {absent, beyond}) {
    DaemonProcess daemon = Start("{{ messages }}", path);
    EXPECT_EQ(daemon.Wait(), static_cast<int>(ExitStatus::kFailed));
    for (const std::string& part : {std::string("model.chat_template_file"), path}) {
      EXPECT_NE(daemon.output().find(part), std::string::npos) << daemon.output();
    }
    if (path == beyond) {
      EXPECT_NE(daemon.output().find("line 2"), std::string::npos) << daemon.output();
    }
  }
}

}  // namespace
}  // namespace refrain::server
