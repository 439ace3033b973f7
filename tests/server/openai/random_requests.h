#ifndef REFRAIN_TESTS_SERVER_OPENAI_RANDOM_REQUESTS_H_
#define REFRAIN_TESTS_SERVER_OPENAI_RANDOM_REQUESTS_H_

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/http/raw_client.h"
#include "tests/server/openai/request_fields.h"
#include "tests/support/mutate.h"

namespace refrain::testing {

// Of all requests, and one that is unknown.
inline std::vector<std::string> AllFields(uint16_t port) {
  std::set<std::string> names = {"whatever"};
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize"}) {
    const nlohmann::ordered_json fields = RequestFields(port, path);
    for (const auto& [name, schema] : fields.items()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

// Makes requests from their schemas, most of them wrong in some way. One thread.
class RandomRequests {
  using Json = nlohmann::ordered_json;

 public:
  RandomRequests(const std::vector<std::string>& fields, uint32_t seed)
      : fields_(fields), random_(seed) {}

  size_t Below(size_t limit) { return random_() % limit; }
  bool Chance(int percent) { return static_cast<int>(Below(100)) < percent; }

  // A whole request; `broken`: its framing may be wrong, so no answer may be waited for.
  std::string Next(bool* broken) {
    *broken = false;
    const char* const kPaths[] = {"/v1/completions", "/v1/chat/completions", "/v1/responses",
                                  "/tokenize", "/detokenize"};
    if (Chance(4)) {
      const char* const kGets[] = {"/v1/models", "/v1/models/x",    "/health", "/ready",
                                   "/nothing",   "/v1/completions", "/version"};
      return GetRequest(kGets[Below(std::size(kGets))]);
    }
    const size_t kind = Chance(80) ? Below(3) : Below(std::size(kPaths));
    std::string body = Body(kind).dump(-1, ' ', Chance(20));
    if (Chance(25)) Mutate(&random_, &body);
    std::string request = PostRequest(kPaths[kind], body);
    if (Chance(8)) {
      Mutate(&random_, &request);
      *broken = true;
    }
    return request;
  }

 private:
  Json Body(size_t kind) {
    Json body = Json::object();
    if (kind == 1) {
      body["messages"] = {{{"role", "user"}, {"content", Text()}}};
    } else if (kind == 2) {
      body["input"] = Chance(60) ? Json(Text()) : Items();
    } else if (kind == 4) {
      body["tokens"] = {1, 2, 3};
    } else {
      body["prompt"] = Text();
    }
    if (Chance(70)) body[kind == 2 ? "max_output_tokens" : "max_tokens"] = Below(20);
    if (Chance(40)) body["stream"] = Chance(70);
    if (kind < 2 && Chance(15)) AskForMore(&body);
    const size_t wrong = Chance(60) ? Below(3) : Below(12);
    for (size_t i = 0; i < wrong; ++i) body[fields_[Below(fields_.size())]] = Value(0);
    if (Below(200) == 0) body[fields_[Below(fields_.size())]] = Flood();
    return body;
  }

  // Items of /v1/responses, right and wrong, in any order.
  Json Items() {
    const char* const kTypes[] = {"message", "function_call", "function_call_output", "reasoning",
                                  "item_reference"};
    const char* const kRoles[] = {"user", "assistant", "system", "developer", "tool"};
    Json items = Json::array();
    for (size_t i = Below(6); i > 0; --i) {
      Json item = {{"type", kTypes[Below(Chance(90) ? 4 : 5)]},
                   {"role", kRoles[Below(Chance(90) ? 4 : 5)]},
                   {"content", Text()},
                   {"call_id", Text()},
                   {"name", Text()},
                   {"output", Text()}};
      if (item["type"] == "reasoning") item["content"] = {{{"text", Text()}}};
      if (Chance(20)) item[Chance(50) ? "content" : "arguments"] = Value(0);
      items.push_back(std::move(item));
    }
    return items;
  }

  // Sequences that share a prompt, which random values seldom ask for.
  void AskForMore(Json* body) {
    (*body)["n"] = 1 + Below(4);
    switch (Below(3)) {
      case 0:
        (*body)["best_of"] = 4;
        break;
      case 1:
        (*body)["use_beam_search"] = true;
        break;
      default:
        break;
    }
  }

  // Far more of something small than any field takes.
  Json Flood() {
    const Json kSmall[] = {0,
                           5,
                           "",
                           "a",
                           nullptr,
                           Json::object(),
                           Json::array({1}),
                           {{"role", "user"}, {"content", "x"}}};
    const Json& one = kSmall[Below(std::size(kSmall))];
    const Json list = std::vector<Json>(2100 + Below(20'000), one);
    return Chance(70) ? list : Json{{"x", list}};
  }

  std::string Text() {
    const char* const kTexts[] = {"",
                                  "a",
                                  "hello there",
                                  "\xc3\xa9\xf0\x9f\x98\x80",
                                  "auto",
                                  "none",
                                  "24h",
                                  "text",
                                  "user",
                                  "\\\"\n\t",
                                  "<tool_call>{\"name\":\"f\"}</tool_call>",
                                  "<tool_call>{"};
    if (Chance(5)) return std::string(Below(400), 'x');
    return kTexts[Below(std::size(kTexts))];
  }

  Json Value(int depth) {
    switch (Below(depth > 3 ? 8 : 12)) {
      case 0:
        return nullptr;
      case 1:
        return Chance(50);
      case 2:
      case 3:
        return static_cast<int64_t>(Below(12)) - 2;
      case 4:
        return static_cast<double>(Below(400)) / 100 - 2;
      case 5:
        return Chance(50) ? Json(random_()) : Json(-1e300);
      case 6:
      case 7:
        return Text();
      case 8:
      case 9: {
        Json list = Json::array();
        for (size_t i = Below(4); i > 0; --i) list.push_back(Value(depth + 1));
        return list;
      }
      default: {
        Json object = Json::object();
        const char* const kKeys[] = {"type",
                                     "function",
                                     "name",
                                     "role",
                                     "content",
                                     "text",
                                     "5",
                                     "include_usage",
                                     "continuous_usage_stats",
                                     "tool_calls",
                                     "x"};
        for (size_t i = Below(4); i > 0; --i) {
          object[kKeys[Below(std::size(kKeys))]] = Value(depth + 1);
        }
        return object;
      }
    }
  }

  const std::vector<std::string> fields_;
  std::mt19937 random_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_OPENAI_RANDOM_REQUESTS_H_
