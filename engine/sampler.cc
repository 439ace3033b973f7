#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace refrain::engine {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// exp for x <= 0, relative error under 2e-7, without branches so that loops over a vocabulary
// vectorise. Below -87 the result is 0.
inline float ExpNonPositive(float x) {
  const float clamped = std::max(x, -87.0f);
  const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;  // round to nearest
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = (p * r * r + r) + 1.0f;
  const auto scale = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : y * scale;
}

float MaxLogit(std::span<const float> logits) {
  float max = kBanned;
  for (const float x : logits) max = std::max(max, x);
  return max;
}

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

// Cuts `candidates` to the smallest best-first set whose share of their probability reaches top_p.
// Sorts only as many as needed, in growing steps.
void CutToNucleus(std::vector<Candidate>& candidates, float max, double top_p) {
  double total = 0;
  for (const Candidate& c : candidates) total += ExpNonPositive(c.logit - max);
  for (size_t sorted = 64;; sorted *= 4) {
    SortBest(candidates, sorted);
    const size_t end = std::min(sorted, candidates.size());
    double sum = 0;
    for (size_t i = 0; i < end; ++i) {
      sum += ExpNonPositive(candidates[i].logit - max);
      if (sum >= top_p * total) {
        candidates.resize(i + 1);
        return;
      }
    }
    if (end == candidates.size()) return;
  }
}

int32_t Draw(const std::vector<Candidate>& candidates, float max, double uniform) {
  double total = 0;
  for (const Candidate& c : candidates) total += ExpNonPositive(c.logit - max);
  double left = uniform * total;
  for (const Candidate& c : candidates) {
    left -= ExpNonPositive(c.logit - max);
    if (left < 0) return c.id;
  }
  // Rounding may leave a crumb; the last candidate with any probability takes it.
  for (size_t i = candidates.size(); i-- > 0;) {
    if (ExpNonPositive(candidates[i].logit - max) > 0) return candidates[i].id;
  }
  return candidates.front().id;
}

}  // namespace

SamplerState::SamplerState(const SamplingParams& params, uint64_t seed,
                           std::span<const TokenId> prompt, int32_t min_tokens,
                           std::vector<TokenId> end_tokens)
    : params_(params), seed_(seed), min_tokens_(min_tokens), end_tokens_(std::move(end_tokens)) {
  if (params_.repetition_penalty != 1.0) {
    for (const TokenId token : prompt) occurrences_[token].in_prompt = true;
  }
  for (const auto& sequence : params_.banned_sequences) {
    longest_ban_ = std::max(longest_ban_, sequence.size());
  }
}

bool SamplerState::greedy_unchanged() const {
  return params_.temperature == 0 && params_.repetition_penalty == 1.0 &&
         params_.presence_penalty == 0 && params_.frequency_penalty == 0 &&
         params_.logit_bias.empty() && params_.allowed_tokens.empty() &&
         params_.banned_sequences.empty() && chosen_ >= min_tokens_;
}

void SamplerState::Count(TokenId token) {
  ++chosen_;
  if (params_.repetition_penalty != 1.0 || params_.presence_penalty != 0 ||
      params_.frequency_penalty != 0) {
    ++occurrences_[token].in_output;
  }
  if (longest_ban_ < 2) return;
  if (recent_.size() == longest_ban_ - 1) recent_.erase(recent_.begin());
  recent_.push_back(token);
}

std::vector<TokenId> SamplerState::Banned() const {
  std::vector<TokenId> banned;
  if (chosen_ < min_tokens_) banned = end_tokens_;
  for (const auto& sequence : params_.banned_sequences) {
    if (sequence.empty() || sequence.size() - 1 > recent_.size()) continue;
    const auto begun = static_cast<std::ptrdiff_t>(sequence.size() - 1);
    if (std::equal(sequence.begin(), sequence.end() - 1, recent_.end() - begun)) {
      banned.push_back(sequence.back());
    }
  }
  if (banned.empty() || params_.allowed_tokens.empty()) return banned;
  std::sort(banned.begin(), banned.end());
  const bool none_left = std::all_of(
      params_.allowed_tokens.begin(), params_.allowed_tokens.end(),
      [&](TokenId token) { return std::binary_search(banned.begin(), banned.end(), token); });
  if (none_left) banned.clear();
  return banned;
}

void SamplerState::Adjust(std::span<float> logits) const {
  const auto in_range = [&](TokenId token) { return kvcache::ToIndex(token) < logits.size(); };
  if (!params_.allowed_tokens.empty()) {
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
  for (const auto& [token, seen] : occurrences_) {
    if (!in_range(token)) continue;
    float& logit = logits[ToIndex(token)];
    const auto penalty = static_cast<float>(params_.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
    if (seen.in_output > 0) {
      logit -=
          static_cast<float>(params_.presence_penalty + params_.frequency_penalty * seen.in_output);
    }
  }
  for (const TokenId token : Banned()) {
    if (in_range(token)) logits[ToIndex(token)] = kBanned;
  }
}

void SamplerState::AddPenalties(std::vector<kernels::LogitEdit>* edits) const {
  for (const auto& [token, seen] : occurrences_) {
    kernels::LogitEdit edit{.token = static_cast<int32_t>(token)};
    edit.repetition_penalty = static_cast<float>(params_.repetition_penalty);
    if (seen.in_output > 0) {
      edit.subtracted =
          static_cast<float>(params_.presence_penalty + params_.frequency_penalty * seen.in_output);
    }
    edits->push_back(edit);
  }
}

kernels::SamplingRow SamplerState::DeviceRow(std::vector<kernels::LogitEdit>* edits,
                                             std::vector<int32_t>* allowed) const {
  kernels::SamplingRow row = kernels::MakeSamplingRow(params_.temperature, params_.top_k,
                                                      params_.top_p, params_.min_p, NextUniform());
  row.edit_begin = static_cast<int32_t>(edits->size());
  row.allowed_begin = static_cast<int32_t>(allowed->size());
  for (const TokenId token : params_.allowed_tokens) {
    allowed->push_back(static_cast<int32_t>(token));
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    edits->push_back({.token = static_cast<int32_t>(token), .bias = bias});
  }
  AddPenalties(edits);
  for (const TokenId token : Banned()) {
    edits->push_back({.token = static_cast<int32_t>(token), .banned = 1});
  }
  // Those of one token stay in the order in which they are applied.
  std::stable_sort(
      edits->begin() + row.edit_begin, edits->end(),
      [](const kernels::LogitEdit& a, const kernels::LogitEdit& b) { return a.token < b.token; });
  row.edit_end = static_cast<int32_t>(edits->size());
  row.allowed_end = static_cast<int32_t>(allowed->size());
  return row;
}

double SamplerState::NextUniform() const {
  const uint64_t bits = Mix(Mix(seed_) ^ Mix(static_cast<uint64_t>(chosen_) + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

TokenId SamplerState::Sample(std::span<float> logits) {
  const TokenId token = Choose(logits);
  Count(token);
  return token;
}

TokenId SamplerState::Choose(std::span<float> logits) const {
  if (!greedy_unchanged()) Adjust(logits);
  TokenId token = ArgMax(logits);
  if (params_.temperature > 0) {
    const float max = logits[ToIndex(token)];
    const auto inverse = static_cast<float>(1.0 / params_.temperature);
    const float least = params_.min_p > 0 ? static_cast<float>(std::log(params_.min_p))
                                          : -87.0f;  // below, ExpNonPositive is 0
    std::vector<Candidate> candidates;
    candidates.reserve(params_.min_p > 0 ? 256 : logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      const float scaled = (logits[i] - max) * inverse;
      if (scaled >= least) candidates.push_back({static_cast<int32_t>(i), scaled});
    }
    if (candidates.empty()) candidates.push_back({static_cast<int32_t>(token), 0.0f});
    if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < candidates.size()) {
      SortBest(candidates, params_.top_k);
      candidates.resize(params_.top_k);
    }
    if (params_.top_p < 1.0) CutToNucleus(candidates, 0.0f, params_.top_p);
    token = static_cast<TokenId>(Draw(candidates, 0.0f, NextUniform()));
  }
  return token;
}

TokenId ArgMax(std::span<const float> logits) {
  const float max = MaxLogit(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == max) return static_cast<TokenId>(i);
  }
  return TokenId{0};  // all NaN: there is no answer, but a token must come
}

double LogSumExp(std::span<const float> logits) {
  const float max = MaxLogit(logits);
  double sum = 0;
  for (size_t i = 0; i < logits.size();) {  // partial sums in float would lose the tail's digits
    const size_t end = std::min(logits.size(), i + 64);
    float part[4] = {};
    for (; i + 4 <= end; i += 4) {
      for (int j = 0; j < 4; ++j) part[j] += ExpNonPositive(logits[i + j] - max);
    }
    for (; i < end; ++i) part[0] += ExpNonPositive(logits[i] - max);
    sum += static_cast<double>(part[0]) + part[1] + part[2] + part[3];
  }
  return max + std::log(sum);
}

LogprobRow ComputeLogprobs(std::span<const float> logits, TokenId token, int32_t top) {
  const double norm = LogSumExp(logits);
  const auto logprob = [&](size_t i) { return static_cast<float>(logits[i] - norm); };
  LogprobRow row;
  const float own = logits[ToIndex(token)];
  int32_t rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    rank += logits[i] > own || (logits[i] == own && i < ToIndex(token));
  }
  row.token = {token, logprob(ToIndex(token)), rank};
  if (top <= 0) return row;

  const auto worse_on_top = [](const Candidate& a, const Candidate& b) { return Better(a, b); };
  std::vector<Candidate> heap;  // the best so far, the worst of them in front
  const auto wanted = std::min(static_cast<size_t>(top), logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{static_cast<int32_t>(i), logits[i]};
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
