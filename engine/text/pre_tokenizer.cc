#include "engine/text/pre_tokenizer.h"

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "absl/strings/str_cat.h"
#include "engine/text/pattern_spelling.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr char kGpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|[\\s]+(?![^\\s])|[\\s]+";

// Published as two steps: every \p{N} is cut out, then the stretches between go through the GPT-2
// pattern. In one step: a digit is a piece, and white space before a digit is at the end of its
// stretch, so it stays together as before the end of the text.
constexpr char kSmolLm[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|[\\s]+(?![^\\s\\p{N}])|[\\s]+";

#define REFRAIN_LLAMA3(digits)                                         \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|[\\s]*[\\r\\n]+|[\\s]+(?![^\\s])|[\\s]+"

constexpr char kLlama3[] = REFRAIN_LLAMA3("\\p{N}{1,3}|");
constexpr char kQwen2[] = REFRAIN_LLAMA3("\\p{N}|");

constexpr char kSeedCoder[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// Sentences and their parts; every \p{N} is cut out of them.
constexpr char kViking[] =
    " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+";

// Mistral's, from its tokenizer.json: no capital follows a small letter in a piece.
#define REFRAIN_TEKKEN_WORDS                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|" \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
constexpr char kTekken[] = REFRAIN_TEKKEN_WORDS
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|[\\s]*[\\r\\n]+|[\\s]+(?![^\\s])|[\\s]+";

// DeepSeek's, from its tokenizer.json files: steps that each cut what the ones before left. The
// LLM's letters are those that have a case; white space at the end (`\\s+$`) is looked for where it
// begins alone, which keeps the time linear.
#define REFRAIN_CJK_AND_HANGUL "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
constexpr char kDeepSeekLlmLetters[] =
    "[\\s]?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}"
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}"
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";
constexpr char kDeepSeekLlmPunctuation[] =
    "[\\s]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
    "\\x{3000}-\\x{3002}]+";
constexpr char kDeepSeekV3Words[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
    "[\\s]*[\\r\\n]+|[\\s]+(?![^\\s])|[\\s]+";

struct NamedPatterns {
  std::string_view name;
  std::array<const char*, 6> patterns;  // in order; null behind the last one
  bool ignores_merges = false;          // a piece that is a token is one
};

constexpr bool kIgnoresMerges = true;
constexpr std::array<NamedPatterns, 26> kNamedPatterns = {{
    {"gpt2", {kGpt2}},
    {"gpt-2", {kGpt2}},
    {"mellum", {kGpt2}},
    {"trillion", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"smollm", {kSmolLm}},
    {"minerva-7b", {kSmolLm}},
    {"llama-bpe", {kLlama3}, kIgnoresMerges},
    {"llama3", {kLlama3}, kIgnoresMerges},
    {"llama-v3", {kLlama3}, kIgnoresMerges},
    {"falcon3", {kLlama3}, kIgnoresMerges},
    {"falcon-h1", {kLlama3}, kIgnoresMerges},
    {"pixtral", {kLlama3}, kIgnoresMerges},
    {"midm-2.0", {kLlama3}, kIgnoresMerges},
    {"lfm2", {kLlama3}, kIgnoresMerges},
    {"smaug-bpe", {kLlama3}},
    {"dbrx", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"megrez", {kQwen2}},
    {"seed-coder", {kSeedCoder}},
    {"viking", {kViking, "\\p{N}"}},
    {"tekken", {kTekken}, kIgnoresMerges},
    {"deepseek-llm",
     {"[\\r\\n]", kDeepSeekLlmLetters, kDeepSeekLlmPunctuation, "(?<![\\s])[\\s]++\\z",
      REFRAIN_CJK_AND_HANGUL, "\\p{N}+"}},
    {"deepseek-coder",
     {"[\\r\\n]", "[\\s]?\\p{L}+", "[\\s]?\\p{P}+", REFRAIN_CJK_AND_HANGUL, "\\p{N}"}},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      kDeepSeekV3Words}},
}};

#undef REFRAIN_CJK_AND_HANGUL
#undef REFRAIN_LLAMA3

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

// Bounds what a pattern of a hostile tokenizer.json may cost per match. Ours are linear, and a
// match may be as long as the text.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr uint32_t kNoMatchLimit = std::numeric_limits<uint32_t>::max();

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
  static absl::StatusOr<std::unique_ptr<Pattern>> Compile(std::string_view source,
                                                          uint32_t match_limit) {
    int error_code = 0;
    PCRE2_SIZE error_offset = 0;
    // Lines have ends of their own for ^ and $ in the library that patterns are written for.
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &error_code, &error_offset, nullptr));
    if (code == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("pre-tokenizer pattern '",
                                                     ShownPattern(source), "' at byte ",
                                                     error_offset, ": ", ErrorText(error_code)));
    }
    // Where there is no just-in-time compiler matching is slower, not different.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    MatchContext context(pcre2_match_context_create(nullptr));
    if (context == nullptr) return absl::ResourceExhaustedError("no memory for a pattern");
    pcre2_set_match_limit(context.get(), match_limit);
    if (match_limit != kNoMatchLimit) pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    return std::unique_ptr<Pattern>(new Pattern(std::move(code), std::move(context)));
  }

  MatchData NewMatchData() const {
    return MatchData(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  // The first match at or after `from_byte`, which may be empty: {begin, end}. Where there is none
  // both are the text's end.
  absl::StatusOr<std::pair<size_t, size_t>> Find(std::string_view text, size_t from_byte,
                                                 pcre2_match_data* data) const {
    int rc = Match(text, from_byte, PCRE2_NO_UTF_CHECK, data);
    // Compiled code has 32 KiB of stack for what it may have to go back to: of some patterns a few
    // thousand characters. The interpreter has the heap.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = Match(text, from_byte, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return std::pair(text.size(), text.size());
    if (rc == PCRE2_ERROR_NOMEMORY) return absl::ResourceExhaustedError(ErrorText(rc));
    if (rc < 0) return CannotMatch(rc);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
    // \K in a lookahead can put the end before the start: such a match cuts nothing.
    if (offsets[1] < offsets[0] || offsets[0] < from_byte) {
      return absl::InvalidArgumentError("the tokenizer's pattern matches backwards");
    }
    return std::pair(size_t{offsets[0]}, size_t{offsets[1]});
  }

 private:
  Pattern(Code code, MatchContext context) : code_(std::move(code)), context_(std::move(context)) {}

  int Match(std::string_view text, size_t from_byte, uint32_t options,
            pcre2_match_data* data) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from_byte, options, data, context_.get());
  }

  // The same text fails whenever it comes again.
  static absl::Status CannotMatch(int rc) {
    if (rc == PCRE2_ERROR_HEAPLIMIT) {
      return absl::InvalidArgumentError(absl::StrCat("the tokenizer's pattern takes more than ",
                                                     kHeapLimitKib >> 10, " MiB of memory"));
    }
    if (rc == PCRE2_ERROR_MATCHLIMIT) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tokenizer's pattern takes more than ", kMatchLimit, " steps"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer's pattern fails (", ErrorText(rc), ")"));
  }

  Code code_;
  MatchContext context_;
};

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Pattern>> patterns)
    : patterns_(std::move(patterns)) {}

PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::CreateByName(std::string_view name) {
  for (const NamedPatterns& named : kNamedPatterns) {
    if (named.name != name) continue;
    std::vector<std::string> sources;
    for (const char* const pattern : named.patterns) {
      if (pattern != nullptr) sources.emplace_back(pattern);
    }
    return Create(sources, kNoMatchLimit);
  }
  std::string known;
  for (const NamedPatterns& named : kNamedPatterns) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(named.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown pre-tokenizer '", std::string(name), "'; known are: ", known));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::CreateFromPatterns(
    std::span<const std::string> patterns) {
  return Create(patterns, kMatchLimit);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(
    std::span<const std::string> sources, uint32_t match_limit) {
  if (sources.empty()) return absl::InvalidArgumentError("a pre-tokenizer without a pattern");
  if (sources.size() > kMaxPatterns) {
    return absl::InvalidArgumentError(absl::StrCat("the pre-tokenizer has ", sources.size(),
                                                   " patterns; at most ", kMaxPatterns,
                                                   " are supported"));
  }
  std::vector<std::unique_ptr<Pattern>> patterns;
  for (const std::string& source : sources) {
    if (source.size() > kMaxPatternBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the pre-tokenizer has a pattern of ",
                                                     source.size(), " bytes; at most ",
                                                     kMaxPatternBytes, " are supported"));
    }
    const absl::StatusOr<std::string> spelled = SpellForPcre2(source);
    if (!spelled.ok()) return spelled.status();
    absl::StatusOr<std::unique_ptr<Pattern>> pattern = Pattern::Compile(*spelled, match_limit);
    if (!pattern.ok()) return pattern.status();
    patterns.push_back(*std::move(pattern));
  }
  return std::unique_ptr<PreTokenizer>(new PreTokenizer(std::move(patterns)));
}

bool PreTokenizer::IgnoresMergesByName(std::string_view name) {
  for (const NamedPatterns& named : kNamedPatterns) {
    if (named.name == name) return named.ignores_merges;
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

// One text being cut.
struct PreTokenizer::Cutting {
  std::vector<MatchData> matches;  // of each stage
  absl::FunctionRef<bool(std::string_view piece)> visit;
  bool ended = false;    // by `visit`
  size_t failed_at = 0;  // a byte of the text, where it failed
};

absl::Status PreTokenizer::Split(std::string_view text,
                                 absl::FunctionRef<bool(std::string_view piece)> visit) const {
  if (text.empty()) return absl::OkStatus();
  Cutting cutting{.matches = {}, .visit = visit};
  for (const std::unique_ptr<Pattern>& pattern : patterns_) {
    cutting.matches.push_back(pattern->NewMatchData());
    if (cutting.matches.back() == nullptr) {
      return absl::ResourceExhaustedError("no memory for a pattern match");
    }
  }
  const absl::Status status = SplitFrom(0, text, &cutting);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), " at byte ",
                                                  cutting.failed_at, " of ", text.size()));
}

absl::Status PreTokenizer::SplitFrom(size_t stage, std::string_view text, Cutting* cutting) const {
  const Pattern& pattern = *patterns_[stage];
  pcre2_match_data* const data = cutting->matches[stage].get();
  const bool is_last = stage + 1 == patterns_.size();
  const auto pass_on = [&](size_t begin, size_t end) -> absl::Status {
    if (begin == end || cutting->ended) return absl::OkStatus();
    const std::string_view piece = text.substr(begin, end - begin);
    if (is_last) {
      cutting->ended = !cutting->visit(piece);
      return absl::OkStatus();
    }
    absl::Status status = SplitFrom(stage + 1, piece, cutting);
    if (!status.ok()) cutting->failed_at += begin;
    return status;
  };
  size_t at = 0;  // the pieces so far end here
  for (size_t from = 0; from < text.size() && !cutting->ended;) {
    const auto match = pattern.Find(text, from, data);
    if (!match.ok()) {
      cutting->failed_at = from;
      return match.status();
    }
    absl::Status status = pass_on(at, match->first);
    if (status.ok()) status = pass_on(match->first, match->second);
    if (!status.ok()) return status;
    at = match->second;
    from = at;
    if (match->first == match->second && at < text.size()) {
      from += FirstUtf8Unit(text.substr(at)).size_bytes;
    }
  }
  return pass_on(at, text.size());
}

}  // namespace refrain::engine
