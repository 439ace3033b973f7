// Bytes as operations on the KV cache: joins of prompts that share beginnings, forks, tokens
// appended and published, leaves, pins, drops, retained and awaited prompts, in a pool that is too
// small. After each one the cache's invariants hold, and every sequence reads exactly its own
// tokens.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "tests/kvcache/cache_harness.h"
#include "tests/kvcache/steady_line.h"
#include "tests/support/evict_all.h"

namespace refrain::testing {
namespace {

constexpr int32_t kSlots = 6;
constexpr const char* kTenants[] = {"", "a", "b"};
constexpr int kMaxOperations = 300;  // each is followed by a check of everything

// The input; zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint8_t Next() { return empty() ? 0 : data_[at_++]; }
  // In [0, n).
  int32_t Below(int32_t n) { return Next() % n; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

struct Pinned {
  std::string salt;
  Cells cells;
  int32_t tokens;
};

kvcache::CacheOptions Options(Bytes& in) {
  kvcache::CacheOptions options;
  options.chunk_tokens = 1 + in.Below(6);
  options.num_chunks = 4 + in.Below(28);
  options.max_slots = kSlots;
  const uint8_t flags = in.Next();
  options.prefix_cache = flags % 8 != 0;
  constexpr const char* kPolicies[] = {"reuse_rate", "lru", "s3fifo"};
  options.eviction = kPolicies[flags / 8 % 3];
  return options;
}

class Run {
 public:
  explicit Run(Bytes& in) : in_(in), h_(Options(in)) {}

  void Step() {
    const uint8_t operation = in_.Next() % 16;
    if (h_.expected.empty() || operation < 4) return Join();
    const uint64_t id = Pick();
    if (operation < 6) return Fork(id);
    if (operation < 8) {
      h_.cache->Answered(kvcache::SequenceId{id},
                         static_cast<kvcache::AnswerEnd>(id % kvcache::kAnswerEnds));
      return h_.Leave(id);
    }
    if (operation < 11) return Append(id);
    if (operation < 14) return Publish(id);
    if (operation == 14) {
      return h_.cache->Retain(kvcache::SequenceId{id}, kTenants[id % std::size(kTenants)]);
    }
    Operate(id);
  }

  void CheckAll() { h_.CheckAll(); }

  // Everybody leaves: nothing stays in use.
  void Finish() {
    while (!pinned_.empty()) Unpin();
    while (!h_.expected.empty()) h_.Leave(h_.expected.begin()->first);
    h_.CheckAll();
    testing::EvictAll(h_.cache.get());
    h_.CheckAll();
    EXPECT_EQ(h_.cache->stats().free_chunks, h_.cache->options().num_chunks);
  }

 private:
  uint64_t Pick() {
    const auto size = static_cast<int32_t>(h_.expected.size());
    return std::next(h_.expected.begin(), in_.Below(size))->first;
  }
  std::string Salt() { return in_.Below(4) == 0 ? "b" : "a"; }

  // Of two letters, so that beginnings meet; now and then a position is left out.
  Cells Tokens(int32_t count, int32_t position) {
    Cells cells;
    uint8_t bits = 0;
    for (int32_t i = 0; i < count; ++i) {
      if (i % 7 == 0) {
        bits = in_.Next();
        if (bits > 250) ++position;
      }
      cells.push_back({bits >> i % 7 & 1, position++});
    }
    return cells;
  }

  void Join() {
    if (h_.expected.size() == kSlots) return h_.Leave(Pick());
    const std::string salt = Salt();
    const Cells prompt = Tokens(1 + in_.Below(30), 0);
    const uint64_t id = next_id_++;
    const int32_t found = h_.Join(id, prompt, salt);
    if (in_.Below(2) == 0) Grow(id, Cells(prompt.begin() + found, prompt.end()));
  }

  void Fork(uint64_t source) {
    const int32_t published = h_.cache->published_tokens(kvcache::SequenceId{source});
    const bool has_slot = h_.expected.size() < kSlots;
    const absl::Status status = h_.Fork(next_id_++, source, in_.Below(published + 1));
    EXPECT_EQ(status.ok(), has_slot);
  }

  void Grow(uint64_t id, const Cells& cells) {
    if (!h_.Append(id, cells).ok()) h_.Leave(id);
  }

  void Append(uint64_t id) {
    const Cells& cells = h_.expected[id];
    if (cells.size() > 60) return h_.Leave(id);
    const int32_t position = cells.empty() ? 0 : cells.back().position + 1;
    Grow(id, Tokens(1 + in_.Below(12), position));
  }

  void Publish(uint64_t id) {
    const int32_t open = static_cast<int32_t>(h_.expected[id].size()) -
                         h_.cache->published_tokens(kvcache::SequenceId{id});
    if (open > 0) h_.Publish(id, 1 + in_.Below(open));
  }

  // What operators and waiting sequences do, with the tokens of some sequence.
  void Operate(uint64_t id) {
    const std::string salt = h_.salts[id];
    Cells cells = h_.expected[id];
    if (cells.empty()) return;
    cells.resize(1 + static_cast<size_t>(in_.Below(static_cast<int32_t>(cells.size()))));
    switch (in_.Below(6)) {
      case 0:
        testing::EvictAll(h_.cache.get());
        break;
      case 1:
        h_.cache->Drop({"", salt}, SpanOf(cells).span());
        break;
      case 2: {
        const int32_t tokens = h_.cache->Pin({"", salt}, SpanOf(cells).span());
        if (tokens > 0) pinned_.push_back({salt, cells, tokens});
        break;
      }
      case 3:
        lines_[id % 2].Delay(static_cast<int64_t>(id / 4 % 3));
        h_.cache->Await(kvcache::SequenceId{id % 4},
                        {.rank = in_.Below(3), .line = &lines_[id % 2]}, h_.Match(cells, salt));
        break;
      case 4:
        h_.cache->StopAwaiting(kvcache::SequenceId{id % 4});
        break;
      default:
        if (!pinned_.empty()) Unpin();
    }
  }

  void Unpin() {
    const Pinned last = pinned_.back();
    pinned_.pop_back();
    h_.cache->Unpin({"", last.salt}, SpanOf(last.cells).span(), last.tokens);
  }

  Bytes& in_;
  SteadyLine lines_[2] = {{0, 2}, {1, 3}};
  CacheHarness h_;
  uint64_t next_id_ = 1;
  std::vector<Pinned> pinned_;
};

}  // namespace
}  // namespace refrain::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  refrain::testing::Bytes in(data, size);
  refrain::testing::Run run(in);
  for (int i = 0; i < refrain::testing::kMaxOperations && !in.empty(); ++i) {
    run.Step();
    run.CheckAll();
    if (::testing::Test::HasFailure()) std::abort();
  }
  run.Finish();
  if (::testing::Test::HasFailure()) std::abort();
  return 0;
}
