// Says what grammars of JSON Schemas take: for tests in other languages, which have other
// validators. tests/integration/python/test_json_schema_grammar.py runs it.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/grammar/grammar.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_text.h"
#include "tests/engine/grammar/schema_grammar.h"

namespace refrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHelp[] =
    R"(grammar_samples < QUESTIONS    random texts of the grammars of JSON Schemas

A question is a line of JSON: {"schema": "TEXT", "samples": COUNT, "texts": ["TEXT", ...]}, of which
the last two may be left out. Its answer is a line {"refused": "WHY"}, or {"states": COUNT,
"samples": ["TEXT", ...], "accepted": [BOOLEAN, ...]}, of random texts of the schema's grammar and of
the texts of the question.

Exit status: 0, or 2 at a line that is no question.
)";

constexpr size_t kUsualBytes = 200;

Json Answer(const Json& question, uint32_t seed) {
  const absl::StatusOr<engine::Grammar> grammar =
      testing::MakeSchemaGrammar(question.at("schema").get<std::string>());
  if (!grammar.ok()) return {{"refused", std::string(grammar.status().message())}};
  Json answer = {
      {"states", grammar->num_states()}, {"samples", Json::array()}, {"accepted", Json::array()}};
  testing::RandomTexts texts(&*grammar, seed);
  for (int i = question.value("samples", 0); i > 0; --i) {
    answer["samples"].push_back(texts.Next(kUsualBytes));
  }
  for (const Json& text : question.value("texts", Json::array())) {
    answer["accepted"].push_back(testing::Accepts(*grammar, text.get<std::string>()));
  }
  return answer;
}

int Run() {
  std::string line;
  for (uint32_t number = 1; std::getline(std::cin, line); ++number) {
    const Json question = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_one =
        question.is_object() && question.contains("schema") && question["schema"].is_string();
    if (!is_one) {
      std::fprintf(stderr, "grammar_samples: line %u is no question\n", number);
      return 2;
    }
    std::cout << Answer(question, number).dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace refrain

int main(int argc, char** argv) {
  if (argc > 1) {
    std::fputs(refrain::kHelp, argv[1] == std::string("--help") ? stdout : stderr);
    return argv[1] == std::string("--help") ? 0 : 2;
  }
  return refrain::Run();
}
