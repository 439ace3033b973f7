// The tables of wrong requests in tests/data/http-bad-requests, each sent over a real socket.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "server/concat.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/request_fields.h"
#include "tests/server/openai/served_fake.h"

namespace refrain::server::openai {
namespace {

using nlohmann::ordered_json;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::RequestFields;
using ::refrain::testing::ServedFake;

ordered_json ReadTable(const std::string& name) {
  std::ifstream file("tests/data/http-bad-requests/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return ordered_json::parse(text.str());
}

// Text, or an array of texts and of [text, times].
std::string Joined(const ordered_json& parts) {
  std::string text;
  for (const ordered_json& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    const auto repeated = part[0].get<std::string>();
    for (int i = 0; i < part[1].get<int>(); ++i) text += repeated;
  }
  return text;
}

// Characters below U+0100 as bytes.
std::string ToLatin1(const std::string& utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    if (byte < 0x80) {
      bytes.push_back(utf8[i]);
    } else {
      bytes.push_back(static_cast<char>((byte & 0x03) << 6 | (utf8[++i] & 0x3f)));
    }
  }
  return bytes;
}

// The least request that is right, to which a wrong field is added.
ordered_json GoodRequest(const std::string& to) {
  if (to == "chat") return {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  if (to == "responses") return {{"input", "hi"}};
  if (to == "detokenize") return {{"tokens", {1}}};
  return {{"prompt", "hi"}};
}

std::string PathOf(const std::string& to) {
  if (to == "chat") return "/v1/chat/completions";
  if (to == "completions") return "/v1/completions";
  if (to == "responses") return "/v1/responses";
  return "/" + to;
}

// Those that a row of the table is about.
std::vector<std::string> EndpointsOf(const ordered_json& row) {
  const auto to = row["to"].get<std::string>();
  if (to == "both") return {"completions", "chat"};
  if (to == "all") return {"completions", "chat", "responses"};
  return {to};
}

// No error tells how the server is made or where its files are: neither does a library's exception
// get through. What a client sent may be repeated.
void ExpectShowsNoInternals(const std::string& shown, const std::string& request) {
  static const std::regex kInternals(
      "::|\\.(cc|cpp|hpp|h|py|so)\\b|0x[0-9a-f]{4}|exception|bad_alloc|basic_string|nlohmann|boost|"
      "absl|std\\.|errno|nullptr|assert|what\\(\\)|stack|/(usr|home|root|tmp|etc|var|proc|opt)\\b|"
      "\\b(int(32|64)_t|size_t|uint(8|32|64)_t|string_view|FieldReader)\\b",
      std::regex::icase);
  for (std::sregex_iterator found(shown.begin(), shown.end(), kInternals), end; found != end;
       ++found) {
    EXPECT_NE(request.find(found->str()), std::string::npos)
        << "'" << found->str() << "' in " << shown;
  }
  if (request.find('/') == std::string::npos) {
    EXPECT_EQ(shown.find('/'), std::string::npos) << shown;
  }
}

// The answer to `request` is the error that `row` expects.
void ExpectError(const RawResponse& response, const ordered_json& row, const std::string& request) {
  ASSERT_EQ(response.status, row["status"].get<int>()) << response.body;
  const auto answer = ordered_json::parse(response.body, nullptr, false);
  ASSERT_TRUE(answer.is_object() && answer["error"].is_object()) << response.body;
  const ordered_json& error = answer["error"];
  EXPECT_EQ(error["code"], row["code"]);
  const std::string param =
      row.contains("param") && row["param"].is_string() ? row["param"].get<std::string>() : "";
  EXPECT_EQ(error["param"], param.empty() ? ordered_json() : ordered_json(param));
  EXPECT_EQ(error["type"], "invalid_request_error");
  const auto message = error["message"].get<std::string>();
  EXPECT_NE(message.find(row["message"].get<std::string>()), std::string::npos) << message;
  ExpectShowsNoInternals(message, request);
}

class BadRequestsTest : public ::testing::Test {
 protected:
  // Sends `body` and compares the answer with what `row` expects.
  void ExpectRefused(const std::string& path, const std::string& body, const ordered_json& row,
                     const std::string& more_headers = "") {
    client_->Send(PostRequest(path, body, more_headers));
    const RawResponse response = client_->ReadResponse();
    ASSERT_NO_FATAL_FAILURE(ExpectError(response, row, more_headers + body));
    const auto connection = response.headers.find("connection");
    if (connection != response.headers.end() && connection->second == "close") {
      client_ = std::make_unique<RawClient>(served_.port());
    }
  }

  ServedFake served_{{.chat_template = "{% if tools %}{{ tools }}<tool_call>{% endif %}"}};
  std::unique_ptr<RawClient> client_ = std::make_unique<RawClient>(served_.port());
};

TEST_F(BadRequestsTest, EveryWrongFieldIsNamed) {
  int sent = 0;
  for (const ordered_json& row : ReadTable("fields.json")) {
    for (const std::string& endpoint : EndpointsOf(row)) {
      for (const ordered_json& wrong : row["wrong"]) {
        ordered_json request = GoodRequest(endpoint);
        if (row.contains("with")) request.update(row["with"]);
        std::string header;
        if (row.contains("header")) {
          header = row["header"].get<std::string>() + ": " + wrong.get<std::string>() + "\r\n";
        } else {
          request[row["field"].get<std::string>()] = wrong;
        }
        SCOPED_TRACE(PathOf(endpoint) + " " + header + request.dump().substr(0, 300));
        ExpectRefused(PathOf(endpoint), request.dump(), row, header);
        ++sent;
      }
    }
  }
  EXPECT_GT(sent, 1200);
  // But for prompts that are too long nothing came as far as the engine.
  EXPECT_LE(served_.engine().submitted(), 1);
}

// A field that is added to the parser is missed here until the table has it.
TEST_F(BadRequestsTest, TheTableHasAWrongValueOfEveryFieldThatHasAnEffect) {
  const ordered_json table = ReadTable("fields.json");
  for (const std::string endpoint :
       {"completions", "chat", "responses", "tokenize", "detokenize"}) {
    const ordered_json fields = RequestFields(served_.port(), PathOf(endpoint));
    EXPECT_FALSE(fields.empty()) << endpoint;
    for (const auto& [name, schema] : fields.items()) {
      if (schema.empty()) continue;
      const bool is_there =
          std::any_of(table.begin(), table.end(), [&, field = name](const ordered_json& row) {
            const std::vector<std::string> to = EndpointsOf(row);
            return row.value("field", "") == field &&
                   std::find(to.begin(), to.end(), endpoint) != to.end();
          });
      EXPECT_TRUE(is_there) << endpoint << ": " << name;
    }
  }
}

// The borders of what the table refuses.
TEST_F(BadRequestsTest, NullLabelsAndNoCodingAreTaken) {
  for (const char* fields :
       {R"("user":null,"metadata":null)", R"("user":"","metadata":{})",
        R"("user":"u","metadata":{"a":"b","c":""},"logit_bias":{"5":-100},"stop":["a"])"}) {
    for (const char* header :
         {"", "Content-Encoding: identity\r\n", "Content-Encoding: Identity ,\tIDENTITY\r\n",
          "Content-Encoding:\r\n"}) {
      client_->Send(
          PostRequest("/v1/completions", Concat(R"({"prompt":"hi",)", fields, "}"), header));
      const RawResponse response = client_->ReadResponse();
      EXPECT_EQ(response.status, 200) << fields << header << response.body;
    }
  }
}

// The answer to a body that cannot be read says which can (RFC 9110, 15.5.16).
TEST_F(BadRequestsTest, ACodingIsRefusedBeforeTheBodyIsSent) {
  RawClient client(served_.port());
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
      "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 415) << response.body;
  EXPECT_EQ(response.headers.at("accept-encoding"), "identity");
}

TEST_F(BadRequestsTest, EveryWrongBodyIsRefused) {
  const ordered_json table = ReadTable("bodies.json");
  EXPECT_GT(table.size(), 35u);
  for (const ordered_json& row : table) {
    SCOPED_TRACE(row["name"].get<std::string>());
    std::string body = Joined(row["body"]);
    if (row.contains("latin1")) body = ToLatin1(body);
    for (const char* endpoint : {"completions", "chat", "responses", "tokenize", "detokenize"}) {
      if (row["param"] == "prompt" && std::string_view(endpoint) != "completions") continue;
      SCOPED_TRACE(endpoint);
      ExpectRefused(PathOf(endpoint), body, row);
    }
  }
  EXPECT_EQ(served_.engine().submitted(), 0);
}

// Shapes that proxies and servers are known to read differently: none may be answered as a request
// that was not sent, or leave a second one behind.
TEST_F(BadRequestsTest, EveryWrongFramingEndsTheConnection) {
  const ordered_json table = ReadTable("framing.json");
  EXPECT_GT(table.size(), 50u);
  for (const ordered_json& row : table) {
    SCOPED_TRACE(row["name"].get<std::string>());
    RawClient client(served_.port());
    client.Send(ToLatin1(Joined(row["bytes"])));
    if (row.contains("half_close")) client.HalfClose();
    const RawResponse response = client.ReadResponse();
    if (row["status"] == 200) {
      EXPECT_EQ(response.status, 200) << response.body;
    } else {
      ExpectError(response, row, Joined(row["bytes"]));
    }
    if (row.value("open", false)) continue;
    EXPECT_TRUE(client.ReadEnd());
    EXPECT_EQ(client.pending(), "") << "a second answer";
  }
  EXPECT_EQ(served_.engine().submitted(), 0);
  RawClient client(served_.port());
  client.Send(PostRequest("/v1/completions", R"({"prompt":"still here"})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace refrain::server::openai
