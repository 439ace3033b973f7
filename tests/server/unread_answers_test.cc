#include "server/unread_answers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace refrain::server {
namespace {

using engine::StreamBatch;
using engine::TokenStream;

constexpr size_t kMiB = 1 << 20;
constexpr std::chrono::milliseconds kNoPatience{0};
constexpr size_t kTokenBytes = sizeof(engine::TokenEvent);

StreamBatch Bytes(size_t bytes) {
  StreamBatch batch;
  batch.tokens.resize(bytes / kTokenBytes);
  return batch;
}

// One stream at both ends.
struct Answer {
  explicit Answer(UnreadAnswers* answers, const std::string& owner = "")
      : stream(std::make_shared<TokenStream>()), client(engine::ConsumerHandle(stream)) {
    answers->Count(answers->Begin(owner), client);
  }
  void Push(size_t bytes) { stream->Push(Bytes(bytes)); }
  bool cut() const { return stream->cut(); }

  std::shared_ptr<TokenStream> stream;  // the engine's
  std::shared_ptr<TokenStream> client;
};

// Read times differ.
void Wait() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(UnreadAnswers, CountsWhatWaitsUntilItIsUsed) {
  const auto answers = UnreadAnswers::Make(4 * kMiB);
  Answer one(answers.get());
  one.Push(UnreadAnswers::kSmallBytes);
  EXPECT_EQ(answers->bytes(), 0u) << "a small amount is none";
  one.Push(kMiB);
  EXPECT_EQ(answers->bytes(), kMiB + UnreadAnswers::kSmallBytes);
  one.client->Read();
  EXPECT_EQ(answers->bytes(), kMiB + UnreadAnswers::kSmallBytes) << "the reader has it now";
  one.Push(kTokenBytes);
  one.client->Read();
  EXPECT_EQ(answers->bytes(), 0u);
  one.client->CountKept(kMiB);
  EXPECT_EQ(answers->bytes(), kMiB + kTokenBytes);
  one.client.reset();
  one.stream.reset();
  EXPECT_EQ(answers->bytes(), 0u);
  EXPECT_EQ(answers->cut(), 0);
}

TEST(UnreadAnswers, CountsWhatWasThereBefore) {
  const auto answers = UnreadAnswers::Make(kMiB);
  const auto stream = std::make_shared<TokenStream>();
  stream->Push(Bytes(2 * kMiB));
  answers->Count(answers->Begin(""), stream);
  EXPECT_TRUE(stream->cut());
  EXPECT_EQ(answers->bytes(), 0u);
}

TEST(UnreadAnswers, CutsWhoHasNotReadForLongest) {
  const auto answers = UnreadAnswers::Make(4 * kMiB, kNoPatience);
  Answer first(answers.get()), second(answers.get()), third(answers.get());
  first.Push(kMiB);
  Wait();
  second.Push(kMiB);
  Wait();
  third.Push(kMiB);
  Wait();
  first.client->Read();  // the slowest is the second now
  Wait();
  third.Push(kMiB + kTokenBytes);
  EXPECT_TRUE(second.cut());
  EXPECT_FALSE(first.cut());
  EXPECT_FALSE(third.cut());
  EXPECT_EQ(answers->cut(), 1);
  EXPECT_LE(answers->bytes(), 4 * kMiB);
}

// A client that reads may be behind by a little for a moment.
TEST(UnreadAnswers, CutsTheLargestWhereAllHaveJustRead) {
  const auto answers = UnreadAnswers::Make(4 * kMiB);
  Answer reader(answers.get()), first(answers.get()), second(answers.get());
  reader.Push(2 * UnreadAnswers::kSmallBytes);
  Wait();
  first.Push(3 * kMiB);
  Wait();
  second.Push(2 * kMiB);
  EXPECT_FALSE(reader.cut());
  EXPECT_TRUE(first.cut());
  EXPECT_FALSE(second.cut());
}

TEST(UnreadAnswers, WhoUsesWhatItReadHasNotStopped) {
  const auto answers = UnreadAnswers::Make(4 * kMiB, kNoPatience);
  Answer reader(answers.get()), other(answers.get());
  reader.Push(2 * kMiB);
  reader.client->Read();
  Wait();
  other.Push(kMiB);
  Wait();
  reader.client->NoteReading();
  Wait();
  other.Push(kMiB + kTokenBytes);
  EXPECT_FALSE(reader.cut());
  EXPECT_TRUE(other.cut());
}

TEST(UnreadAnswers, WhoIsCutIsToldAndHoldsNothing) {
  const auto answers = UnreadAnswers::Make(kMiB);
  Answer one(answers.get());
  int wakeups = 0;
  one.client->SetWakeup([&] { ++wakeups; });
  one.Push(kMiB);
  EXPECT_EQ(wakeups, 1);
  one.Push(kTokenBytes);
  EXPECT_EQ(wakeups, 2) << "although there was something to read already";
  EXPECT_TRUE(one.client->cancelled());
  one.Push(kMiB);
  const StreamBatch batch = one.client->Read();
  EXPECT_TRUE(batch.tokens.empty());
  EXPECT_TRUE(batch.finished);
  EXPECT_EQ(batch.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(batch.status.message().find("limits.unread_bytes"), std::string::npos);
  EXPECT_EQ(answers->bytes(), 0u);
  EXPECT_EQ(answers->cut(), 1);
}

// A request of many prompts: none of its streams has much, all of them have.
TEST(UnreadAnswers, StreamsOfOneAnswerCountAndAreCutTogether) {
  const auto answers = UnreadAnswers::Make(2 * kMiB);
  const auto answer = answers->Begin("");
  std::vector<std::shared_ptr<TokenStream>> streams, clients;
  for (int i = 0; i < 64; ++i) {
    streams.push_back(std::make_shared<TokenStream>());
    clients.push_back(engine::ConsumerHandle(streams.back()));
    answers->Count(answer, clients.back());
  }
  constexpr size_t kEach = UnreadAnswers::kSmallBytes / 2;
  for (int i = 0; i < 4; ++i) streams[static_cast<size_t>(i)]->Push(Bytes(kEach));
  EXPECT_EQ(answers->bytes(), 4 * kEach);
  clients[0]->Read();
  clients[0]->Release();
  clients[1].reset();
  streams[1].reset();
  EXPECT_EQ(answers->bytes(), 0u) << "what is left is small";
  for (const auto& stream : streams) {
    if (stream != nullptr) stream->Push(Bytes(kEach));
  }
  EXPECT_EQ(answers->bytes(), 0u);
  EXPECT_EQ(answers->cut(), 1);
  for (const auto& stream : streams) EXPECT_TRUE(stream == nullptr || stream->cut());
}

// One that is cut may take a moment to go: nobody else is cut for what it still holds.
TEST(UnreadAnswers, WhatIsCutCountsNoMore) {
  const auto answers = UnreadAnswers::Make(3 * kMiB);
  Answer first(answers.get()), second(answers.get()), third(answers.get());
  first.Push(2 * kMiB);
  first.client->Read();
  first.client->CountKept(kMiB);
  Wait();
  second.Push(kMiB);
  EXPECT_TRUE(first.cut());
  third.Push(kMiB);
  EXPECT_FALSE(second.cut());
  EXPECT_FALSE(third.cut());
  EXPECT_EQ(answers->bytes(), 2 * kMiB);
}

TEST(UnreadAnswers, CutsOfTheOwnerWhoHasMost) {
  const auto answers = UnreadAnswers::Make(4 * kMiB, kNoPatience);
  Answer modest(answers.get(), "a");
  modest.Push(kMiB);
  Wait();
  Answer first(answers.get(), "b"), second(answers.get(), "b");
  first.Push(kMiB);
  Wait();
  second.Push(kMiB + kMiB / 2);
  modest.Push(kMiB);
  EXPECT_FALSE(modest.cut()) << "although it waits for longest";
  EXPECT_TRUE(first.cut());
  EXPECT_FALSE(second.cut());
}

TEST(UnreadAnswers, WhoseClientHasGoneIsNotCutButCountsNoMore) {
  const auto answers = UnreadAnswers::Make(2 * kMiB);
  Answer gone(answers.get());
  gone.Push(kMiB);
  gone.client.reset();
  Wait();
  Answer one(answers.get());
  one.Push(kMiB + kTokenBytes);
  EXPECT_FALSE(gone.cut());
  EXPECT_FALSE(one.cut());
  EXPECT_EQ(answers->bytes(), kMiB + kTokenBytes);
  EXPECT_EQ(answers->cut(), 0);
}

// Writers, readers that stop for a while, and streams that come and go: never more than may be, and
// nothing is left.
TEST(UnreadAnswers, StaysWithinItsBoundFromManyThreads) {
  constexpr size_t kMost = 4 * kMiB;
  const auto answers = UnreadAnswers::Make(kMost);
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int round = 0; round < 15; ++round) {
        Answer one(answers.get(), std::to_string(t % 2));
        one.client->SetWakeup([] {});
        std::thread reader([&] {
          for (int i = 0; i < 20; ++i) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            one.client->Read();
          }
        });
        for (int i = 0; i < 20; ++i) one.Push(random() % kMiB);
        reader.join();
      }
    });
  }
  std::thread watcher([&] {
    // Each writer may be beyond it for as long as it takes to make room.
    for (; !ended; Wait()) EXPECT_LE(answers->bytes(), kMost + 4 * kMiB);
  });
  for (std::thread& thread : threads) thread.join();
  ended = true;
  watcher.join();
  EXPECT_EQ(answers->bytes(), 0u);
}

}  // namespace
}  // namespace refrain::server
