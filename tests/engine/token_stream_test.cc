#include "engine/token_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace refrain::engine {
namespace {

StreamBatch Tokens(const std::vector<int32_t>& ids) {
  StreamBatch batch;
  for (const int32_t id : ids) batch.tokens.push_back({.token = TokenId{id}});
  batch.usage.completion_tokens = static_cast<int32_t>(ids.size());
  return batch;
}

TEST(TokenStreamTest, GivesEverythingOnceInOrder) {
  TokenStream stream;
  EXPECT_TRUE(stream.Read().tokens.empty());
  stream.Push(Tokens({1, 2}));
  stream.Push(Tokens({3}));
  const StreamBatch batch = stream.Read();
  ASSERT_EQ(batch.tokens.size(), 3u);
  EXPECT_EQ(batch.tokens[2].token, TokenId{3});
  EXPECT_TRUE(stream.Read().tokens.empty());
}

TEST(TokenStreamTest, TellsInEachBatchWhereThePromptLeftTheModel) {
  TokenStream stream;
  EXPECT_EQ(stream.Read().reasoning, ReasoningStart::kBehind);
  stream.SetReasoningStart(ReasoningStart::kInside);
  StreamBatch first;
  first.tokens.push_back({.token = TokenId{1}});
  stream.Push(std::move(first));
  EXPECT_EQ(stream.Read().reasoning, ReasoningStart::kInside);
  EXPECT_EQ(stream.Read().reasoning, ReasoningStart::kInside);
  stream.Cut(absl::UnavailableError("not read"));
  EXPECT_EQ(stream.Read().reasoning, ReasoningStart::kInside);
}

TEST(TokenStreamTest, WakesUpOncePerTurnFromNothingToSomething) {
  TokenStream stream;
  int wakeups = 0;
  stream.SetWakeup([&] { ++wakeups; });
  EXPECT_EQ(wakeups, 0);
  stream.Push({});
  EXPECT_EQ(wakeups, 0);
  stream.Push(Tokens({1}));
  stream.Push(Tokens({2}));
  EXPECT_EQ(wakeups, 1);
  stream.Read();
  stream.Finish(absl::OkStatus());
  EXPECT_EQ(wakeups, 2);
}

TEST(TokenStreamTest, TellsWhenTheOldestUnreadTokenWasSampled) {
  using Time = std::chrono::steady_clock::time_point;
  TokenStream stream;
  for (const int seconds : {5, 7}) {
    StreamBatch batch = Tokens({seconds});
    batch.first_sampled = Time(std::chrono::seconds(seconds));
    stream.Push(std::move(batch));
  }
  EXPECT_EQ(stream.Read().first_sampled, Time(std::chrono::seconds(5)));
  stream.Finish(absl::OkStatus());
  EXPECT_FALSE(stream.Read().first_sampled.has_value());
}

TEST(TokenStreamTest, WakesUpAtOnceWhenThereIsSomethingAlready) {
  TokenStream stream;
  stream.Push(Tokens({1}));
  int wakeups = 0;
  stream.SetWakeup([&] { ++wakeups; });
  EXPECT_EQ(wakeups, 1);
}

// The thread that is woken up may be quicker than the one that wakes it up.
TEST(TokenStreamTest, CanBeReadWhileTheWakeupRuns) {
  TokenStream stream;
  std::promise<size_t> read;
  std::thread reader;
  bool in_time = false;
  stream.SetWakeup([&] {
    reader = std::thread([&] { read.set_value(stream.Read().tokens.size()); });
    in_time = read.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  });
  stream.Push(Tokens({1, 2}));
  reader.join();
  EXPECT_TRUE(in_time);
}

TEST(TokenStreamTest, SetWakeupWaitsForTheFormerOne) {
  TokenStream stream;
  std::promise<void> begun;
  std::atomic<bool> ended{false};
  stream.SetWakeup([&] {
    begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ended = true;
  });
  std::thread writer([&] { stream.Push(Tokens({1})); });
  begun.get_future().wait();
  stream.SetWakeup(nullptr);
  EXPECT_TRUE(ended);
  writer.join();
}

// A reply is made at each wakeup: one too many would be a second answer, one too few none.
TEST(TokenStreamTest, WakesUpOnceWhateverComesTogether) {
  for (int round = 0; round < 2000; ++round) {
    TokenStream stream;
    std::atomic<int> wakeups{0};
    std::thread writer([&] { stream.Finish(absl::OkStatus()); });
    stream.SetWakeup([&] { ++wakeups; });
    writer.join();
    ASSERT_EQ(wakeups, 1) << "round " << round;
  }
}

TEST(TokenStreamTest, EndStaysReadableAndNothingFollowsIt) {
  TokenStream stream;
  stream.Push(Tokens({1}));
  stream.Finish(absl::InternalError("x"));
  stream.Push(Tokens({2}));
  stream.Finish(absl::OkStatus());
  const StreamBatch batch = stream.Read();
  EXPECT_EQ(batch.tokens.size(), 1u);
  EXPECT_TRUE(batch.finished);
  EXPECT_EQ(batch.status, absl::InternalError("x"));
  EXPECT_EQ(batch.usage.completion_tokens, 1);
  EXPECT_TRUE(stream.Read().finished);
  EXPECT_EQ(stream.Read().status, absl::InternalError("x"));
}

TEST(TokenStreamTest, WaitReturnsFalseAtTheDeadline) {
  TokenStream stream;
  EXPECT_FALSE(stream.WaitUntil(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
}

TEST(TokenStreamTest, LosingTheLastHandleCancelsOnce) {
  auto stream = std::make_shared<TokenStream>();
  int cancels = 0;
  stream->SetOnCancel([&] { ++cancels; });
  auto handle = ConsumerHandle(stream);
  auto copy = handle;
  handle = nullptr;
  EXPECT_FALSE(stream->cancelled());
  copy = nullptr;
  EXPECT_TRUE(stream->cancelled());
  stream->Cancel();
  EXPECT_EQ(cancels, 1);
}

// What a test sees of the memory of a stream.
struct Counted final : StreamMemory {
  struct Seen {
    size_t bytes = 0;
    bool read = false;
    bool alive = true;
    bool crowded = false;
    int rooms_made = 0;
  };
  explicit Counted(Seen* seen) : seen(seen) {}
  ~Counted() override { seen->alive = false; }
  bool Take(size_t bytes, bool read) override {
    seen->bytes = bytes;
    seen->read = read;
    return seen->crowded;
  }
  void MakeRoom() override { ++seen->rooms_made; }

  Seen* const seen;
};

TEST(TokenStreamTest, TellsWhatItTakes) {
  Counted::Seen seen;
  {
    TokenStream stream;
    stream.Push(Tokens({1, 2}));
    stream.CountIn(std::make_unique<Counted>(&seen));
    EXPECT_EQ(seen.bytes, 2 * sizeof(TokenEvent));
    StreamBatch batch = Tokens({3});
    batch.tokens[0].top.resize(20);
    stream.Push(std::move(batch));
    EXPECT_GE(seen.bytes, 3 * sizeof(TokenEvent) + 20 * sizeof(TokenLogprob));
    const size_t all = seen.bytes;
    EXPECT_FALSE(seen.read);
    stream.Read();
    EXPECT_EQ(seen.bytes, all) << "its reader has it";
    EXPECT_TRUE(seen.read);
    stream.CountKept(1000);
    EXPECT_EQ(seen.bytes, all + 1000);
    EXPECT_FALSE(seen.read);
    stream.NoteReading();
    EXPECT_TRUE(seen.read);
    stream.Read();
    EXPECT_EQ(seen.bytes, 1000u);
    seen.read = false;
    stream.UncountKept(400);
    EXPECT_EQ(seen.bytes, 600u);
    EXPECT_TRUE(seen.read);
    EXPECT_EQ(seen.rooms_made, 0);
    seen.crowded = true;
    stream.Push(Tokens({4}));
    stream.CountKept(1);
    EXPECT_EQ(seen.rooms_made, 2);
    EXPECT_TRUE(seen.alive);
  }
  EXPECT_FALSE(seen.alive);
}

TEST(TokenStreamTest, OneThatIsCutEndsWhateverWasThere) {
  for (const bool finished : {false, true}) {
    TokenStream stream;
    int wakeups = 0, cancels = 0;
    stream.SetOnCancel([&] { ++cancels; });
    stream.SetWakeup([&] { ++wakeups; });
    stream.Push(Tokens({1}));
    if (finished) {
      stream.Finish(absl::OkStatus());
      EXPECT_TRUE(stream.Read().finished);
    }
    EXPECT_FALSE(stream.cut());
    const int wakeups_before = wakeups;
    stream.Cut(absl::UnavailableError("x"));
    stream.Cut(absl::UnavailableError("y"));
    EXPECT_TRUE(stream.cut());
    EXPECT_TRUE(stream.cancelled());
    EXPECT_EQ(cancels, 1);
    EXPECT_EQ(wakeups, wakeups_before + 1);
    stream.Push(Tokens({2}));
    const StreamBatch batch = stream.Read();
    EXPECT_TRUE(batch.tokens.empty());
    EXPECT_TRUE(batch.finished);
    EXPECT_EQ(batch.status, absl::UnavailableError("x"));
    EXPECT_EQ(batch.usage.completion_tokens, 1);
  }
}

TEST(TokenStreamTest, ReaderOnAnotherThreadLosesNothing) {
  TokenStream stream;
  int64_t sum = 0;
  std::thread reader([&] {
    for (;;) {
      ASSERT_TRUE(stream.WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
      const StreamBatch batch = stream.Read();
      for (const TokenEvent& event : batch.tokens) sum += static_cast<int64_t>(event.token);
      if (batch.finished) return;
    }
  });
  for (int32_t i = 1; i <= 20000; ++i) stream.Push(Tokens({i}));
  stream.Finish(absl::OkStatus());
  reader.join();
  EXPECT_EQ(sum, 20000ll * 20001 / 2);
}

}  // namespace
}  // namespace refrain::engine
