// Clients that ask for much and do not read it, over real sockets: what waits for them is bounded,
// and who reads gets all.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/unread_answers.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/openai/served_fake.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/eventually.h"

namespace refrain::server::openai {
namespace {

using ::refrain::testing::AllocatedBytes;
using ::refrain::testing::Eventually;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::ServedFake;
using namespace std::chrono_literals;

constexpr size_t kMost = 16 << 20;
constexpr int kClients = 24;

// The prompt `choices` times, with log-probabilities: 320 bytes of memory for each token, 2 KB of
// text for each event.
std::string Request(int choices, int prompt_tokens, bool stream = true) {
  return PostRequest("/v1/completions", R"({"prompt":")" +
                                            std::string(static_cast<size_t>(prompt_tokens), 'a') +
                                            R"(","echo":true,"logprobs":20,"max_tokens":2,"n":)" +
                                            std::to_string(choices) + R"(,"stream":)" +
                                            (stream ? "true" : "false") + "}");
}

// Whether its end says that the answer was cut.
bool Tells(const std::string& body) {
  return body.find(R"("code":"answer_not_read")") != std::string::npos;
}

class UnreadAnswersTest : public ::testing::Test {
 protected:
  // Ten megabytes of tokens for each client, of which none is read.
  void ComeAndDoNotRead() {
    for (int i = 0; i < kClients; ++i) {
      crowd_.emplace_back(served_.port(), /*receive_buffer_bytes=*/4096);
      crowd_.back().Send(Request(/*choices=*/32, /*prompt_tokens=*/1000));
    }
    const int before = submitted_before_;
    ASSERT_TRUE(Eventually([&] { return served_.engine().submitted() == before + kClients; }));
    ASSERT_TRUE(Eventually([&] { return served_.engine().stats().running_sequences <= before; }));
  }

  const std::shared_ptr<UnreadAnswers> unread_ = UnreadAnswers::Make(kMost);
  // Nobody is out of time as long as the test takes.
  ServedFake served_{{}, {.write_timeout = 600s}, {.version = "9.9.9", .unread = unread_}};
  std::vector<RawClient> crowd_;
  int submitted_before_ = 0;
};

TEST_F(UnreadAnswersTest, WhatNobodyReadsIsBounded) {
  const size_t before = AllocatedBytes();
  ComeAndDoNotRead();
  std::printf("%d that do not read hold %zu KiB\n", kClients, (AllocatedBytes() - before) >> 10);
  EXPECT_LE(unread_->bytes(), kMost);
  ASSERT_GE(unread_->cut(), kClients - 3);
  // What had been read of their streams is given back, too, although connections wait.
  EXPECT_TRUE(Eventually([&] { return AllocatedBytes() < before + 2 * kMost; }))
      << AllocatedBytes();
  // Who reads in the end is told.
  int cut = 0, complete = 0;
  for (RawClient& client : crowd_) {
    const RawResponse response = client.ReadResponse();
    const bool done = response.body.ends_with("data: [DONE]\n\n");
    EXPECT_NE(done, Tells(response.body));
    ++(done ? complete : cut);
  }
  EXPECT_EQ(cut, unread_->cut());
  EXPECT_GE(complete, 1);
}

TEST_F(UnreadAnswersTest, WhoReadsBesideThemGetsAll) {
  RawClient reader(served_.port());
  reader.Send(PostRequest("/v1/completions",
                          R"({"prompt":"[[delay_ms=2]]abcdefgh","max_tokens":500,)"
                          R"("ignore_eos":true,"stream":true,"n":4,"logprobs":20})"));
  ASSERT_TRUE(reader.ReadUntil("data: "));
  submitted_before_ = 1;
  std::thread crowd([this] { ComeAndDoNotRead(); });
  const RawResponse response = reader.ReadResponse();
  crowd.join();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_GE(unread_->cut(), kClients - 3);
}

TEST_F(UnreadAnswersTest, NobodyIsCutWhileThereIsRoom) {
  RawClient slow(served_.port(), /*receive_buffer_bytes=*/4096);
  slow.Send(Request(/*choices=*/8, /*prompt_tokens=*/1000));
  ASSERT_TRUE(Eventually([&] { return unread_->bytes() > 2'000'000; })) << unread_->bytes();
  std::this_thread::sleep_for(200ms);
  const RawResponse response = slow.ReadResponse();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(unread_->cut(), 0);
  EXPECT_TRUE(Eventually([&] { return unread_->bytes() == 0; })) << unread_->bytes();
}

// More than may wait comes at once: its client has had no time to read, and is told.
TEST_F(UnreadAnswersTest, MoreThanMayWaitIsRefused) {
  for (const bool stream : {true, false}) {
    RawClient client(served_.port());
    client.Send(Request(/*choices=*/100, /*prompt_tokens=*/1000, stream));
    const RawResponse response = client.ReadResponse();
    const std::string& body = response.body;
    EXPECT_TRUE(response.status == 503 || stream) << response.status;
    EXPECT_TRUE(Tells(body)) << body.substr(body.size() - std::min<size_t>(body.size(), 300));
    EXPECT_EQ(body.find("[DONE]"), std::string::npos);
  }
  RawClient good(served_.port());
  good.Send(PostRequest("/v1/completions", R"({"prompt":"still here"})"));
  EXPECT_EQ(good.ReadResponse().status, 200);
}

}  // namespace
}  // namespace refrain::server::openai
