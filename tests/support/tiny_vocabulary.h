#ifndef REFRAIN_TESTS_SUPPORT_TINY_VOCABULARY_H_
#define REFRAIN_TESTS_SUPPORT_TINY_VOCABULARY_H_

#include <string>
#include <vector>

namespace refrain::testing {

// A byte-level BPE vocabulary in the spelling of GPT-2: 3 control tokens, 256 bytes, merged pairs.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;  // "left right"
};

inline constexpr int kTinyControlTokens = 3;
inline constexpr int kTinyEndOfText = 0;
inline constexpr int kTinyImEnd = 2;
inline constexpr char kTinyChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

TinyVocabulary MakeTinyVocabulary(int size);

// As Hugging Face `tokenizers` writes it.
std::string TinyTokenizerJson(const TinyVocabulary& vocabulary);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_TINY_VOCABULARY_H_
