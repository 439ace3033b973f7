#include "engine/bad_word_encoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::engine {

absl::StatusOr<BadWordEncoder::Sequences> BadWordEncoder::Encode(const Words& words) const {
  if (words.empty()) return Sequences();
  if (std::optional<Sequences> kept = kept_.FindOrNone({words})) return *std::move(kept);
  absl::StatusOr<Sequences> sequences = EncodeAnew(words);
  if (sequences.ok()) kept_.Keep({words}, *sequences);
  return sequences;
}

// A word is one text where it begins the output or follows anything but a space, another one
// behind a space; both have tokens of their own.
absl::StatusOr<BadWordEncoder::Sequences> BadWordEncoder::EncodeAnew(const Words& words) const {
  std::vector<std::vector<kvcache::TokenId>> banned;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.size(), word.find_first_not_of(' ')));
    for (const std::string& text : {bare, absl::StrCat(" ", bare)}) {
      EncodeOptions options{.parse_special = true, .add_bos = false, .continues = true};
      absl::StatusOr<std::vector<kvcache::TokenId>> ids = tokenizer_->Encode(text, options);
      if (absl::IsFailedPrecondition(ids.status())) {
        options.continues = false;
        ids = tokenizer_->Encode(text, options);
      }
      if (!ids.ok()) {
        return absl::Status(ids.status().code(),
                            absl::StrCat("bad_words: ", std::string(ids.status().message())));
      }
      const bool is_new = banned.empty() || banned.back() != *ids;
      if (ids->empty() || !is_new || bare.empty()) continue;
      ids->shrink_to_fit();  // they wait as long as their requests do
      banned.push_back(*std::move(ids));
    }
  }
  return Sequences(std::move(banned));
}

}  // namespace refrain::engine
