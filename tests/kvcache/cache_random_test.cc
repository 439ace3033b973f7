#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/kvcache/cache_harness.h"
#include "tests/kvcache/lineages.h"
#include "tests/kvcache/steady_line.h"
#include "tests/support/evict_all.h"
#include "tests/support/random_steps.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CacheHarness;
using ::refrain::testing::Cells;
using ::refrain::testing::ChunksOf;
using ::refrain::testing::Common;
using ::refrain::testing::FakeKvCell;
using ::refrain::testing::Lineage;
using ::refrain::testing::LongestOf;

struct Setting {
  int32_t chunk_tokens;
  int32_t num_chunks;
  bool prefix_cache;
  bool other_positions;  // some sequences do not count 0, 1, 2, ...
  const char* eviction = "reuse_rate";
  uint64_t hash_mask = ~uint64_t{0};  // 1: lineages have one of two hashes
};

// Random requests of few tokens, so that prefixes meet, run against plain lists: what a sequence
// reads, and that nothing is matched that was not published in its namespace.
class RandomRun {
 public:
  RandomRun(const Setting& setting, uint32_t seed)
      : setting_(setting),
        random_(seed),
        h_({.num_chunks = setting.num_chunks,
            .chunk_tokens = setting.chunk_tokens,
            .max_slots = kSlots,
            .prefix_cache = setting.prefix_cache,
            .eviction = setting.eviction,
            .hash_mask = setting.hash_mask}) {}

  void Step() {
    const size_t action = Below(25);
    if (h_.expected.empty() || action < 4) {
      Join();
    } else if (action < 6) {
      Fork();
    } else if (action < 9) {
      Below(8) == 0 ? LeaveTogether() : Leave(Pick());
    } else if (action < 15) {
      Append(Pick());
    } else if (action < 21) {
      Publish(Pick());
    } else if (action < 22) {
      Pin();
    } else if (action < 23) {
      Unpin();
    } else if (action < 24) {
      Await();
    } else if (Below(2) == 0) {
      const uint64_t id = Pick();
      h_.cache->Retain(SequenceId{id}, kTenants[id % std::size(kTenants)]);
    } else if (Below(Occupied() == setting_.num_chunks ? 10 : 1000) == 0) {
      EvictAll();  // seldom before the pool is full
    } else if (Below(2) == 0) {
      Drop();
    }
    ASSERT_NO_FATAL_FAILURE(h_.CheckAll());
    CheckKeptMatches();
    most_occupied_ = std::max(most_occupied_, Occupied());
    if (++steps_ % 8 == 0) CheckOccupancy();
  }

  void Finish() {
    while (!pins_.empty()) Unpin();
    while (!h_.expected.empty()) Leave(h_.expected.begin()->first);
    testing::EvictAll(h_.cache.get());
    ASSERT_NO_FATAL_FAILURE(h_.CheckAll());
    EXPECT_EQ(h_.cache->stats().free_chunks, setting_.num_chunks);
    EXPECT_EQ(h_.cache->tree().roots().size(), 0u);
    EXPECT_GT(refused_, 10);
    EXPECT_GT(given_back_together_, setting_.prefix_cache ? 20 : 5);  // forks alone share less
    if (!setting_.prefix_cache) return;
    EXPECT_GT(matched_, 1000);
    EXPECT_GT(still_current_, 1000);
    EXPECT_GT(out_of_date_, 100);
    EXPECT_EQ(most_occupied_, setting_.num_chunks);
    EXPECT_GT(evicted_for_others_, 0);
    EXPECT_GT(h_.cache->stats().evicted_chunks_total, 50);
    // Large chunks are seldom filled twice with the same.
    EXPECT_GT(h_.cache->stats().merged_chunks_total, setting_.chunk_tokens < 32 ? 10 : 0);
    if (setting_.chunk_tokens == 1) return;
    EXPECT_GT(h_.cache->stats().copied_chunks_total, 50);
  }

 private:
  static constexpr int kSlots = 12;
  static constexpr const char* kTenants[] = {"", "a", "b"};
  struct PinnedRange {
    std::string salt;
    Cells cells;
    int32_t pinned;
  };

  // As of an earlier step.
  struct KeptMatch {
    std::string salt;
    Cells prompt;
    MatchResult match;
  };

  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  uint64_t Pick() {
    return std::next(h_.expected.begin(), static_cast<ptrdiff_t>(Below(h_.expected.size())))->first;
  }
  std::string Salt() { return Below(3) == 0 ? "b" : "a"; }

  // Mostly the beginning of something known, then a little else.
  Cells Prompt() {
    Cells prompt;
    const size_t other = setting_.other_positions && Below(3) == 0 ? 1 + Below(2) : 0;
    if (!h_.expected.empty() && Below(2) == 0) {
      prompt = h_.expected[Pick()];
    } else if (!seen_.empty()) {
      prompt = seen_[Below(seen_.size())];
    }
    if (!prompt.empty() && Below(2) == 0) prompt.resize(1 + Below(prompt.size()));
    AddTokens(1 + Below(5), other, &prompt);
    return prompt;
  }

  void AddTokens(size_t count, size_t gap, Cells* cells) {
    for (size_t i = 0; i < count; ++i) {
      const int32_t position =
          cells->empty() ? static_cast<int32_t>(gap)
                         : cells->back().position + 1 + static_cast<int32_t>(i == 0 ? gap : 0);
      cells->push_back({static_cast<int32_t>(Below(2)), position});
    }
  }

  void Join() {
    const std::string salt = Salt();
    const Cells prompt = Prompt();
    const uint64_t id = next_id_++;
    if (h_.expected.size() == kSlots) {
      EXPECT_FALSE(h_.cache->Join(SequenceId{id}, {"", salt}, {}, 1).ok());
      ++refused_;
      return;
    }
    const MatchResult match = h_.Match(prompt, salt);
    EXPECT_TRUE(h_.cache->IsCurrent(match));
    const CacheStats before = h_.cache->stats();
    const int32_t found = h_.Join(id, prompt, salt);
    EXPECT_EQ(before.available_chunks() - h_.cache->stats().available_chunks(), match.idle_chunks);
    matched_ += found;
    ASSERT_GE(found, RunningPrefix(id, salt, prompt));
    if (Below(2) == 0) Grow(id, Cells(prompt.begin() + found, prompt.end()));
  }

  // Tokens of `prompt` that another running sequence published: these cannot have been evicted.
  int32_t RunningPrefix(uint64_t joiner, const std::string& salt, const Cells& prompt) const {
    int32_t longest = 0;
    if (!setting_.prefix_cache) return longest;
    for (const auto& [id, cells] : h_.expected) {
      if (id == joiner || h_.salts.at(id) != salt) continue;
      longest = std::max(
          longest, std::min(Common(cells, prompt), h_.cache->published_tokens(SequenceId{id})));
    }
    return longest;
  }
  void CheckKeptMatches() {
    for (size_t i = 0; i < kept_.size(); ++i) {
      KeptMatch& kept = kept_[i];
      const MatchResult again = h_.Match(kept.prompt, kept.salt);
      const MatchResult from_there = h_.MatchAgain(kept.match, kept.prompt, kept.salt);
      ASSERT_EQ(from_there.num_tokens, again.num_tokens);
      ASSERT_EQ(from_there.node, again.node);
      ASSERT_EQ(from_there.stamp, again.stamp);
      ASSERT_EQ(from_there.idle_chunks, again.idle_chunks);
      if (!h_.cache->IsCurrent(kept.match)) {
        ++out_of_date_;
        kept = kept_.back();
        kept_.pop_back();
        continue;
      }
      ++still_current_;
      ASSERT_EQ(again.num_tokens, kept.match.num_tokens);
      ASSERT_NO_FATAL_FAILURE(CheckThatItMatches(kept));
    }
    if (kept_.size() < 20) {
      kept_.push_back({Salt(), Prompt(), {}});
      kept_.back().match = h_.Match(kept_.back().prompt, kept_.back().salt);
    }
  }

  // The node where it ended still spells it, and so do those before; as many of them are idle.
  void CheckThatItMatches(KeptMatch& kept) {
    h_.cache->CountIdleAgain(&kept.match);
    const PrefixTree& tree = h_.cache->tree();
    int32_t idle = 0;
    if (kept.match.node == kNoNode) return;
    for (NodeId id = kept.match.node; !tree.node(id).is_root(); id = tree.node(id).parent) {
      const PrefixTree::Node& node = tree.node(id);
      const int32_t end = std::min(node.end_tokens(), kept.match.num_tokens);
      for (int32_t i = node.depth_tokens; i < end; ++i) {
        const auto at = static_cast<size_t>(i - node.depth_tokens);
        const FakeKvCell cell{static_cast<int32_t>(tree.ids(id)[at]),
                              node.positions != nullptr ? node.positions[at] : i};
        ASSERT_EQ(cell, kept.prompt[static_cast<size_t>(i)]);
      }
      idle += node.use.refs == 0 && node.use.pins == 0 ? 1 : 0;
      ASSERT_TRUE(id != kept.match.node || end == kept.match.num_tokens);
    }
    ASSERT_EQ(idle, kept.match.idle_chunks);
  }

  int32_t Occupied() const {
    const CacheStats stats = h_.cache->stats();
    return stats.used_chunks + stats.cached_chunks;
  }

  // What is used and cached is no more than the distinct tokens of what runs, and of what ran and
  // is still matched, need: less than one chunk is lost for each sequence.
  void CheckOccupancy() {
    ForgetEvicted();
    std::set<Lineage> lineages = ended_;
    const int32_t c = setting_.chunk_tokens;
    int32_t needed = 0;
    for (const auto& [id, cells] : h_.expected) {
      const int32_t whole = h_.cache->published_tokens(SequenceId{id}) / c;
      needed += (static_cast<int32_t>(cells.size()) + c - 1) / c - whole;
      // Without the cache what is equal is not shared.
      const std::string name = setting_.prefix_cache ? h_.salts.at(id) : std::to_string(id);
      lineages.insert({name, Cells(cells.begin(), cells.begin() + whole * c)});
    }
    needed += ChunksOf(lineages, c);
    ASSERT_LE(Occupied(), needed);
  }

  // Of what ran, the parts that are matched no more, and what begins something longer.
  void ForgetEvicted() {
    std::set<Lineage> matched;
    for (Lineage lineage : ended_) {
      lineage.cells.resize(static_cast<size_t>(h_.Match(lineage.cells, lineage.salt).num_tokens));
      matched.insert(std::move(lineage));
    }
    ended_ = LongestOf(matched);
  }

  void Fork() {
    const uint64_t source = Pick();
    const uint64_t id = next_id_++;
    const int32_t published = h_.cache->published_tokens(SequenceId{source});
    const size_t length =
        Below(3) == 0 ? Below(static_cast<size_t>(published) + 1) : static_cast<size_t>(published);
    if (Below(8) == 0) return HandOver(id, source, length);
    if (!h_.Fork(id, source, static_cast<int32_t>(length)).ok()) ++refused_;
  }

  void HandOver(uint64_t id, uint64_t source, size_t length) {
    RememberEnded(source);
    h_.cache->HandOver(SequenceId{id}, SequenceId{source}, static_cast<int32_t>(length));
    h_.expected[id] = h_.expected[source];
    h_.expected[id].resize(length);
    h_.salts[id] = h_.salts[source];
    h_.expected.erase(source);
    h_.salts.erase(source);
  }

  void Grow(uint64_t id, const Cells& cells) {
    const CacheStats before = h_.cache->stats();
    const absl::Status appended = h_.Append(id, cells);
    evicted_for_others_ += h_.cache->stats().evicted_chunks_total - before.evicted_chunks_total;
    if (appended.ok()) return;
    ++refused_;
    EXPECT_EQ(before.free_chunks, h_.cache->stats().free_chunks);
    // As the engine does: someone is preempted.
    Leave(Pick());
  }

  void Append(uint64_t id) {
    Cells& cells = h_.expected[id];
    if (cells.size() > static_cast<size_t>(setting_.chunk_tokens) * 8) return Leave(id);
    Cells more = cells;
    const size_t most = Below(4) == 0 ? 2 * static_cast<size_t>(setting_.chunk_tokens) : 4;
    const size_t gap = setting_.other_positions && Below(20) == 0 ? 1 : 0;
    if (const Cells* like = Continuation(cells); like != nullptr && Below(2) == 0) {
      more.insert(more.end(), like->begin() + static_cast<ptrdiff_t>(cells.size()),
                  like->begin() + static_cast<ptrdiff_t>(
                                      std::min(like->size(), cells.size() + 1 + Below(most))));
    } else {
      AddTokens(1 + Below(most), gap, &more);
    }
    Grow(id, Cells(more.begin() + static_cast<ptrdiff_t>(cells.size()), more.end()));
  }

  // Something known that begins with all of `cells` and goes on: to compute the same twice.
  const Cells* Continuation(const Cells& cells) const {
    for (const Cells& known : seen_) {
      if (known.size() > cells.size() &&
          Common(known, cells) == static_cast<int32_t>(cells.size())) {
        return &known;
      }
    }
    return nullptr;
  }

  void Publish(uint64_t id) {
    const int32_t open =
        static_cast<int32_t>(h_.expected[id].size()) - h_.cache->published_tokens(SequenceId{id});
    if (open == 0) return Append(id);
    h_.Publish(id, 1 + static_cast<int32_t>(Below(static_cast<size_t>(open))));
    Remember(id);
  }

  Cells Published(uint64_t id) const {
    const Cells& cells = h_.expected.at(id);
    return Cells(cells.begin(), cells.begin() + h_.cache->published_tokens(SequenceId{id}));
  }

  void Remember(uint64_t id) {
    const Cells known = Published(id);
    if (seen_.size() < 60) {
      seen_.push_back(known);
    } else {
      seen_[Below(seen_.size())] = known;
    }
  }

  void RememberEnded(uint64_t id) {
    if (!setting_.prefix_cache) return;
    ended_.insert({h_.salts.at(id), Published(id)});
  }

  Cells SomeFirst(const Cells& cells) {
    return {cells.begin(), cells.begin() + static_cast<ptrdiff_t>(Below(cells.size() + 1))};
  }

  void Leave(uint64_t id) {
    RememberEnded(id);
    h_.cache->Answered(SequenceId{id}, static_cast<AnswerEnd>(Below(kAnswerEnds)));
    const size_t way = Below(8);
    if (way < 3) return h_.Leave(id);
    Cells kept = h_.expected[id];
    const std::string salt = h_.salts[id];
    if (way < 6) {
      const Cells known = Published(id);
      const MatchResult before = h_.Match(SomeFirst(known), salt);
      h_.LeaveForNow(id);
      if (way == 3) return;
      const auto answer = static_cast<AnswerEnd>(Below(kAnswerEnds));
      return h_.cache->Keep(before, {"", salt}, testing::SpanOf(known).span(), answer);
    }
    kept.resize(std::min(Below(kept.size() + 2), kept.size()));
    const int32_t found = h_.Match(kept, salt).num_tokens;
    h_.LeaveForGood(id, static_cast<int32_t>(kept.size()));
    if (!setting_.prefix_cache) return;
    EXPECT_EQ(h_.Match(kept, salt).num_tokens, found);
  }

  // Some leave one after the other: how much is free then can be told before.
  void LeaveTogether() {
    std::vector<SequenceId> sequences;
    for (const auto& [id, cells] : h_.expected) sequences.push_back(SequenceId{id});
    std::shuffle(sequences.begin(), sequences.end(), random_);
    SharedRuns shared = h_.cache->FindSharedRuns(sequences);
    ASSERT_EQ(shared.last_runs.size(), sequences.size());
    std::vector<int32_t> own;
    for (const SequenceId id : sequences) own.push_back(h_.cache->ExclusiveChunks(id));
    int32_t available = h_.cache->stats().available_chunks();
    for (size_t i = 0, count = 1 + Below(sequences.size()); i < count; ++i) {
      available += own[i];
      for (int32_t run = shared.last_runs[i]; run >= 0; run = shared.runs[run].parent) {
        if (--shared.runs[run].holders > 0) continue;
        available += shared.runs[run].chunks;
        given_back_together_ += shared.runs[run].chunks;
      }
      Leave(static_cast<uint64_t>(sequences[i]));
      ASSERT_EQ(h_.cache->stats().available_chunks(), available);
    }
  }

  void Pin() {
    if (seen_.empty() || pins_.size() > 2) return;
    PinnedRange range{Salt(), seen_[Below(seen_.size())], 0};
    range.pinned = h_.cache->Pin({"", range.salt}, testing::SpanOf(range.cells).span());
    EXPECT_EQ(range.pinned % setting_.chunk_tokens, 0);
    if (range.pinned > 0) pins_.push_back(range);
  }
  void Unpin() {
    if (pins_.empty()) return;
    const PinnedRange range = pins_.back();
    pins_.pop_back();
    EXPECT_GE(h_.Match(range.cells, range.salt).num_tokens, range.pinned);
    h_.cache->Unpin({"", range.salt}, testing::SpanOf(range.cells).span(), range.pinned);
  }
  // Eight sequences that wait in two lines: of lower ids than any that runs, and of higher ones.
  void Await() {
    const SequenceId sequence{Below(2) * (uint64_t{1} << 40) + Below(4)};
    if (Below(4) == 0) return h_.cache->StopAwaiting(sequence);
    testing::SteadyLine& line = lines_[Below(2)];
    line.Delay(static_cast<int64_t>(Below(3)));
    const auto rank = static_cast<int32_t>(Below(3));
    h_.cache->Await(sequence, {.rank = rank, .line = &line}, h_.Match(Prompt(), Salt()));
  }
  void Drop() {
    if (seen_.empty()) return;
    const std::string salt = Salt();
    const Cells cells = seen_[Below(seen_.size())];
    if (Below(2) == 0) return Forget(salt, cells);
    const int32_t cached = h_.cache->stats().cached_chunks;
    const int32_t dropped = h_.cache->Drop({"", salt}, testing::SpanOf(cells).span());
    EXPECT_EQ(h_.cache->stats().cached_chunks, cached - dropped);
  }
  void Forget(const std::string& salt, const Cells& cells) {
    const Cells kept = SomeFirst(cells);
    const int32_t found = h_.Match(kept, salt).num_tokens;
    h_.cache->Forget(h_.Match(SomeFirst(cells), salt), {"", salt}, testing::SpanOf(cells).span(),
                     static_cast<int32_t>(kept.size()));
    EXPECT_EQ(h_.Match(kept, salt).num_tokens, found);
  }
  void EvictAll() {
    const int32_t cached = h_.cache->stats().cached_chunks;
    EXPECT_EQ(testing::EvictAll(h_.cache.get()), cached);
    EXPECT_EQ(h_.cache->stats().cached_chunks, 0);
  }

  const Setting setting_;
  std::mt19937 random_;
  testing::SteadyLine lines_[2] = {{0, 2}, {1, 3}};
  CacheHarness h_;
  uint64_t next_id_ = 1;
  std::vector<Cells> seen_;
  std::vector<PinnedRange> pins_;
  std::vector<KeptMatch> kept_;
  std::set<Lineage> ended_;  // of sequences that left
  int64_t steps_ = 0;
  int32_t most_occupied_ = 0;       // chunks
  int64_t evicted_for_others_ = 0;  // chunks that made room
  int64_t refused_ = 0;
  int64_t matched_ = 0;
  int64_t still_current_ = 0;
  int64_t out_of_date_ = 0;
  int64_t given_back_together_ = 0;
};

constexpr int kSettings = 12;
constexpr int32_t kMostChunks = 200;

// A long run is that long on the largest trees; the small ones, of which there are more shapes,
// have a part of it.
int StepsOf(const Setting& setting) {
  const int steps = testing::RandomSteps();
  return setting.num_chunks == kMostChunks ? steps : std::max(10000, steps / kSettings);
}

class CacheRandomTest : public ::testing::TestWithParam<Setting> {};

TEST_P(CacheRandomTest, AgreesWithPlainLists) {
  RandomRun run(GetParam(), testing::RandomSeed(4711));
  const int steps = StepsOf(GetParam());
  for (int step = 0; step < steps; ++step) {
    ASSERT_NO_FATAL_FAILURE(run.Step()) << "step " << step;
    if (::testing::Test::HasFailure()) FAIL() << "step " << step;
  }
  run.Finish();
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CacheRandomTest,
    ::testing::Values(Setting{1, 60, true, false}, Setting{1, kMostChunks, true, true},
                      Setting{4, 60, true, false, "lru"}, Setting{16, 40, true, false},
                      Setting{16, kMostChunks, true, true, "s3fifo"}, Setting{64, 40, true, true},
                      Setting{64, kMostChunks, true, false}, Setting{32, 40, true, true},
                      Setting{128, 24, true, false}, Setting{16, 40, false, false},
                      Setting{4, 60, false, true}, Setting{4, 60, true, true, "reuse_rate", 1}),
    [](const auto& info) {
      return "Chunk" + std::to_string(info.param.chunk_tokens) + "Pool" +
             std::to_string(info.param.num_chunks) + (info.param.prefix_cache ? "On" : "Off") +
             (info.param.other_positions ? "AnyPositions" : "") +
             (info.param.hash_mask == 1 ? "TwoHashes" : "");
    });

}  // namespace
}  // namespace refrain::kvcache
