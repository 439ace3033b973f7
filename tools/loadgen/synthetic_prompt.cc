#include "tools/loadgen/synthetic_prompt.h"

#include <array>
#include <string_view>

namespace refrain::loadgen {
namespace {

constexpr std::array<std::string_view, 128> kWords = {
    "the",     "of",     "and",     "to",     "in",      "is",      "that",   "for",     "it",
    "as",      "was",    "with",    "be",     "by",      "on",      "not",    "he",      "this",
    "are",     "or",     "his",     "from",   "at",      "which",   "but",    "have",    "an",
    "had",     "they",   "you",     "were",   "their",   "one",     "all",    "we",      "can",
    "her",     "has",    "there",   "been",   "if",      "more",    "when",   "will",    "would",
    "who",     "so",     "no",      "out",    "up",      "what",    "some",   "other",   "into",
    "time",    "only",   "could",   "new",    "them",    "two",     "than",   "then",    "its",
    "also",    "first",  "any",     "people", "my",      "over",    "like",   "made",    "may",
    "years",   "most",   "such",    "these",  "our",     "after",   "work",   "well",    "many",
    "before",  "must",   "through", "where",  "much",    "good",    "should", "because", "each",
    "those",   "state",  "being",   "under",  "during",  "without", "day",    "world",   "between",
    "high",    "part",   "great",   "here",   "while",   "year",    "number", "same",    "small",
    "long",    "old",    "own",     "system", "public",  "however", "order",  "life",    "water",
    "house",   "school", "family",  "city",   "country", "night",   "group",  "place",   "area",
    "company", "history"};

// splitmix64 (Steele, Lea, Flood 2014): every seed is a good one.
uint64_t NextRandom(uint64_t* state) {
  uint64_t value = *state += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t NextBelow(uint64_t* state, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<__uint128_t>(NextRandom(state)) * bound) >> 64);
}

}  // namespace

uint64_t MixSeed(uint64_t a, uint64_t b) {
  uint64_t state = a;
  state = NextRandom(&state) ^ b;
  return NextRandom(&state);
}

std::vector<int32_t> SyntheticIds(uint64_t seed, int32_t count, TokenRange range) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    const auto width = static_cast<uint64_t>(range.high - range.low);
    ids.push_back(range.low + static_cast<int32_t>(NextBelow(&seed, width)));
  }
  return ids;
}

std::string SyntheticText(uint64_t seed, int32_t count) {
  std::string text;
  text.reserve(static_cast<size_t>(count) * 6);
  for (int32_t i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[NextBelow(&seed, kWords.size())];
  }
  return text;
}

void AppendSynthetic(PromptForm form, uint64_t seed, int32_t count, TokenRange range,
                     const char* role, Turn* turn) {
  if (count == 0) return;
  if (form == PromptForm::kTokenIds) {
    const std::vector<int32_t> ids = SyntheticIds(seed, count, range);
    turn->token_ids.insert(turn->token_ids.end(), ids.begin(), ids.end());
    return;
  }
  turn->messages.push_back({role, SyntheticText(seed, count)});
}

}  // namespace refrain::loadgen
