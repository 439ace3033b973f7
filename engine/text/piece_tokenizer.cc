#include "engine/text/piece_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/pair_merger.h"
#include "engine/text/space_mark.h"
#include "engine/text/spelling_index.h"
#include "engine/text/utf8.h"
#include "engine/text/vocabulary_tokenizer.h"
#include "engine/text/whole_word_memo.h"

namespace refrain::engine {
namespace {

constexpr size_t kMaxPieceBytes = 4096;
// Of pieces that are merged by score: each of their cuts is looked up. The longest in use are runs
// of 31 spaces, 93 bytes.
constexpr size_t kMaxMergedBytes = 256;
// Of all of them together. The largest vocabularies in use have 2 MB.
constexpr size_t kMaxAllMergedBytes = 16'000'000;

struct SpacePrefix {
  bool at_text_start;
  bool after_special_tokens;
  bool unless_present;
};

// A symbol before merging: a token id, or a character that is no piece as -1 - code point.
int32_t SymbolOfUnknown(uint32_t code_point) { return -1 - static_cast<int32_t>(code_point); }
uint32_t CodePointOfUnknown(int32_t symbol) { return static_cast<uint32_t>(-1 - symbol); }

class PieceTokenizer : public VocabularyTokenizer {
 public:
  struct Parts {
    Vocabulary vocabulary;
    PairMerger merger;
    std::array<int32_t, 256> byte_ids;  // -1: no byte token
    int32_t unknown_id;                 // -1: what is unknown disappears
    bool fuses_unknown;                 // one unknown_id for a run of unknown characters
    SpacePrefix space_prefix;
    bool words_end_before_space;  // no piece has a space behind another character
  };

  explicit PieceTokenizer(Parts parts)
      : VocabularyTokenizer(std::move(parts.vocabulary)),
        merger_(std::move(parts.merger)),
        byte_ids_(parts.byte_ids),
        unknown_id_(parts.unknown_id),
        fuses_unknown_(parts.fuses_unknown),
        space_prefix_(parts.space_prefix),
        words_end_before_space_(parts.words_end_before_space),
        whole_words_(tokens().size()) {
    for (int byte = 0; byte < 128; ++byte) {
      const char c = static_cast<char>(byte);
      ascii_ids_[byte] = tokens().FindText(std::string_view(&c, 1));
    }
  }

  size_t FewestTokens(std::string_view utf8) const override {
    // Without them one token stands for a run of unknown characters, or none does.
    const bool have_bytes =
        std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
    if (!have_bytes) return 0;
    std::array<bool, 256> all;
    all.fill(true);
    // U+2581 counts as the one byte of a space.
    return CountBytesOfText(utf8, all) / kSpaceMark.size() / tokens().most_text_bytes();
  }

 protected:
  absl::Status EncodeStretch(std::string_view text, StretchPlace place, EncodePace* pace,
                             std::vector<kvcache::TokenId>* out) const override {
    std::string spaced;
    if (WantsPrefix(text, place)) spaced.push_back(' ');
    if (!spaced.empty() || text.find(kSpaceMark) != std::string_view::npos) {
      // Pieces cannot tell U+2581 in a text from a space.
      spaced += SpacesForMarks(text);
      text = spaced;
    }
    Stretch stretch{.symbols = {}, .merging = PairMerger::Scratch(pace), .out = out};
    while (!text.empty()) {
      const size_t size_bytes = words_end_before_space_ ? FirstWordBytes(text) : text.size();
      EncodeWord(text.substr(0, size_bytes), &stretch);
      text.remove_prefix(size_bytes);
      if (pace == nullptr) continue;
      pace->Did(size_bytes);
      if (pace->stopped()) break;
    }
    return absl::OkStatus();
  }

 private:
  // One stretch being encoded.
  struct Stretch {
    std::vector<int32_t> symbols;  // of the word at hand
    PairMerger::Scratch merging;
    std::vector<kvcache::TokenId>* out;
    std::optional<size_t> unknown_end = {};  // of the last unknown token of the stretch, in `out`
  };

  bool WantsPrefix(std::string_view text, StretchPlace place) const {
    if (place == StretchPlace::kAfterText) return false;
    const bool wanted = place == StretchPlace::kTextStart ? space_prefix_.at_text_start
                                                          : space_prefix_.after_special_tokens;
    const bool present = text.starts_with(' ') || text.starts_with(kSpaceMark);
    return wanted && !(space_prefix_.unless_present && present);
  }

  // Leading spaces and what follows up to the next space: no merge crosses the end.
  static size_t FirstWordBytes(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    return std::min(text.find(' ', begin), text.size());
  }

  void EncodeWord(std::string_view word, Stretch* stretch) const {
    const int32_t whole = tokens().FindText(word);
    if (whole >= 0 && whole_words_.IsKnownWhole(whole)) {
      stretch->out->push_back(kvcache::TokenId{whole});
      return;
    }
    std::vector<int32_t>& symbols = stretch->symbols;
    symbols.clear();
    for (std::string_view rest = word; !rest.empty();) {
      const Utf8Unit unit = FirstUtf8Unit(rest);
      const int32_t id = unit.size_bytes == 1 ? ascii_ids_[static_cast<uint8_t>(rest[0])]
                                              : tokens().FindText(rest.substr(0, unit.size_bytes));
      symbols.push_back(id >= 0 ? id : SymbolOfUnknown(unit.code_point));
      rest.remove_prefix(unit.size_bytes);
    }
    merger_.Merge(&symbols, &stretch->merging);
    if (whole >= 0 && symbols.size() == 1 && symbols.front() == whole) {
      whole_words_.Remember(whole);
    }
    for (const int32_t symbol : symbols) {
      if (symbol >= 0) {
        stretch->out->push_back(kvcache::TokenId{symbol});
      } else {
        EncodeUnknown(CodePointOfUnknown(symbol), stretch);
      }
    }
  }

  void EncodeUnknown(uint32_t code_point, Stretch* stretch) const {
    std::vector<kvcache::TokenId>* const out = stretch->out;
    std::string bytes;
    AppendUtf8(code_point, &bytes);
    const bool have_bytes = std::all_of(bytes.begin(), bytes.end(), [this](char c) {
      return byte_ids_[static_cast<uint8_t>(c)] >= 0;
    });
    if (have_bytes) {
      for (const char c : bytes) {
        out->push_back(kvcache::TokenId{byte_ids_[static_cast<uint8_t>(c)]});
      }
    } else if (unknown_id_ >= 0 && !(fuses_unknown_ && stretch->unknown_end == out->size())) {
      out->push_back(kvcache::TokenId{unknown_id_});
      stretch->unknown_end = out->size();
    }
  }

  PairMerger merger_;
  std::array<int32_t, 256> byte_ids_;
  std::array<int32_t, 128> ascii_ids_;
  int32_t unknown_id_;
  bool fuses_unknown_;
  SpacePrefix space_prefix_;
  bool words_end_before_space_;
  mutable WholeWordMemo whole_words_;
};

absl::Status FillVocabulary(const TokenizerSpec& spec, PieceTokenizer::Parts* parts) {
  parts->byte_ids.fill(-1);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& spelling = spec.tokens[id];
    TokenType type = TypeOf(spec, id);
    // User-defined tokens are found in the text as it comes. One that has a mark of a space is
    // found by merging, as llama.cpp does.
    if (type == TokenType::kUserDefined && spec.merges.empty() &&
        spelling.find(kSpaceMark) != std::string::npos) {
      type = TokenType::kNormal;
    }
    if (spelling.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, " has ", spelling.size(),
                                                     " bytes, more than the limit of ",
                                                     kMaxPieceBytes));
    }
    if (type == TokenType::kByte) {
      const absl::StatusOr<uint8_t> byte = ParseByteToken(id, spelling);
      if (!byte.ok()) return byte.status();
      parts->byte_ids[*byte] = static_cast<int32_t>(id);
      const char c = static_cast<char>(*byte);
      parts->vocabulary.tokens.Add(std::string_view(&c, 1), type);
    } else if (type == TokenType::kControl) {
      parts->vocabulary.tokens.Add(spelling, type);
    } else {
      const std::string bytes = SpacesForMarks(spelling);
      if (bytes.find(' ', std::min(bytes.find_first_not_of(' '), bytes.size())) !=
          std::string::npos) {
        parts->words_end_before_space = false;
      }
      parts->vocabulary.tokens.Add(bytes, type);
    }
  }
  parts->vocabulary.tokens.IndexText();
  return absl::OkStatus();
}

// The pieces that a text may be merged to are of bounded size, each and together: work and memory
// for the merges go by their bytes.
absl::Status CheckMergedBytes(const TokenTable& tokens) {
  size_t all_bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    const std::string_view bytes = tokens.bytes(kvcache::TokenId{id});
    if (tokens.FindText(bytes) != id) continue;
    if (bytes.size() > kMaxMergedBytes) {
      return absl::InvalidArgumentError(absl::StrCat("token ", i, " has ", bytes.size(),
                                                     " bytes; pieces with scores have at most ",
                                                     kMaxMergedBytes));
    }
    all_bytes += bytes.size();
  }
  if (all_bytes > kMaxAllMergedBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the pieces with scores have ", all_bytes,
                                                   " bytes; together they have at most ",
                                                   kMaxAllMergedBytes));
  }
  return absl::OkStatus();
}

// Every split of a piece into two pieces is a merge, ranked by the score of the whole.
absl::StatusOr<PairMerger> BuildMergerFromScores(const TokenizerSpec& spec,
                                                 const TokenTable& tokens) {
  if (spec.scores.empty()) {
    return absl::InvalidArgumentError("a SentencePiece vocabulary needs scores or merges");
  }
  std::vector<float> distinct = spec.scores;
  for (size_t id = 0; id < distinct.size(); ++id) {
    if (std::isnan(distinct[id])) {
      return absl::InvalidArgumentError(
          absl::StrCat("the score of token ", id, " is not a number"));
    }
  }
  if (absl::Status status = CheckMergedBytes(tokens); !status.ok()) return status;
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  PairMerger merger(2 * spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    const std::string_view bytes = tokens.bytes(kvcache::TokenId{id});
    if (tokens.FindText(bytes) != id) continue;
    const auto place =
        std::lower_bound(distinct.begin(), distinct.end(), spec.scores[i], std::greater<>());
    const int32_t rank = static_cast<int32_t>(place - distinct.begin());
    for (size_t cut = FirstUtf8Unit(bytes).size_bytes; cut < bytes.size();
         cut += FirstUtf8Unit(bytes.substr(cut)).size_bytes) {
      const int32_t left = tokens.FindText(bytes.substr(0, cut));
      const int32_t right = left < 0 ? -1 : tokens.FindText(bytes.substr(cut));
      if (right >= 0) merger.Add(left, right, rank, id);
    }
  }
  return merger;
}

}  // namespace

absl::StatusOr<uint8_t> ParseByteToken(size_t id, std::string_view spelling) {
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const bool is_framed = spelling.size() == 6 && spelling.starts_with("<0x") && spelling[5] == '>';
  if (!is_framed || value(spelling[3]) < 0 || value(spelling[4]) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("token ", id, " is a byte token but not spelled <0xHH>"));
  }
  return static_cast<uint8_t>(16 * value(spelling[3]) + value(spelling[4]));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> CreatePieceTokenizer(const TokenizerSpec& spec) {
  absl::StatusOr<SpellingIndex> spellings = SpellingIndex::Create(spec);
  if (!spellings.ok()) return spellings.status();
  PieceTokenizer::Parts parts{.vocabulary = {},
                              .merger = PairMerger(0),
                              .byte_ids = {},
                              .unknown_id = -1,
                              .fuses_unknown = spec.fuses_unknown,
                              .space_prefix = {},
                              .words_end_before_space = true};
  absl::Status status = FillVocabulary(spec, &parts);
  if (!status.ok()) return status;
  absl::StatusOr<PairMerger> merger = spec.merges.empty()
                                          ? BuildMergerFromScores(spec, parts.vocabulary.tokens)
                                          : spellings->BuildMerger(spec);
  if (!merger.ok()) return merger.status();
  parts.merger = *std::move(merger);
  if (spec.unk.has_value()) {
    if (!parts.vocabulary.tokens.Contains(*spec.unk)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unk token id ", static_cast<int32_t>(*spec.unk),
                       " is outside of the vocabulary of ", spec.tokens.size(), " tokens"));
    }
    parts.unknown_id = static_cast<int32_t>(*spec.unk);
  }
  const bool prefix = spec.add_space_prefix.value_or(true);
  parts.space_prefix = {.at_text_start = prefix,
                        .after_special_tokens = prefix && !spec.space_prefix_at_start_only,
                        .unless_present = spec.space_prefix_unless_present};
  parts.vocabulary.adds_bos = spec.add_bos.value_or(true);
  parts.vocabulary.adds_space_prefix = prefix;
  parts.vocabulary.adds_space_after_specials = parts.space_prefix.after_special_tokens;
  status = ApplySpecialTokens(spec, &parts.vocabulary);
  if (!status.ok()) return status;
  return std::make_unique<PieceTokenizer>(std::move(parts));
}

}  // namespace refrain::engine
