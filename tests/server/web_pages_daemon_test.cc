// What a browser sends that shows a page of somebody else's, to a daemon as it starts by default.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/access/make_key_command.h"
#include "tests/server/daemon_process.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server {
namespace {

using nlohmann::json;
using ::refrain::testing::DaemonProcess;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::TemporaryDirectory;

constexpr char kEvil[] = "Host: 127.0.0.1\r\nOrigin: https://evil.example\r\n";

class WebPagesDaemonTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> settings = {}) {
    std::vector<std::string> arguments = {"--model",     "fake",          "--listen",
                                          "127.0.0.1:0", "--grpc-listen", ""};
    for (std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", std::move(setting)});
    }
    daemon_.emplace(arguments);
    port_ = daemon_->Port();
    ASSERT_TRUE(daemon_->WaitForOutput("ready")) << daemon_->output();
  }

  // The body as a page may send it without asking: called text/plain.
  RawResponse Post(const std::string& headers) {
    const std::string body = R"({"prompt":"hi","max_tokens":2})";
    RawClient client(port_);
    client.Send("POST /v1/completions HTTP/1.1\r\n" + headers +
                "Content-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    return client.ReadResponse();
  }
  RawResponse Get(const std::string& path, const std::string& headers) {
    RawClient client(port_);
    client.Send("GET " + path + " HTTP/1.1\r\n" + headers + "\r\n");
    return client.ReadResponse();
  }

  std::optional<DaemonProcess> daemon_;
  uint16_t port_ = 0;
};

TEST_F(WebPagesDaemonTest, PagesOfOthersAreRefused) {
  Start();
  std::ifstream file("tests/data/http-bad-requests/web-pages.json");
  const json table = json::parse(file);
  EXPECT_GT(table.size(), 10u);
  for (const json& row : table) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const std::string headers = row["headers"].get<std::string>();
    for (const RawResponse& response : {Post(headers), Get("/v1/models", headers)}) {
      ASSERT_EQ(response.status, 403) << response.body;
      const json error = json::parse(response.body)["error"];
      EXPECT_EQ(error["code"], row["code"]);
      EXPECT_EQ(error["type"], "permission_error");
      EXPECT_NE(error["message"].get<std::string>().find(row["message"].get<std::string>()),
                std::string::npos)
          << error["message"];
    }
    EXPECT_EQ(Get("/health", headers).status, 200);
  }
}

// The Host that it was sent with does not count (RFC 9112 section 3.2.2).
TEST_F(WebPagesDaemonTest, AnAbsoluteTargetIsLookedAtAsTheHostIs) {
  Start();
  const RawResponse refused = Get("http://evil.example/v1/models", "Host: localhost\r\n");
  ASSERT_EQ(refused.status, 403) << refused.body;
  const json error = json::parse(refused.body)["error"];
  EXPECT_EQ(error["code"], "host_not_allowed");
  EXPECT_NE(error["message"].get<std::string>().find("\"evil.example\""), std::string::npos)
      << error;
  EXPECT_EQ(Get("http://localhost:8000/v1/models", "Host: localhost:8000\r\n").status, 200);
  const std::string origin = "Host: localhost\r\nOrigin: http://localhost:8000\r\n";
  EXPECT_EQ(Get("http://localhost:8000/v1/models", origin).status, 200);
  EXPECT_EQ(Get("http://localhost:8001/v1/models", origin).status, 403);
}

TEST_F(WebPagesDaemonTest, OtherClientsAreNot) {
  Start();
  for (const char* host : {"127.0.0.1", "127.0.0.1:8000", "localhost:8000", "[::1]:8000"}) {
    EXPECT_EQ(Post(std::string("Host: ") + host + "\r\n").status, 200) << host;
  }
  // A page of the server's own, such as one that a proxy serves beside it.
  EXPECT_EQ(Post("Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n").status, 200);
}

TEST_F(WebPagesDaemonTest, SettingsLetThemIn) {
  Start({"http.cors_origins=https://evil.example", "http.allowed_hosts=api.example.com"});
  EXPECT_EQ(Post(kEvil).status, 200);
  EXPECT_EQ(Post("Host: api.example.com\r\n").status, 200);
  EXPECT_EQ(Post("Host: api.example.com\r\nOrigin: https://evil.example\r\n").status, 200);
  EXPECT_EQ(Post("Host: other.example.com\r\n").status, 403);
  Start({"http.cors_origins=*", "http.allowed_hosts=*"});
  EXPECT_EQ(Post("Host: any.example\r\nOrigin: null\r\n").status, 200);
}

// A browser asks before it sends a header Authorization, and no page has a key.
TEST_F(WebPagesDaemonTest, KeysAreEnough) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const std::vector<const char*> arguments = {"--file", path.c_str(), "--name", "team"};
  const auto key = access::RunMakeKey(arguments);
  ASSERT_TRUE(key.ok()) << key.status();
  Start({"auth.keys_file=" + path});
  EXPECT_EQ(Post(kEvil).status, 401);
  EXPECT_EQ(Post(kEvil + ("Authorization: Bearer " + *key + "\r\n")).status, 200);
  EXPECT_EQ(Post("Host: api.example.com\r\nAuthorization: Bearer " + *key + "\r\n").status, 200);
}

}  // namespace
}  // namespace refrain::server
