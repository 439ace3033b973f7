// Times the work on the KV cache's index: Match + Join in a tree of a million chunks, 10,000 of
// them below one node, the rebuild of an attention plan for 256 sequences, a decode step's Append +
// Publish, and eviction from a full pool; beside them the scheduler's plan of a step, with 256
// running and 10,000 waiting.
//
// Checks before it times: matches are as long as they must be, the cache's invariants hold, and the
// plan gives each slot exactly the chunks that its tokens went to. It moves no K and V: what it
// cannot show is how a copy or a changed plan costs the device.
//
//   tree_bench [--chunks=N] [--eviction=lru|s3fifo|reuse_rate]
//
// Exit status: 0; 1 when a median is over its limit, 2 for a wrong option, 3 for a wrong result.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "kvcache/cache_manager.h"

namespace refrain::bench {
namespace {

using kvcache::CacheManager;
using kvcache::SequenceId;
using kvcache::TokenId;

constexpr int32_t kChunk = 64;
constexpr int32_t kPromptChunks = 128;  // 8,192 tokens
constexpr int32_t kCommonChunks = 16;   // of every lineage
constexpr int32_t kSequences = 256;
constexpr int32_t kPrivateChunks = 64;
constexpr int32_t kLineages = 10000;  // unless --chunks says otherwise: children below one node

class NoMover : public kvcache::ChunkMover {
 public:
  absl::Status CopyChunk(kvcache::ChunkId, kvcache::ChunkId) override { return absl::OkStatus(); }
};

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tree_bench: wrong result: %s\n", what);
  std::exit(3);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Check(false, std::string(status.message()).c_str());
}

double NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// False when the median is over the limit; 0 is none.
bool Print(const char* what, std::vector<double> us, double limit_us) {
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  std::printf("%-62s %8.2f us  (%.2f to %.2f, 99 %% %.2f; %zu runs)", what, median, us.front(),
              us.back(), us[us.size() * 99 / 100], us.size());
  const bool kept = limit_us <= 0 || median <= limit_us;
  if (limit_us > 0) std::printf("  limit %.0f: %s", limit_us, kept ? "kept" : "MISSED");
  std::printf("\n");
  return kept;
}

struct Bench {
  Bench(int32_t chunks, const std::string& eviction)
      : cache(*CacheManager::Create(
            {.num_chunks = chunks, .max_slots = kSequences + 8, .eviction = eviction}, &mover)) {}

  // Lineage `n`: common chunks, then its own.
  std::vector<TokenId> Lineage(int32_t n, int32_t tokens) const {
    std::vector<TokenId> ids(static_cast<size_t>(tokens));
    std::minstd_rand common(1), own(static_cast<uint32_t>(n) + 2);
    for (int32_t i = 0; i < tokens; ++i) {
      ids[static_cast<size_t>(i)] =
          TokenId{static_cast<int32_t>((i < kCommonChunks * kChunk ? common() : own()) % 32000)};
    }
    return ids;
  }

  kvcache::MatchResult Join(uint64_t id, const std::vector<TokenId>& ids) {
    const kvcache::MatchResult match = cache->Match({}, {ids, {}});
    Check(cache->Join(SequenceId{id}, {}, match, static_cast<int32_t>(ids.size())).status());
    return match;
  }

  void Grow(uint64_t id, std::span<const TokenId> ids) {
    const int32_t begin = cache->appended_tokens(SequenceId{id});
    Check(cache->Reserve(SequenceId{id}, static_cast<int32_t>(ids.size())));
    positions.resize(ids.size());
    std::iota(positions.begin(), positions.end(), begin);
    places.clear();
    cache->Append(SequenceId{id}, positions, &places);
    cache->Publish(SequenceId{id}, ids);
  }

  void Run(uint64_t id, const std::vector<TokenId>& ids) {
    const int32_t matched = Join(id, ids).num_tokens;
    Grow(id, std::span(ids).subspan(static_cast<size_t>(matched)));
  }

  // Below the last chunk that all lineages have in common.
  size_t Siblings() const {
    const auto common = cache->Match({}, {Lineage(0, kCommonChunks * kChunk), {}});
    return cache->tree().node(common.node).children.size();
  }

  // Each slot's chunks by the plan.
  std::map<kvcache::SlotId, std::vector<kvcache::ChunkId>> ChunksByPlan() {
    std::map<kvcache::SlotId, std::vector<kvcache::ChunkId>> chunks;
    const auto plan = cache->Plan();
    for (const kvcache::PlanRun& run : plan->runs) {
      for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
        for (int32_t k = run.chunk_begin; k < run.chunk_end; ++k) {
          chunks[plan->slots[static_cast<size_t>(s)].slot].push_back(
              plan->chunks[static_cast<size_t>(k)].chunk);
        }
      }
    }
    return chunks;
  }

  NoMover mover;
  std::unique_ptr<CacheManager> cache;
  std::vector<int32_t> positions;
  std::vector<kvcache::TokenPlace> places;
};

int32_t Fill(Bench* bench, int32_t chunks) {
  const double begin = NowUs();
  const int32_t lineages = (chunks - kCommonChunks) / (kPromptChunks - kCommonChunks);
  for (int32_t n = 0; n < lineages; ++n) {
    bench->Run(1, bench->Lineage(n, kPromptChunks * kChunk));
    bench->cache->Leave(SequenceId{1});
  }
  const double us = NowUs() - begin;
  std::printf("%d chunks in %d lineages, %.2f us a chunk\n", bench->cache->stats().cached_chunks,
              lineages, us / bench->cache->stats().cached_chunks);
  Check(bench->cache->stats().cached_chunks ==
            kCommonChunks + lineages * (kPromptChunks - kCommonChunks),
        "number of cached chunks");
  return lineages;
}

// As the next one, false when a median was over its limit.
bool TimeMatchAndJoin(Bench* bench, int32_t lineages) {
  const auto time = [&](const std::vector<TokenId>& prompt) {
    const double begin = NowUs();
    const int32_t matched = bench->Join(2, prompt).num_tokens;
    const double us = NowUs() - begin;
    Check(matched == kPromptChunks * kChunk, "length of a match");
    bench->cache->Leave(SequenceId{2});
    return us;
  };
  std::vector<double> warm, cold;
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    const auto prompt = bench->Lineage(
        static_cast<int32_t>(random() % static_cast<uint32_t>(lineages)), kPromptChunks * kChunk);
    cold.push_back(time(prompt));
    for (int k = 0; k < 20; ++k) warm.push_back(time(prompt));
  }
  const bool kept = Print("Match + Join of 8,192 tokens, warm", warm, 50);
  Print("Match + Join of 8,192 tokens, any lineage", cold, 0);
  return kept;
}

// 256 sequences in 32 groups of 8: common chunks, 16 of the group, then 64 of their own.
bool TimePlans(Bench* bench) {
  CacheManager& cache = *bench->cache;
  const int32_t group_tokens = (kCommonChunks + 16) * kChunk;
  for (uint64_t id = 100; id < 100 + kSequences; ++id) {
    std::vector<TokenId> ids = bench->Lineage(static_cast<int32_t>(id % 32), group_tokens);
    const auto own =
        bench->Lineage(1 << 20 | static_cast<int32_t>(id), group_tokens + kPrivateChunks * kChunk);
    ids.insert(ids.end(), own.begin() + group_tokens, own.end() - kChunk / 2);
    bench->Run(id, ids);
  }
  Check(cache.CheckInvariants());
  const auto chunks = bench->ChunksByPlan();
  Check(chunks.size() == kSequences, "slots in the plan");
  for (uint64_t id = 100; id < 100 + kSequences; ++id) {
    const auto& own = chunks.at(cache.slot(SequenceId{id}));
    Check(static_cast<int32_t>(own.size()) == kCommonChunks + 16 + kPrivateChunks,
          "chunks of a slot");
  }
  const size_t runs = cache.Plan()->runs.size();
  Check(runs == 1 + 32 + kSequences, "runs of the plan");
  std::vector<double> rebuild;
  for (int i = 0; i < 400; ++i) {
    // Someone joins or leaves with nothing.
    if (i % 2 == 0) {
      Check(cache.Join(SequenceId{3}, {}, {}, 0).status());
    } else {
      cache.Leave(SequenceId{3});
    }
    const double begin = NowUs();
    const auto plan = cache.Plan();
    rebuild.push_back(NowUs() - begin);
    Check(plan->runs.size() == runs, "runs of the plan");
  }
  const bool kept = Print("Plan, 256 sequences in 32 groups, 64 chunks of their own", rebuild, 200);
  for (uint64_t id = 100; id < 100 + kSequences; ++id) cache.Leave(SequenceId{id});
  return kept;
}

// 256 sequences that have just left a common prompt: the busiest place that a tail can stand at.
void TimeDecode(Bench* bench) {
  CacheManager& cache = *bench->cache;
  std::minstd_rand random(9);
  const auto prompt = bench->Lineage(0, kCommonChunks * kChunk);
  for (uint64_t id = 100; id < 100 + kSequences; ++id) bench->Join(id, prompt);
  std::vector<double> steps;
  for (int step = 0; step < 3 * kChunk; ++step) {
    const double begin = NowUs();
    for (uint64_t id = 100; id < 100 + kSequences; ++id) {
      const TokenId token{static_cast<int32_t>(random() % 32000)};
      bench->Grow(id, {&token, 1});
    }
    steps.push_back(NowUs() - begin);
  }
  Check(cache.CheckInvariants());
  Check(cache.stats().logical_tokens == kSequences * (kCommonChunks + 3) * kChunk, "tokens");
  Print("Reserve + Append + Publish of one token for 256 sequences", steps, 0);
  for (uint64_t id = 100; id < 100 + kSequences; ++id) cache.Leave(SequenceId{id});
}

// Conversations that come back sooner and later, some often, and whose answers end in each way: so
// that idle chunks are of as many kinds as a policy may tell apart.
void VaryConversations(Bench* bench, int32_t lineages) {
  CacheManager& cache = *bench->cache;
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    const uint32_t nearest = 1u << (1 + random() % 13);
    const auto n = static_cast<int32_t>(random() % nearest % static_cast<uint32_t>(lineages));
    bench->Join(2, bench->Lineage(n, kPromptChunks * kChunk));
    cache.Answered(SequenceId{2},
                   static_cast<kvcache::AnswerEnd>(random() % uint32_t{kvcache::kAnswerEnds}));
    cache.Leave(SequenceId{2});
  }
}

// New prompts in a full pool: each takes 112 chunks from others. Joining looks for the child of the
// common chunks that begins most like it; the first chunk that is reserved then has all that is
// idle ranked anew.
bool TimeEviction(Bench* bench, int32_t first_lineage) {
  CacheManager& cache = *bench->cache;
  constexpr int32_t kNewChunks = kPromptChunks - kCommonChunks;
  int32_t n = first_lineage;
  for (; cache.stats().free_chunks > 0; ++n) {
    bench->Run(2, bench->Lineage(n, kPromptChunks * kChunk));
    cache.Leave(SequenceId{2});
  }
  Check(bench->Siblings() >= static_cast<size_t>(first_lineage), "children below one node");
  VaryConversations(bench, first_lineage);
  std::vector<double> joins, first_reserves, reserves;
  for (int i = 0; i < 400; ++i, ++n) {
    const auto prompt = bench->Lineage(n, kPromptChunks * kChunk);
    const int64_t evicted = cache.stats().evicted_chunks_total;
    double begin = NowUs();
    const int32_t matched = bench->Join(2, prompt).num_tokens;
    joins.push_back(NowUs() - begin);
    Check(matched >= kCommonChunks * kChunk, "length of a match");
    begin = NowUs();
    Check(cache.Reserve(SequenceId{2}, 1));
    first_reserves.push_back(NowUs() - begin);
    begin = NowUs();
    Check(cache.Reserve(SequenceId{2}, kPromptChunks * kChunk - matched));
    reserves.push_back((NowUs() - begin) / (kNewChunks - 1));
    Check(cache.stats().evicted_chunks_total - evicted == kPromptChunks - matched / kChunk,
          "evicted chunks");
    bench->Grow(2, std::span(prompt).subspan(static_cast<size_t>(matched)));
    cache.Leave(SequenceId{2});
  }
  bool kept = Print("Join of a new prompt in a full pool", joins, 50);
  kept &= Print("Reserve in a full pool, the first chunk after a Join", first_reserves, 200);
  Print("Reserve in a full pool, each further chunk", reserves, 0);
  return kept;
}

// The plan of a step: all decode, and 60 of 300 tokens are let in, or one that the others will
// share with. It has no part in the index, and scheduler_time_test holds it to 200 us: no limit
// here.
void TimeStepPlans() {
  constexpr uint64_t kWaiting = 10000;
  struct Line {
    const char* name;
    uint64_t prompts;  // of those that wait; 0: none lacks a chunk that another could compute
  };
  constexpr Line kLines[] = {
      {"all cached", 0}, {"one new prompt", 1}, {"each its own prompt", kWaiting}};
  for (const auto& [name, prompts] : kLines) {
    for (const engine::Policy policy : {engine::Policy::kFcfs, engine::Policy::kLongestPrefix}) {
      engine::SchedulerSnapshot s;
      s.limits = {.max_sequences = kSequences + 60,
                  .step_token_budget = 20000,
                  .chunk_tokens = kChunk,
                  .policy = policy};
      s.free_chunks = 100'000;
      for (uint64_t id = 1; id <= kSequences; ++id) {
        s.running.push_back({.sequence = SequenceId{id},
                             .runnable_tokens = 1,
                             .decoding = true,
                             .next_token = 20 * kChunk,
                             .reserved_tokens = 20 * kChunk,
                             .exclusive_chunks = 20});
      }
      for (uint64_t i = 0; i < kWaiting; ++i) {
        s.waiting.push_back({.sequence = SequenceId{kSequences + 1 + i}, .prefill_tokens = 300});
        if (prompts > 0) s.waiting.back().next_chunk_key = 1 + i % prompts;
      }
      std::vector<double> plans;
      for (int i = 0; i < 400; ++i) {
        const double begin = NowUs();
        const engine::StepPlan plan = engine::Plan(s);
        plans.push_back(NowUs() - begin);
        Check(plan.admit.size() == (prompts == 1 ? 1 : 60), "requests that a plan lets in");
      }
      const std::string title = std::string("Step's plan, 10,000 wait, ") + name +
                                (policy == engine::Policy::kFcfs ? ", fcfs" : ", longest_prefix");
      Print(title.c_str(), plans, 0);
    }
  }
}

int Main(int argc, char** argv) {
  int32_t chunks = kCommonChunks + kLineages * (kPromptChunks - kCommonChunks);
  std::string eviction = kvcache::CacheOptions().eviction;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--chunks=", 9) == 0) {
      chunks = std::atoi(argv[i] + 9);
    } else if (std::strncmp(argv[i], "--eviction=", 11) == 0) {
      eviction = argv[i] + 11;
    } else {
      std::fprintf(stderr, "tree_bench: cannot use %s\n", argv[i]);
      return 2;
    }
  }
  if (chunks < 10000) {
    std::fprintf(stderr, "tree_bench: --chunks=%d, must be at least 10000\n", chunks);
    return 2;
  }
  const absl::Status policy = kvcache::MakeEvictionPolicy(eviction, 1).status();
  if (!policy.ok()) {
    std::fprintf(stderr, "tree_bench: %s\n", std::string(policy.message()).c_str());
    return 2;
  }
  std::printf("eviction: %s\n", eviction.c_str());
  Bench bench(chunks + kSequences * (kPrivateChunks + 32), eviction);
  const int32_t lineages = Fill(&bench, chunks);
  Check(bench.cache->CheckInvariants());
  bool kept = TimeMatchAndJoin(&bench, lineages);
  kept &= TimePlans(&bench);
  TimeDecode(&bench);
  kept &= TimeEviction(&bench, lineages);
  TimeStepPlans();
  Check(bench.cache->CheckInvariants());
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) { return refrain::bench::Main(argc, argv); }
