#include "engine/text/pre_tokenizer.h"

#include <array>
#include <cstdint>
#include <utility>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// White space as the Unicode property says. Not `\s`: PCRE2 counts U+180E among it.
#define REFRAIN_WS \
  "\\t-\\r "       \
  "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

constexpr char kGpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" REFRAIN_WS
                         "\\p{L}\\p{N}]+|[" REFRAIN_WS "]+(?![^" REFRAIN_WS "])|[" REFRAIN_WS "]+";

// Published as two steps: every \p{N} is cut out, then the stretches between go through the GPT-2
// pattern. In one step: a digit is a piece, and white space before a digit is at the end of its
// stretch, so it stays together as before the end of the text.
constexpr char kSmolLm[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^" REFRAIN_WS "\\p{L}\\p{N}]+|[" REFRAIN_WS
    "]+(?![^" REFRAIN_WS "\\p{N}])|[" REFRAIN_WS "]+";

#define REFRAIN_LLAMA3(digits)                                                           \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits " ?[^" REFRAIN_WS \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" REFRAIN_WS "]*[\\r\\n]+|[" REFRAIN_WS "]+(?![^" REFRAIN_WS \
  "])|[" REFRAIN_WS "]+"

constexpr char kLlama3[] = REFRAIN_LLAMA3("\\p{N}{1,3}|");
constexpr char kQwen2[] = REFRAIN_LLAMA3("\\p{N}|");

// Mistral's, from its tokenizer.json: no capital follows a small letter in a piece.
#define REFRAIN_TEKKEN_WORDS                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|" \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
constexpr char kTekken[] =
    REFRAIN_TEKKEN_WORDS "\\p{N}| ?[^" REFRAIN_WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" REFRAIN_WS
                         "]*[\\r\\n]+|[" REFRAIN_WS "]+(?![^" REFRAIN_WS "])|[" REFRAIN_WS "]+";

#undef REFRAIN_LLAMA3
#undef REFRAIN_WS

struct NamedPattern {
  std::string_view name;
  const char* pattern;
};

constexpr std::array<NamedPattern, 9> kNamedPatterns = {{
    {"gpt2", kGpt2},
    {"gpt-2", kGpt2},
    {"smollm", kSmolLm},
    {"llama-bpe", kLlama3},
    {"llama3", kLlama3},
    {"llama-v3", kLlama3},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"tekken", kTekken},
}};

constexpr char kPublishedLlama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr char kPublishedQwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr char kPublishedTekken[] =
    REFRAIN_TEKKEN_WORDS "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr char kPublishedGpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#undef REFRAIN_TEKKEN_WORDS

// Bounds what a pattern of a hostile tokenizer.json may cost per match.
constexpr uint32_t kMatchLimit = 10'000'000;

std::string ErrorText(int code) {
  std::array<unsigned char, 200> buffer = {};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <auto Free>
struct Pcre2Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Pcre2Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Pcre2Deleter<pcre2_match_context_free>>;
using Code = std::unique_ptr<pcre2_code, Pcre2Deleter<pcre2_code_free>>;

}  // namespace

// One compiled pattern. Matching keeps its state in a MatchData of the caller.
class PreTokenizer::Pattern {
 public:
  static absl::StatusOr<std::unique_ptr<Pattern>> Compile(std::string_view source) {
    int error_code = 0;
    PCRE2_SIZE error_offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error_code,
                            &error_offset, nullptr));
    if (code == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("pre-tokenizer pattern '", std::string(source),
                                                     "' at byte ", error_offset, ": ",
                                                     ErrorText(error_code)));
    }
    // Where there is no just-in-time compiler matching is slower, not different.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    MatchContext context(pcre2_match_context_create(nullptr));
    if (context == nullptr) return absl::ResourceExhaustedError("no memory for a pattern");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    return std::unique_ptr<Pattern>(new Pattern(std::move(code), std::move(context)));
  }

  MatchData NewMatchData() const {
    return MatchData(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  // The first match at or after `from_byte`: {begin, end}, equal when there is none.
  absl::StatusOr<std::pair<size_t, size_t>> Find(std::string_view text, size_t from_byte,
                                                 pcre2_match_data* data) const {
    const int rc =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from_byte,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, context_.get());
    if (rc == PCRE2_ERROR_NOMATCH) return std::pair(text.size(), text.size());
    if (rc < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("pre-tokenizer pattern failed at byte ",
                                                       from_byte, " of ", text.size(), ": ",
                                                       ErrorText(rc)));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
    // \K in a lookahead can put the end before the start: such a match cuts nothing.
    if (offsets[1] <= offsets[0] || offsets[0] < from_byte) {
      return absl::InvalidArgumentError("pre-tokenizer pattern matches backwards");
    }
    return std::pair(size_t{offsets[0]}, size_t{offsets[1]});
  }

 private:
  Pattern(Code code, MatchContext context) : code_(std::move(code)), context_(std::move(context)) {}

  Code code_;
  MatchContext context_;
};

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Pattern>> patterns)
    : patterns_(std::move(patterns)) {}

PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::CreateByName(std::string_view name) {
  for (const NamedPattern& named : kNamedPatterns) {
    if (named.name == name) return CreateFromPatterns(std::array{std::string(named.pattern)});
  }
  std::string known;
  for (const NamedPattern& named : kNamedPatterns) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(named.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown pre-tokenizer '", std::string(name), "'; known are: ", known));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::CreateFromPatterns(
    std::span<const std::string> sources) {
  if (sources.empty()) return absl::InvalidArgumentError("a pre-tokenizer without a pattern");
  std::vector<std::unique_ptr<Pattern>> patterns;
  for (const std::string& source : sources) {
    absl::StatusOr<std::unique_ptr<Pattern>> pattern = Pattern::Compile(source);
    if (!pattern.ok()) return pattern.status();
    patterns.push_back(*std::move(pattern));
  }
  return std::unique_ptr<PreTokenizer>(new PreTokenizer(std::move(patterns)));
}

bool PreTokenizer::IgnoresMergesByName(std::string_view name) {
  for (const NamedPattern& named : kNamedPatterns) {
    if (named.name == name) return named.pattern == kLlama3 || named.pattern == kTekken;
  }
  return false;
}

std::string_view PreTokenizer::NameOfPublishedPattern(std::string_view pattern) {
  if (pattern == kPublishedLlama3) return "llama-bpe";
  if (pattern == kPublishedQwen2) return "qwen2";
  if (pattern == kPublishedTekken) return "tekken";
  if (pattern == kPublishedGpt2) return "gpt2";
  return "";
}

absl::Status PreTokenizer::Split(std::string_view text,
                                 absl::FunctionRef<void(std::string_view piece)> visit) const {
  return SplitFrom(0, text, visit);
}

absl::Status PreTokenizer::SplitFrom(size_t stage, std::string_view text,
                                     absl::FunctionRef<void(std::string_view piece)> visit) const {
  if (text.empty()) return absl::OkStatus();
  if (stage == patterns_.size()) {
    visit(text);
    return absl::OkStatus();
  }
  const Pattern& pattern = *patterns_[stage];
  const MatchData data = pattern.NewMatchData();
  if (data == nullptr) return absl::ResourceExhaustedError("no memory for a pattern match");
  const bool is_last = stage + 1 == patterns_.size();
  const auto pass_on = [&](std::string_view piece) -> absl::Status {
    if (!is_last) return SplitFrom(stage + 1, piece, visit);
    if (!piece.empty()) visit(piece);
    return absl::OkStatus();
  };
  size_t at = 0;
  while (at < text.size()) {
    const auto match = pattern.Find(text, at, data.get());
    if (!match.ok()) return match.status();
    if (match->first > at) {
      absl::Status status = pass_on(text.substr(at, match->first - at));
      if (!status.ok()) return status;
    }
    if (match->second > match->first) {
      absl::Status status = pass_on(text.substr(match->first, match->second - match->first));
      if (!status.ok()) return status;
    }
    at = match->second;
  }
  return absl::OkStatus();
}

}  // namespace refrain::engine
