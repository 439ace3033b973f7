// Says what grammars of JSON Schemas and in EBNF take: for tests in other languages, which have
// other validators. test_json_schema_grammar.py and test_ebnf_grammar.py of
// tests/integration/python run it.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/grammar/grammar.h"
#include "tests/engine/grammar/ebnf_grammar.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_text.h"
#include "tests/engine/grammar/schema_grammar.h"

namespace refrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHelp[] =
    R"(grammar_samples < QUESTIONS    random texts of grammars

A question is a line of JSON: {"schema": "TEXT", "samples": COUNT, "texts": ["TEXT", ...]}, of which
the last two may be left out; a JSON Schema's text, or "grammar": "TEXT" in its place, in EBNF. Its
answer is a line {"refused": "WHY"}, or {"states": COUNT, "samples": ["TEXT", ...], "accepted":
[BOOLEAN, ...]}, of random texts of the grammar and of the texts of the question.

Exit status: 0, or 2 at a line that is no question.
)";

constexpr size_t kUsualBytes = 200;

Json Answer(const Json& question, uint32_t seed) {
  const absl::StatusOr<engine::Grammar> grammar =
      question.contains("schema")
          ? testing::MakeSchemaGrammar(question["schema"].get<std::string>())
          : testing::MakeEbnfGrammar(question.at("grammar").get<std::string>());
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
    const auto has_text = [&question](const char* name) {
      return question.contains(name) && question[name].is_string();
    };
    const bool is_one = question.is_object() && has_text("schema") != has_text("grammar");
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
