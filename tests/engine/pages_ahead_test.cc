#include "engine/pages_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

namespace refrain::engine {
namespace {

constexpr size_t kPiece = PagesAhead::kPieceBytes;

// Pages that are touched one piece at a time, when the test lets them.
class Pages {
 public:
  PagesAhead::Populate populate() {
    return [this](size_t begin, size_t end) {
      std::unique_lock<std::mutex> lock(mutex_);
      began_ += 1;
      changed_.notify_all();
      changed_.wait(lock, [this] { return allowed_ > 0; });
      --allowed_;
      EXPECT_GE(begin, end_) << "touched twice";
      EXPECT_LT(begin, end);
      EXPECT_LE(end - begin, kPiece);
      EXPECT_EQ(begin / kPiece, (end - 1) / kPiece) << "more than one huge page at once";
      end_ = end;
      touched_ += end - begin;
      changed_.notify_all();
      return works;
    };
  }
  void Allow(int pieces) {
    std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += pieces;
    changed_.notify_all();
  }
  // Waits until so many were begun.
  bool Began(int pieces) {
    return Holds([&] { return began_ >= pieces; });
  }
  bool Touched(size_t bytes) {
    return Holds([&] { return touched_ == bytes; });
  }
  // That nothing more is touched can only be waited for.
  size_t AfterAWhile() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::lock_guard<std::mutex> lock(mutex_);
    return touched_;
  }

  bool works = true;

 private:
  template <typename Condition>
  bool Holds(Condition condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
  int began_ = 0;
  size_t end_ = 0;
  size_t touched_ = 0;
};

// Chunks of 1.5 MiB and 64 tokens: 42 of them are 63 MiB, 64 are 4,096 tokens.
constexpr PagesAhead::Pool kPool{.chunk_bytes = 3 << 19, .chunk_tokens = 64, .num_chunks = 1000};

// In the first steps of so many sequences.
void ExpectAPieceAStep(PagesAhead& ahead, Pages& pages, int32_t sequences, size_t steps) {
  for (size_t step = 1; step <= steps; ++step) {
    ahead.StepBegins(0, sequences);
    EXPECT_TRUE(pages.Touched(step * kPiece));
  }
}

TEST(PagesAheadTest, AnIdleEngineHasItsBoundTouchedAndNoMore) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead(kPool, pages.populate());
  EXPECT_EQ(pages.AfterAWhile(), 0u) << "nobody said that the engine is idle";
  ahead.EngineIsIdle(0);
  EXPECT_TRUE(pages.Touched(size_t{63} << 20));
  ahead.StepBegins(0, 1);
  ahead.EngineIsIdle(0);
  EXPECT_EQ(pages.AfterAWhile(), size_t{63} << 20);
}

// Of small chunks it is the tokens that bound.
TEST(PagesAheadTest, TouchesNoMoreThanSoManyTokens) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead({.chunk_bytes = 8192, .chunk_tokens = 16, .num_chunks = 1000}, pages.populate());
  ahead.EngineIsIdle(0);
  EXPECT_TRUE(pages.Touched(size_t{4096} / 16 * 8192));
  EXPECT_EQ(pages.AfterAWhile(), size_t{4096} / 16 * 8192);
}

// What the engine has used needs no touching, and the pool ends somewhere.
TEST(PagesAheadTest, GoesOnBehindWhatWasUsedUpToThePoolsEnd) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead({.chunk_bytes = 3 << 19, .chunk_tokens = 64, .num_chunks = 100},
                   pages.populate());
  ahead.EngineIsIdle(10);
  EXPECT_TRUE(pages.Touched(size_t{63} << 20));
  ahead.StepBegins(52, 0);
  ahead.EngineIsIdle(52);                         // used just what had been touched
  EXPECT_TRUE(pages.Touched(size_t{135} << 20));  // 15 of 150 MiB were used before
  ahead.StepBegins(99, 0);
  ahead.EngineIsIdle(99);
  EXPECT_EQ(pages.AfterAWhile(), size_t{135} << 20);
}

TEST(PagesAheadTest, WhoUsedMuchHasAsMuchAgainWithinABound) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead({.chunk_bytes = 1 << 20, .chunk_tokens = 64, .num_chunks = 5000},
                   pages.populate());
  ahead.EngineIsIdle(200);
  EXPECT_TRUE(pages.Touched(size_t{200} << 20));
  EXPECT_EQ(pages.AfterAWhile(), size_t{200} << 20);
  ahead.StepBegins(400, 0);  // what a step of sequences has touched comes on top
  ahead.EngineIsIdle(2000);
  EXPECT_TRUE(pages.Touched(size_t{712} << 20));
  EXPECT_EQ(pages.AfterAWhile(), size_t{712} << 20);
}

// A request comes while a piece is being touched: the engine is not held up, and no other piece is
// begun for an idle engine.
TEST(PagesAheadTest, ABusyEngineWaitsForNothing) {
  Pages pages;
  PagesAhead ahead(kPool, pages.populate());
  ahead.EngineIsIdle(0);
  ASSERT_TRUE(pages.Began(1));
  ahead.StepBegins(0, 0);  // returns, though the piece is not done
  pages.Allow(1 << 20);
  EXPECT_TRUE(pages.Touched(kPiece));
  EXPECT_EQ(pages.AfterAWhile(), kPiece);
  ahead.EngineIsIdle(0);
  EXPECT_TRUE(pages.Touched(size_t{63} << 20));
}

// 32 sequences that are to take a chunk each, 48 MiB, in some later step.
TEST(PagesAheadTest, RunningSequencesHaveTheirNextChunksTouchedAPieceAStep) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead(kPool, pages.populate());
  ExpectAPieceAStep(ahead, pages, 32, 24);
  for (int step = 0; step < 3; ++step) ahead.StepBegins(0, 32);
  EXPECT_EQ(pages.AfterAWhile(), size_t{48} << 20);
  ahead.StepBegins(32, 32);  // they took them: there are others to come
  EXPECT_TRUE(pages.Touched(25 * kPiece));
  EXPECT_EQ(pages.AfterAWhile(), 25 * kPiece);
}

// So many sequences that their next chunks are more than an idle engine has.
TEST(PagesAheadTest, RunningSequencesHaveNoMoreTouchedThanAnIdleEngine) {
  Pages pages;
  pages.Allow(1 << 20);
  PagesAhead ahead(kPool, pages.populate());
  ExpectAPieceAStep(ahead, pages, 256, 31);
  for (int step = 0; step < 3; ++step) {
    ahead.StepBegins(0, 256);
    EXPECT_TRUE(pages.Touched(size_t{63} << 20));
  }
  EXPECT_EQ(pages.AfterAWhile(), size_t{63} << 20);
}

TEST(PagesAheadTest, WhatCannotBeTouchedIsNotTriedAgain) {
  Pages pages;
  pages.works = false;
  pages.Allow(1 << 20);
  PagesAhead ahead(kPool, pages.populate());
  ahead.EngineIsIdle(0);
  EXPECT_TRUE(pages.Touched(kPiece));
  for (int i = 0; i < 100; ++i) {
    ahead.StepBegins(i, 32);
    ahead.EngineIsIdle(i);
  }
  EXPECT_EQ(pages.AfterAWhile(), kPiece);
}

// The bounds hold at every piece, however idle and busy alternate.
TEST(PagesAheadTest, RandomUseNeverHasMoreThanTheBoundTouched) {
  std::mt19937 random(7);
  std::atomic<int32_t> used = 0;
  std::atomic<int> pieces = 0;
  const PagesAhead::Pool pool{.chunk_bytes = 3 << 19, .chunk_tokens = 64, .num_chunks = 3000};
  PagesAhead ahead(pool, [&](size_t, size_t end) {
    const size_t used_bytes = static_cast<size_t>(used) * pool.chunk_bytes;
    EXPECT_LE(end, used_bytes +
                       std::clamp(used_bytes, PagesAhead::kMostBytes, PagesAhead::kMostBytesAgain));
    ++pieces;
    return true;
  });
  for (int i = 0; i < 500; ++i) {
    ahead.EngineIsIdle(used);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    for (int steps = 1 + random() % 3; steps > 0; --steps) {
      ahead.StepBegins(used, static_cast<int32_t>(random() % 64));
      used += static_cast<int32_t>(random() % 6);
    }
  }
  EXPECT_GT(pieces, 100);
}

}  // namespace
}  // namespace refrain::engine
