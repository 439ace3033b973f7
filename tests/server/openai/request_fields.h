#ifndef REFRAIN_TESTS_SERVER_OPENAI_REQUEST_FIELDS_H_
#define REFRAIN_TESTS_SERVER_OPENAI_REQUEST_FIELDS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/server/http/raw_client.h"

namespace refrain::testing {

// Name and JSON schema of each field of what is posted to `path`, as the server's own parser tells
// them in /openapi.json: {} is a field that may be anything, most of these without effect.
inline nlohmann::ordered_json RequestFields(uint16_t port, std::string_view path) {
  RawClient client(port);
  client.Send(GetRequest("/openapi.json"));
  const auto api = nlohmann::ordered_json::parse(client.ReadResponse().body);
  const auto& body = api["paths"][std::string(path)]["post"]["requestBody"];
  const auto link = body["content"]["application/json"]["schema"]["$ref"].get<std::string>();
  return api["components"]["schemas"][link.substr(link.rfind('/') + 1)]["properties"];
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_OPENAI_REQUEST_FIELDS_H_
