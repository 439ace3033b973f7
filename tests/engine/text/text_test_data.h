#ifndef REFRAIN_TESTS_ENGINE_TEXT_TEXT_TEST_DATA_H_
#define REFRAIN_TESTS_ENGINE_TEXT_TEXT_TEST_DATA_H_

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// The bytes of tests/data/`path`. Fails the test when there is no such file.
std::string ReadTestData(const std::string& path);

nlohmann::ordered_json ReadTestJson(const std::string& path);

// SmolLM2-135M-Instruct, from tests/data/smollm2-tokenizer.
TokenizerSpec SmolLm2Spec();
std::unique_ptr<Tokenizer> SmolLm2Tokenizer();

// What a GGUF file of this SentencePiece model would hold: pieces, scores and types.
TokenizerSpec SpecOfSentencePieceModel(const std::string& model_bytes);

// `part` again and again, until there are at least so many bytes.
std::string Repeat(const std::string& part, size_t bytes);

std::vector<int> EncodeOrFail(const Tokenizer& tokenizer, const std::string& text,
                              const EncodeOptions& options);

std::vector<int> IdsOf(const nlohmann::ordered_json& ids);

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_TEXT_TEXT_TEST_DATA_H_
