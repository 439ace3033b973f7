#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/logit_math.h"

namespace refrain::engine {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

struct Candidate {
  int32_t id;
  float logit;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The `count` best candidates, best first, at the front of the vector.
void SortBest(std::vector<Candidate>& candidates, size_t count) {
  if (count < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), Better);
  }
  std::sort(candidates.begin(), candidates.begin() + std::min(count, candidates.size()), Better);
}

double Mass(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += ExpNonPositive(c.logit);
  return sum;
}

// Cuts `candidates` to the smallest best-first set whose mass reaches `wanted`. Sorts only as many
// as needed, in growing steps.
void CutToNucleus(std::vector<Candidate>& candidates, double wanted) {
  for (size_t sorted = 64;; sorted *= 4) {
    SortBest(candidates, sorted);
    const size_t end = std::min(sorted, candidates.size());
    double sum = 0;
    for (size_t i = 0; i < end; ++i) {
      sum += ExpNonPositive(candidates[i].logit);
      if (sum >= wanted) {
        candidates.resize(i + 1);
        return;
      }
    }
    if (end == candidates.size()) return;
  }
}

int32_t Draw(const std::vector<Candidate>& candidates, double uniform) {
  double left = uniform * Mass(candidates);
  for (const Candidate& c : candidates) {
    left -= ExpNonPositive(c.logit);
    if (left < 0) return c.id;
  }
  // Rounding may leave a crumb; the last candidate with any probability takes it.
  for (size_t i = candidates.size(); i-- > 0;) {
    if (ExpNonPositive(candidates[i].logit) > 0) return candidates[i].id;
  }
  return candidates.front().id;
}

// The logits of a row as the limits of sampling see them: x becomes (x - greatest) / temperature.
// Most tokens are far below the best: what wants the best ones looks only into the blocks that have
// some.
class ScaledLogits {
 public:
  explicit ScaledLogits(std::span<const float> logits, double temperature)
      : logits_(logits),
        maxima_(BlockMaxima(logits)),
        max_(Greatest(maxima_)),
        inverse_(static_cast<float>(1.0 / temperature)) {}

  // All tokens of at least `least`, in the order of their ids.
  std::vector<Candidate> From(float least) const {
    std::vector<Candidate> found;
    for (size_t block = 0; block < maxima_.size(); ++block) {
      if (!(Scaled(maxima_[block]) >= least)) continue;
      const size_t end = End(block);
      for (size_t i = block * kLogitBlock; i < end; ++i) {
        const float scaled = Scaled(logits_[i]);
        if (scaled >= least) found.push_back({static_cast<int32_t>(i), scaled});
      }
    }
    return found;
  }

  // The `count` best tokens at least, if there are as many, and none without all that are better.
  std::vector<Candidate> Best(size_t count) const {
    return Lower([count](const std::vector<Candidate>& found) { return found.size() >= count; });
  }

  // The best tokens, of `mass` at least.
  std::vector<Candidate> BestOf(double mass) const {
    return Lower([mass](const std::vector<Candidate>& found) { return Mass(found) >= mass; });
  }

  // Of all tokens together, where the best one's is 1.
  std::vector<double> BlockMasses() const { return BlockSums(logits_, max_, inverse_); }

  // A token by its probability, `masses` being BlockMasses(); nothing if none has any.
  std::optional<int32_t> Draw(const std::vector<double>& masses, double uniform) const {
    double left = uniform * std::accumulate(masses.begin(), masses.end(), 0.0);
    // The block that it falls into; the last one of any mass, where rounding left a crumb.
    std::optional<size_t> chosen;
    for (size_t block = 0; block < masses.size(); ++block) {
      if (!(masses[block] > 0)) continue;
      if (chosen.has_value()) left -= masses[*chosen];
      chosen = block;
      if (left < masses[block]) break;
    }
    if (!chosen.has_value()) return std::nullopt;
    int32_t token = 0;
    const size_t end = End(*chosen);
    for (size_t i = *chosen * kLogitBlock; i < end && left >= 0; ++i) {
      const float mass = ExpNonPositive(Scaled(logits_[i]));
      if (mass > 0) token = static_cast<int32_t>(i);
      left -= mass;
    }
    return token;
  }

 private:
  static constexpr float kNothing = -87.0f;  // below, ExpNonPositive is 0

  float Scaled(float logit) const { return (logit - max_) * inverse_; }
  size_t End(size_t block) const { return std::min(logits_.size(), (block + 1) * kLogitBlock); }

  template <class Enough>
  std::vector<Candidate> Lower(const Enough& enough) const {
    for (float least = -8.0f;; least *= 2) {
      std::vector<Candidate> found = From(std::max(least, kNothing));
      if (least <= kNothing || enough(found)) return found;
    }
  }

  std::span<const float> logits_;
  std::vector<float> maxima_;  // by block
  float max_;
  float inverse_;
};

void BanOthers(const TokenSet& kept, std::span<float> logits) {
  const std::span<const uint64_t> words = kept.words();
  for (size_t begin = 0; begin < logits.size(); begin += 64) {
    const uint64_t word = begin / 64 < words.size() ? words[begin / 64] : 0;
    if (word == ~uint64_t{0}) continue;
    const std::span<float> block =
        logits.subspan(begin, std::min(logits.size() - begin, size_t{64}));
    if (word == 0) {
      std::ranges::fill(block, kBanned);
      continue;
    }
    for (size_t i = 0; i < block.size(); ++i) {
      if ((word >> i & 1) == 0) block[i] = kBanned;
    }
  }
}

// Ascending. On the engine thread, between two steps: a long prompt is not sorted.
std::vector<TokenId> DistinctTokens(std::span<const TokenId> prompt) {
  if (prompt.empty()) return {};
  const TokenId last = *std::max_element(prompt.begin(), prompt.end());
  TokenSet seen(kvcache::ToIndex(last) + 1);
  for (const TokenId token : prompt) seen.Add(token);
  std::vector<TokenId> tokens;
  tokens.reserve(seen.Count());
  seen.ForEach([&](TokenId token) { tokens.push_back(token); });
  return tokens;
}

}  // namespace

SamplerState::SamplerState(const SamplingParams& params, uint64_t seed,
                           std::span<const TokenId> prompt, int32_t min_tokens,
                           SharedList<TokenId> late_tokens,
                           std::shared_ptr<const OutputConstraint> constraint)
    : params_(params),
      seed_(seed),
      min_tokens_(min_tokens),
      late_tokens_(std::move(late_tokens)),
      constraint_(std::move(constraint)) {
  if (constraint_ != nullptr) matcher_.emplace(constraint_->grammar, constraint_->masks);
  if (params_.thinking_limit != nullptr) thought_.emplace(params_.thinking_limit);
  if (params_.repetition_penalty != 1.0) {
    prompt_tokens_ = std::make_shared<const std::vector<TokenId>>(DistinctTokens(prompt));
  }
  for (const auto& sequence : params_.banned_sequences) {
    longest_ban_ = std::max(longest_ban_, sequence.size());
  }
}

SamplerState::SamplerState(const SamplerState& sibling, uint64_t seed)
    : params_(sibling.params_),
      seed_(seed),
      min_tokens_(sibling.min_tokens_),
      late_tokens_(sibling.late_tokens_),
      constraint_(sibling.constraint_),
      prompt_tokens_(sibling.prompt_tokens_),
      longest_ban_(sibling.longest_ban_) {
  if (constraint_ != nullptr) matcher_.emplace(constraint_->grammar, constraint_->masks);
  if (params_.thinking_limit != nullptr) thought_.emplace(params_.thinking_limit);
}

bool SamplerState::InPrompt(TokenId token) const {
  return prompt_tokens_ != nullptr &&
         std::binary_search(prompt_tokens_->begin(), prompt_tokens_->end(), token);
}

bool SamplerState::greedy_but_bans() const {
  return params_.temperature == 0 && params_.repetition_penalty == 1.0 &&
         params_.presence_penalty == 0 && params_.frequency_penalty == 0 &&
         params_.logit_bias.empty() && params_.allowed_tokens.empty() && !matcher_.has_value() &&
         !(thought_.has_value() && thought_->Due().has_value());
}

OutputState SamplerState::Count(TokenId token) {
  ++chosen_;
  if (params_.repetition_penalty != 1.0 || params_.presence_penalty != 0 ||
      params_.frequency_penalty != 0) {
    ++chosen_times_[token];
  }
  if (longest_ban_ >= 2) {
    if (recent_.size() == longest_ban_ - 1) recent_.erase(recent_.begin());
    recent_.push_back(token);
  }
  if (thought_.has_value()) thought_->Count(token);
  return matcher_.has_value() ? Follow(token) : OutputState::kGoesOn;
}

float SamplerState::Subtracted(int32_t times) const {
  return static_cast<float>(params_.presence_penalty + params_.frequency_penalty * times);
}

OutputState SamplerState::Follow(TokenId token) {
  if (matcher_->MustEnd()) return OutputState::kComplete;  // a step in flight chose behind the end
  if (matcher_->AcceptToken(token)) {
    return matcher_->MustEnd() ? OutputState::kComplete : OutputState::kGoesOn;
  }
  // Where nothing was left everything was allowed: a token had to come.
  const bool is_end =
      matcher_->CanEnd() && std::ranges::find(constraint_->ends, token) != constraint_->ends.end();
  return is_end ? OutputState::kGoesOn : OutputState::kStuck;
}

std::optional<TokenSet> SamplerState::HeldTo(size_t vocab_size) const {
  std::optional<TokenSet> held_to = HeldToForm();
  const std::optional<TokenId> due = thought_.has_value() ? thought_->Due() : std::nullopt;
  if (!due.has_value() || ToIndex(*due) >= vocab_size) return held_to;
  // A form says where its thoughts may close.
  if (held_to.has_value() && !held_to->Has(*due)) return held_to;
  held_to.emplace(vocab_size);
  held_to->Add(*due);
  return held_to;
}

std::optional<TokenSet> SamplerState::HeldToForm() const {
  if (!matcher_.has_value() || matcher_->MustEnd() || matcher_->is_overrun()) return std::nullopt;
  TokenSet held_to(constraint_->masks->trie().vocab_size());
  matcher_->FindAllowed(&held_to);
  if (matcher_->CanEnd()) {
    for (const TokenId end : constraint_->ends) held_to.Add(end);
  }
  if (held_to.Count() == 0) return std::nullopt;
  return held_to;
}

std::vector<TokenId> SamplerState::Banned(size_t vocab_size, const TokenSet* held_to) const {
  std::vector<TokenId> banned;
  if (chosen_ < min_tokens_) banned.assign(late_tokens_.begin(), late_tokens_.end());
  for (const auto& sequence : params_.banned_sequences) {
    if (sequence.empty() || sequence.size() - 1 > recent_.size()) continue;
    const auto begun = static_cast<std::ptrdiff_t>(sequence.size() - 1);
    if (std::equal(sequence.begin(), sequence.end() - 1, recent_.end() - begun)) {
      banned.push_back(sequence.back());
    }
  }
  const SharedList<TokenId>& allowed = params_.allowed_tokens;
  // So few bans cannot take all of a vocabulary.
  const bool all_allowed = allowed.empty() && held_to == nullptr;
  if (banned.empty() || (all_allowed && banned.size() < vocab_size)) return banned;
  std::sort(banned.begin(), banned.end());
  bool none_left;
  if (held_to != nullptr) {
    banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
    const auto taken =
        std::ranges::count_if(banned, [&](TokenId token) { return held_to->Has(token); });
    none_left = static_cast<size_t>(taken) == held_to->Count();
  } else if (allowed.empty()) {
    banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
    const auto taken =
        std::ranges::count_if(banned, [&](TokenId token) { return ToIndex(token) < vocab_size; });
    none_left = static_cast<size_t>(taken) == vocab_size;
  } else {
    none_left = std::ranges::all_of(allowed, [&](TokenId token) {
      return std::binary_search(banned.begin(), banned.end(), token);
    });
  }
  if (none_left) banned.clear();
  return banned;
}

void SamplerState::Adjust(std::span<float> logits) const {
  const auto in_range = [&](TokenId token) { return kvcache::ToIndex(token) < logits.size(); };
  const std::optional<TokenSet> held_to = HeldTo(logits.size());
  if (held_to.has_value()) {
    BanOthers(*held_to, logits);
  } else if (!params_.allowed_tokens.empty()) {
    std::vector<std::pair<size_t, float>> kept;
    for (const TokenId token : params_.allowed_tokens) {
      if (in_range(token)) kept.emplace_back(ToIndex(token), logits[ToIndex(token)]);
    }
    std::fill(logits.begin(), logits.end(), kBanned);
    for (const auto& [index, value] : kept) logits[index] = value;
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    if (in_range(token)) logits[ToIndex(token)] += bias;
  }
  const auto penalize = [&](TokenId token) {
    if (!in_range(token)) return;
    float& logit = logits[ToIndex(token)];
    const auto penalty = static_cast<float>(params_.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  };
  if (prompt_tokens_ != nullptr) {
    for (const TokenId token : *prompt_tokens_) penalize(token);
  }
  for (const auto& [token, times] : chosen_times_) {
    if (!InPrompt(token)) penalize(token);
    if (in_range(token)) logits[ToIndex(token)] -= Subtracted(times);
  }
  for (const TokenId token : Banned(logits.size(), held_to.has_value() ? &*held_to : nullptr)) {
    if (in_range(token)) logits[ToIndex(token)] = kBanned;
  }
}

void SamplerState::AddPromptPenalties(std::vector<kernels::LogitEdit>* edits) const {
  if (prompt_tokens_ == nullptr) return;
  const auto penalty = static_cast<float>(params_.repetition_penalty);
  for (const TokenId token : *prompt_tokens_) {
    edits->push_back({.token = static_cast<int32_t>(token), .repetition_penalty = penalty});
  }
}

void SamplerState::AddChosenPenalties(std::vector<kernels::LogitEdit>* edits) const {
  const auto penalty = static_cast<float>(params_.repetition_penalty);
  for (const auto& [token, times] : chosen_times_) {
    edits->push_back({.token = static_cast<int32_t>(token),
                      .repetition_penalty = InPrompt(token) ? 1.0f : penalty,
                      .subtracted = Subtracted(times)});
  }
}

namespace {

// As allowed tokens or as bans, whichever are fewer: they travel to the device. Both ascend.
void AddHeldTo(const TokenSet& held_to, size_t vocab_size, std::vector<kernels::LogitEdit>* edits,
               std::vector<int32_t>* allowed) {
  const bool as_bans = held_to.Count() > vocab_size / 2;
  for (size_t i = 0; i < vocab_size; ++i) {
    const auto token = static_cast<int32_t>(i);
    const bool has = held_to.Has(TokenId{token});
    if (has && !as_bans) allowed->push_back(token);
    if (!has && as_bans) edits->push_back({.token = token, .banned = 1});
  }
}

}  // namespace

kernels::SamplingRow SamplerState::DeviceRow(size_t vocab_size,
                                             std::vector<kernels::LogitEdit>* edits,
                                             std::vector<int32_t>* allowed) const {
  kernels::SamplingRow row = kernels::MakeSamplingRow(params_.temperature, params_.top_k,
                                                      params_.top_p, params_.min_p, NextUniform());
  row.edit_begin = static_cast<int32_t>(edits->size());
  row.allowed_begin = static_cast<int32_t>(allowed->size());
  const std::optional<TokenSet> held_to = HeldTo(vocab_size);
  if (!held_to.has_value()) {
    for (const TokenId token : params_.allowed_tokens) {
      allowed->push_back(static_cast<int32_t>(token));
    }
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    edits->push_back({.token = static_cast<int32_t>(token), .bias = bias});
  }
  const auto prompt_begin = std::ssize(*edits) - row.edit_begin;
  AddPromptPenalties(edits);
  const auto prompt_end = std::ssize(*edits) - row.edit_begin;
  AddChosenPenalties(edits);
  for (const TokenId token : Banned(vocab_size, held_to.has_value() ? &*held_to : nullptr)) {
    edits->push_back({.token = static_cast<int32_t>(token), .banned = 1});
  }
  const auto held_begin = std::ssize(*edits) - row.edit_begin;
  if (held_to.has_value()) AddHeldTo(*held_to, vocab_size, edits, allowed);
  // Those of one token stay in the order in which they are applied. The prompt's and the
  // constraint's, which are many, ascend as they are.
  const auto before = [](const kernels::LogitEdit& a, const kernels::LogitEdit& b) {
    return a.token < b.token;
  };
  const auto begin = edits->begin() + row.edit_begin;
  std::stable_sort(begin, begin + prompt_begin, before);
  std::stable_sort(begin + prompt_end, begin + held_begin, before);
  std::inplace_merge(begin, begin + prompt_begin, begin + prompt_end, before);
  std::inplace_merge(begin, begin + prompt_end, begin + held_begin, before);
  std::inplace_merge(begin, begin + held_begin, edits->end(), before);
  row.edit_end = static_cast<int32_t>(edits->size());
  row.allowed_end = static_cast<int32_t>(allowed->size());
  return row;
}

double SamplerState::NextUniform() const {
  const uint64_t bits = Mix(Mix(seed_) ^ Mix(static_cast<uint64_t>(chosen_) + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

TokenId SamplerState::Sample(std::span<float> logits, OutputState* output) {
  const TokenId token = Choose(logits);
  const OutputState state = Count(token);
  if (output != nullptr) *output = state;
  return token;
}

TokenId SamplerState::Choose(std::span<float> logits) const {
  Adjust(logits);
  if (params_.temperature == 0) return ArgMax(logits);
  const ScaledLogits scaled(logits, params_.temperature);
  const bool cuts_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits.size();
  std::vector<Candidate> candidates;
  if (params_.min_p > 0) {
    candidates = scaled.From(static_cast<float>(std::log(params_.min_p)));
  } else if (cuts_k) {
    candidates = scaled.Best(static_cast<size_t>(params_.top_k));
  } else {
    const std::vector<double> masses = scaled.BlockMasses();
    if (params_.top_p >= 1.0) {
      const std::optional<int32_t> drawn = scaled.Draw(masses, NextUniform());
      return drawn.has_value() ? static_cast<TokenId>(*drawn) : ArgMax(logits);
    }
    const double wanted = params_.top_p * std::accumulate(masses.begin(), masses.end(), 0.0);
    candidates = scaled.BestOf(wanted);
    if (candidates.empty()) return ArgMax(logits);
    CutToNucleus(candidates, wanted);
    return static_cast<TokenId>(Draw(candidates, NextUniform()));
  }
  if (candidates.empty()) return ArgMax(logits);
  if (cuts_k && static_cast<size_t>(params_.top_k) < candidates.size()) {
    SortBest(candidates, params_.top_k);
    candidates.resize(params_.top_k);
  }
  if (params_.top_p < 1.0) CutToNucleus(candidates, params_.top_p * Mass(candidates));
  return static_cast<TokenId>(Draw(candidates, NextUniform()));
}

TokenId ArgMax(std::span<const float> logits) {
  const std::vector<float> maxima = BlockMaxima(logits);
  const float max = Greatest(maxima);
  if (!std::isfinite(max)) return kNoToken;
  const auto block = static_cast<size_t>(std::ranges::find(maxima, max) - maxima.begin());
  size_t i = block * kLogitBlock;
  while (logits[i] != max) ++i;
  return static_cast<TokenId>(i);
}

double LogSumExp(std::span<const float> logits) {
  const float max = Greatest(BlockMaxima(logits));
  const std::vector<double> sums = BlockSums(logits, max, 1.0f);
  return max + std::log(std::accumulate(sums.begin(), sums.end(), 0.0));
}

LogprobRow ComputeLogprobs(std::span<const float> logits, TokenId token, int32_t top) {
  const double norm = LogSumExp(logits);
  // One instruction, written so that NaN is the less.
  const auto value = [&](size_t i) { return logits[i] > kBanned ? logits[i] : kBanned; };
  const auto logprob = [&](size_t i) { return static_cast<float>(value(i) - norm); };
  LogprobRow row;
  const float own = value(ToIndex(token));
  int32_t rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    rank += value(i) > own || (value(i) == own && i < ToIndex(token));
  }
  row.token = {token, logprob(ToIndex(token)), rank};
  if (top <= 0) return row;

  const auto worse_on_top = [](const Candidate& a, const Candidate& b) { return Better(a, b); };
  std::vector<Candidate> heap;  // the best so far, the worst of them in front
  const auto wanted = std::min(static_cast<size_t>(top), logits.size());
  const std::vector<float> maxima = BlockMaxima(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    // Of equal ones the first is better: a block with nothing above the worst has none to take.
    if (i % kLogitBlock == 0 && heap.size() == wanted &&
        !(maxima[i / kLogitBlock] > heap.front().logit)) {
      i += kLogitBlock - 1;
      continue;
    }
    const Candidate candidate{static_cast<int32_t>(i), value(i)};
    if (heap.size() == wanted) {
      if (!Better(candidate, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), worse_on_top);
      heap.pop_back();
    }
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), worse_on_top);
  }
  std::sort(heap.begin(), heap.end(), Better);
  for (size_t i = 0; i < heap.size(); ++i) {
    row.top.push_back(
        {static_cast<TokenId>(heap[i].id), logprob(heap[i].id), static_cast<int32_t>(i) + 1});
  }
  return row;
}

}  // namespace refrain::engine
