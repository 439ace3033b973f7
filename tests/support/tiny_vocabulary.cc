#include "tests/support/tiny_vocabulary.h"

#include <cassert>
#include <string_view>

#include "nlohmann/json.hpp"

namespace refrain::testing {
namespace {

std::string Utf8Below0x800(int code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// GPT-2's printable stand-in of a byte: itself where printable, else the next code point from 256.
std::vector<std::string> ByteSpellings() {
  std::vector<std::string> spellings;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    spellings.push_back(Utf8Below0x800(printable ? byte : next++));
  }
  return spellings;
}

}  // namespace

TinyVocabulary MakeTinyVocabulary(int size) {
  assert(size >= kTinyControlTokens + 256 && size <= 800);
  TinyVocabulary vocabulary;
  vocabulary.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const std::vector<std::string> bytes = ByteSpellings();
  vocabulary.tokens.insert(vocabulary.tokens.end(), bytes.begin(), bytes.end());
  // A space and a letter first, then pairs of letters.
  const std::string letters = "etaoinshrdlucmfwypvbgkjqxz";
  for (size_t i = 0; i <= letters.size(); ++i) {
    for (const char second : letters) {
      if (static_cast<int>(vocabulary.tokens.size()) == size) return vocabulary;
      const std::string left = i == 0 ? bytes[' '] : std::string(1, letters[i - 1]);
      vocabulary.tokens.push_back(left + second);
      vocabulary.merges.push_back(left + " " + second);
    }
  }
  return vocabulary;
}

std::string TinyTokenizerJson(const TinyVocabulary& vocabulary) {
  using Json = nlohmann::json;
  Json added = Json::array();
  Json ids = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (id < kTinyControlTokens) {
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id]},
                       {"special", true},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
    }
    ids[vocabulary.tokens[id]] = id;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", ids},
                            {"merges", vocabulary.merges}}}};
  return tokenizer.dump();
}

}  // namespace refrain::testing
