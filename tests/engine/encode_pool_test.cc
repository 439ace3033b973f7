#include "engine/encode_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>

#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/little_room.h"
#include "tests/support/rounds.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::SomeRoundKeeps;
using ::testing::HasSubstr;

class EncodePoolTest : public ::testing::Test {
 protected:
  EncodePoolTest()
      : encoder_(&tokenizer_, nullptr,
                 {.max_context_tokens = 1 << 22, .kv_capacity_tokens = 1 << 22}) {}

  std::unique_ptr<EncodedRequest> Make(uint64_t number, std::string text) {
    auto request = std::make_unique<EncodedRequest>();
    request->number = number;
    request->ticket = *ledger_->Enter("");
    request->stream = std::make_shared<TokenStream>();
    request->request.prompt = TextPrompt{.text = std::move(text)};
    return request;
  }

  void Start(int32_t threads = 1) {
    pool_ = std::make_unique<EncodePool>(
        &encoder_, &clock_, threads,
        [this](std::unique_ptr<EncodedRequest> request) {
          std::lock_guard lock(mutex_);
          done_.push_back(std::move(request));
          changed_.notify_all();
        },
        [this] {
          ++asked_;
          return busy_.load();
        });
  }

  // How many are queued when the consumer of `request` hears of its end.
  std::shared_ptr<std::atomic<int32_t>> QueuedAtEndOf(const EncodedRequest& request) {
    auto queued = std::make_shared<std::atomic<int32_t>>(-1);
    request.stream->SetWakeup([this, queued] { *queued = ledger_->queued_requests(); });
    return queued;
  }

  // Numbers of the first `count` requests, in the order in which they were done.
  std::vector<uint64_t> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return done_.size() >= count; });
    std::vector<uint64_t> numbers;
    for (const auto& request : done_) numbers.push_back(request->number);
    return numbers;
  }

  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  testing::FakeClock clock_;
  std::shared_ptr<AdmissionLedger> ledger_ = std::make_shared<AdmissionLedger>(100, 1 << 30);
  PromptEncoder encoder_;
  std::atomic<bool> busy_ = false;
  std::atomic<int> asked_ = 0;  // whether the engine is busy: at each slice's end
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<EncodedRequest>> done_;
  std::unique_ptr<EncodePool> pool_;
};

#ifdef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
TEST_F(EncodePoolTest, EndsTheThreadsThatItHasWhereTheSystemRefusesOne) {
  const auto with_little_room = [this] {
    testing::LeaveLittleRoom();
    try {
      Start(100);
    } catch (const std::system_error&) {
      std::exit(0);
    }
  };
  EXPECT_EXIT(with_little_room(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST_F(EncodePoolTest, EncodesInOrderOfArrival) {
  Start();
  for (uint64_t i = 1; i <= 20; ++i) pool_->Push(Make(i, "abc"));
  const auto numbers = WaitFor(20);
  ASSERT_EQ(numbers.size(), 20u);
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_EQ(done_[0]->prompt.size(), 3u);
  ASSERT_NE(done_[0]->stop_rules, nullptr);
}

TEST_F(EncodePoolTest, TenantsTakeTurns) {
  std::atomic<bool> all_pushed = false;
  tokenizer_.before_encode = [&](std::string_view) {
    EXPECT_TRUE(Eventually([&] { return all_pushed.load(); }));
  };
  Start();
  for (uint64_t i = 1; i <= 50; ++i) {
    std::unique_ptr<EncodedRequest> request = Make(i, "abc");
    request->request.tenant = "many";
    pool_->Push(std::move(request));
  }
  std::unique_ptr<EncodedRequest> single = Make(100, "abc");
  single->request.tenant = "one";
  pool_->Push(std::move(single));
  all_pushed = true;
  const std::vector<uint64_t> numbers = WaitFor(51);
  const auto place = std::find(numbers.begin(), numbers.end(), 100u) - numbers.begin();
  EXPECT_LE(place, 2) << "one of the other's may be in work, and one is next";
}

// The long text is held inside the tokenizer until the short one behind it is done.
TEST_F(EncodePoolTest, AShortPromptOvertakesAGiantOne) {
  std::atomic<bool> short_done = false;
  tokenizer_.before_encode = [&](std::string_view text) {
    if (text.size() < 1000) return;
    EXPECT_TRUE(Eventually([&] { return short_done.load(); }));
  };
  Start();
  pool_->Push(Make(1, std::string(1 << 20, 'a')));
  pool_->Push(Make(2, "abc"));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
  short_done = true;
  EXPECT_EQ(WaitFor(2), (std::vector<uint64_t>{2, 1}));
}

// The tokenizer's work on a long text, in parts longer than a slice.
void WorkFor(int slices, EncodePace* pace) {
  for (int i = 0; i < slices && !pace->stopped(); ++i) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < end) pace->Did(128);
    pace->Did(128);
  }
}

TEST_F(EncodePoolTest, RestsOnTheWayThroughALongTextWhileTheEngineIsBusy) {
  constexpr int kSlices = 30;
  int paced_texts = 0;
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    if (pace != nullptr) ++paced_texts;
    if (pace != nullptr) WorkFor(kSlices, pace);
  };
  busy_ = true;
  Start();
  const auto start = std::chrono::steady_clock::now();
  pool_->Push(Make(1, std::string(EncodePool::kLongTextBytes + 1, 'a')));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{1});
  EXPECT_GE(asked_, kSlices);
  EXPECT_GE(std::chrono::steady_clock::now() - start, asked_.load() * EncodePool::kRest);
  pool_->Push(Make(2, std::string(EncodePool::kLongTextBytes, 'a')));  // not long
  WaitFor(2);
  EXPECT_EQ(paced_texts, 1);
}

TEST_F(EncodePoolTest, RestsLessWhileMoreLongTextsWait) {
  std::atomic<bool> all_there = false;
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    while (!all_there) std::this_thread::yield();
    WorkFor(8, pace);
  };
  busy_ = true;
  Start();
  const auto rests_are_short = [&] {
    all_there = false;
    asked_ = 0;
    done_.clear();
    for (uint64_t i = 1; i <= 8; ++i) {
      pool_->Push(Make(i, std::string(EncodePool::kLongTextBytes + 1, 'a')));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rendered, and in the long lane
    const auto start = std::chrono::steady_clock::now();
    all_there = true;
    EXPECT_EQ(WaitFor(8).size(), 8u);
    const auto each = (std::chrono::steady_clock::now() - start) / asked_.load();
    EXPECT_GE(asked_, 8 * 8);
    EXPECT_GE(each, EncodePool::kShortRest);
    return each < EncodePool::kRest * 9 / 10;
  };
  EXPECT_TRUE(SomeRoundKeeps(rests_are_short));
}

// A book is on its way, an hour's work; what others send behind it is done in a few times its own.
TEST_F(EncodePoolTest, ALongTextTakesItsTurnsBesideABook) {
  constexpr size_t kBook = EncodePool::kLargeTextBytes + 1;
  for (const char* tenant : {"other", "same"}) {
    for (const bool busy : {true, false}) {
      std::atomic<int> books = 0, slices_of_book = 0;
      tokenizer_.paced_encode = [&](EncodePace* pace) {
        if (++books == 1) {
          while (!pace->stopped()) {
            WorkFor(1, pace);
            ++slices_of_book;
          }
        } else {
          WorkFor(10, pace);
        }
      };
      busy_ = busy;
      done_.clear();
      Start();
      auto book = Make(1, std::string(kBook, 'a'));
      auto text = Make(2, std::string(EncodePool::kLongTextBytes + 1, 'b'));
      book->request.tenant = "same";
      text->request.tenant = tenant;
      const auto stream = book->stream;
      pool_->Push(std::move(book));
      while (books == 0) std::this_thread::yield();
      const int before = slices_of_book;
      pool_->Push(std::move(text));
      EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2}) << tenant << busy;
      // One for each of the ten, and what passes until the first begins.
      EXPECT_LE(slices_of_book - before, 10 + 100) << tenant << busy;
      EXPECT_GE(slices_of_book - before, 5) << tenant << busy;
      stream->Cancel();
      EXPECT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
      pool_.reset();
    }
  }
}

// Eight threads: four texts of the tenant that sends hundreds, and of large ones one, three in all.
TEST_F(EncodePoolTest, NoTenantHasAllThreadsOrAllMemory) {
  std::map<std::string, int> begun;
  std::mutex mutex;
  std::atomic<bool> go = false;
  // Texts say whose they are in their first letter; all stand at their first slice's end.
  tokenizer_.before_encode = [&](std::string_view text) {
    std::lock_guard lock(mutex);
    ++begun[std::string(text.substr(0, 1)) +
            (text.size() > EncodePool::kLargeTextBytes ? "+" : "")];
  };
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    while (!go && !pace->stopped()) WorkFor(1, pace);
  };
  Start();
  uint64_t number = 0;
  const auto push = [&](char letter, size_t bytes) {
    auto request = Make(++number, std::string(bytes, letter));
    request->request.tenant = std::string(1, letter);
    pool_->Push(std::move(request));
  };
  const auto wait_for = [&](const std::map<std::string, int>& expected) {
    EXPECT_TRUE(Eventually([&] {
      std::lock_guard lock(mutex);
      return begun == expected;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // no more of them
    std::lock_guard lock(mutex);
    EXPECT_EQ(begun, expected);
  };
  constexpr size_t kLong = EncodePool::kLongTextBytes + 1;
  constexpr size_t kLarge = EncodePool::kLargeTextBytes + 1;
  for (int i = 0; i < 3; ++i) push('a', kLarge);
  for (int i = 0; i < 20; ++i) push('a', kLong);
  wait_for({{"a+", 1}, {"a", 3}});
  push('b', kLarge);
  push('c', kLarge);
  wait_for({{"a+", 1}, {"a", 3}, {"b+", 1}, {"c+", 1}});
  push('d', kLarge);
  push('b', kLong);
  wait_for({{"a+", 1}, {"a", 3}, {"b+", 1}, {"c+", 1}, {"b", 1}});
  go = true;
  EXPECT_EQ(WaitFor(number).size(), number);
}

TEST_F(EncodePoolTest, DoesNotRestBesideAnIdleEngine) {
  tokenizer_.paced_encode = [&](EncodePace* pace) { WorkFor(100, pace); };
  Start();
  const auto start = std::chrono::steady_clock::now();
  pool_->Push(Make(1, std::string(1 << 20, 'a')));
  WaitFor(1);
  EXPECT_GE(asked_, 50);
  EXPECT_LT(std::chrono::steady_clock::now() - start, asked_.load() * EncodePool::kRest / 2);
}

// It would take minutes.
TEST_F(EncodePoolTest, EndsALongTextThatNobodyWaitsFor) {
  std::atomic<int> begun = 0;
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    ++begun;
    WorkFor(100'000, pace);
  };
  busy_ = true;
  Start();
  auto cancelled = Make(1, std::string(1 << 20, 'a'));
  auto stopped = Make(2, std::string(1 << 20, 'b'));
  const auto a = cancelled->stream;
  const auto b = stopped->stream;
  pool_->Push(std::move(cancelled));
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (begun < 1) std::this_thread::yield();
  pool_->Push(std::move(stopped));  // not before: it could begin first, and the other never
  a->Cancel();
  ASSERT_TRUE(a->WaitUntil(soon));
  EXPECT_EQ(a->Read().status.code(), absl::StatusCode::kCancelled);
  while (begun < 2) std::this_thread::yield();
  pool_->Stop();
  ASSERT_TRUE(b->WaitUntil(soon));
  EXPECT_EQ(b->Read().status.code(), absl::StatusCode::kCancelled);
}

TEST_F(EncodePoolTest, SkipsCancelledAndExpiredRequests) {
  tokenizer_.before_encode = [](std::string_view) { FAIL() << "not to be encoded"; };
  auto cancelled = Make(1, "abc");
  auto expired = Make(2, "abc");
  const auto a = cancelled->stream;
  const auto b = expired->stream;
  a->Cancel();
  expired->timeout_s = 2;
  expired->deadline = clock_.Now() + std::chrono::seconds(2);
  clock_.Advance(std::chrono::seconds(3));
  const auto left_by_a = QueuedAtEndOf(*cancelled);
  const auto left_by_b = QueuedAtEndOf(*expired);
  Start();
  pool_->Push(std::move(cancelled));
  pool_->Push(std::move(expired));
  ASSERT_TRUE(testing::Eventually([&] { return *left_by_a >= 0 && *left_by_b >= 0; }));
  EXPECT_EQ(a->Read().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(b->Read().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LE(std::max<int32_t>(*left_by_a, *left_by_b), 1);
  EXPECT_EQ(std::min<int32_t>(*left_by_a, *left_by_b), 0);
}

// Both lanes are held up by a text in work; what has ended is gone all the same, the rest stays.
TEST_F(EncodePoolTest, WhatHasEndedLeavesALaneThatIsHeldUp) {
  std::atomic<int> in_work = 0;
  std::atomic<bool> go = false;
  tokenizer_.before_encode = [&](std::string_view) {
    ++in_work;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Start();
  const std::string giant(EncodePool::kLongTextBytes + 1, 'a');
  std::vector<std::shared_ptr<TokenStream>> cancelled, late;
  uint64_t number = 0;
  for (const std::string& text : {giant, std::string("abc")}) {
    for (int i = 0; i < 4; ++i) {
      auto request = Make(++number, text);
      if (i == 1) cancelled.push_back(request->stream);
      if (i == 2) {
        request->timeout_s = 5;
        request->deadline = clock_.Now() + std::chrono::seconds(5);
        late.push_back(request->stream);
      }
      pool_->Push(std::move(request));
    }
  }
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (in_work < 2 && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
  EXPECT_EQ(ledger_->queued_requests(), 8);
  for (const auto& stream : cancelled) stream->Cancel();
  clock_.Advance(std::chrono::seconds(5));
  for (const auto& stream : cancelled) {
    EXPECT_TRUE(stream->WaitUntil(soon));
    EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kCancelled);
  }
  for (const auto& stream : late) {
    EXPECT_TRUE(stream->WaitUntil(soon));
    EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  while (ledger_->queued_requests() > 4 && std::chrono::steady_clock::now() < soon) {
    std::this_thread::yield();
  }
  EXPECT_EQ(ledger_->queued_requests(), 4) << "their places in the queue are free";
  EXPECT_EQ(in_work, 2);
  go = true;
  std::vector<uint64_t> numbers = WaitFor(4);
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 4, 5, 8}));
}

// A long text behind another one, and a short one.
TEST_F(EncodePoolTest, LetsGoOfAPromptsHoldWhenItIsEncodedOrNobodyWaits) {
  std::atomic<bool> go = false;
  tokenizer_.before_encode = [&](std::string_view text) {
    while (text.size() > EncodePool::kLongTextBytes && !go) std::this_thread::yield();
  };
  Start();
  std::vector<std::weak_ptr<const void>> holds;
  std::vector<std::shared_ptr<TokenStream>> streams;
  const std::string giant(EncodePool::kLongTextBytes + 1, 'a');
  for (const std::string& text : {giant, giant, giant, std::string("abc")}) {
    auto request = Make(holds.size() + 1, text);
    request->request.prompt_hold = std::make_shared<int>(0);
    holds.push_back(request->request.prompt_hold);
    streams.push_back(request->stream);
    pool_->Push(std::move(request));
  }
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{4});
  EXPECT_TRUE(holds[3].expired());
  streams[1]->Cancel();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds[1].expired() && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
  EXPECT_TRUE(holds[1].expired());
  EXPECT_FALSE(holds[0].expired() || holds[2].expired());
  go = true;
  EXPECT_EQ(WaitFor(3), (std::vector<uint64_t>{4, 1, 3}));
  EXPECT_TRUE(holds[0].expired() && holds[2].expired());
}

// Scenario: the only thread is in the first text, whose ids nobody wants any more.
TEST_F(EncodePoolTest, EndsWhatWaitsOfATenant) {
  std::atomic<bool> in_work = false, all_pushed = false;
  tokenizer_.before_encode = [&](std::string_view) {
    in_work = true;
    EXPECT_TRUE(Eventually([&] { return all_pushed.load(); }));
  };
  Start();
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (uint64_t i = 1; i <= 6; ++i) {
    std::unique_ptr<EncodedRequest> request = Make(i, "abc");
    request->request.tenant = i == 4 ? "other" : "ended";
    request->only_tokenize = i == 2;
    streams.push_back(request->stream);
    pool_->Push(std::move(request));
    if (i == 1) {
      EXPECT_TRUE(Eventually([&] { return in_work.load(); }));
    }
  }
  const absl::Status reason = absl::UnauthenticatedError("removed");
  EXPECT_EQ(pool_->EndWaiting({"ended", "absent"}, /*before=*/6, reason), 3);
  all_pushed = true;
  // The last one came behind the end: the key is there again.
  EXPECT_EQ(WaitFor(2), (std::vector<uint64_t>{6, 4}));
  for (const size_t i : {0, 1, 2, 4}) EXPECT_EQ(streams[i]->Read().status, reason) << i;
  EXPECT_EQ(pool_->EndWaiting({"ended"}, 7, reason), 0);
}

TEST_F(EncodePoolTest, RefusesWhatCannotFitBeforeItIsTokenized) {
  std::atomic<int> encoded = 0;
  tokenizer_.before_encode = [&](std::string_view) { ++encoded; };
  Start();
  const std::string text((1 << 22) + 1, 'a');
  auto whole = Make(1, text);
  const auto stream = whole->stream;
  pool_->Push(std::move(whole));
  ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  const absl::Status status = stream->Read().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "This model's maximum context length is 4194304 tokens. However, the prompt "
            "has at least 4194305 tokens: the prompt is too long.");
  EXPECT_EQ(encoded, 0);
  // Of which a part fits.
  auto end = Make(2, text);
  end->request.keep_prompt_tokens = 3;
  pool_->Push(std::move(end));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
}

TEST_F(EncodePoolTest, FinishesWhatCannotBeEncodedWithItsReason) {
  Start();
  auto empty = Make(1, "");
  auto chat = Make(2, "");
  chat->request.prompt = ChatPrompt{};
  auto wrong = Make(3, "");
  wrong->request.prompt = TokenPrompt{{TokenId{1}, TokenId{-7}}};
  std::vector<std::shared_ptr<TokenStream>> streams = {empty->stream, chat->stream, wrong->stream};
  pool_->Push(std::move(empty));
  pool_->Push(std::move(chat));
  pool_->Push(std::move(wrong));
  std::vector<std::string> messages;
  for (const auto& stream : streams) {
    ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    messages.emplace_back(stream->Read().status.message());
  }
  EXPECT_THAT(messages[0], HasSubstr("0 tokens"));
  EXPECT_THAT(messages[1], HasSubstr("no chat template"));
  EXPECT_THAT(messages[2], HasSubstr("token id -7"));
}

// It would take minutes; the deadline passes on the way.
TEST_F(EncodePoolTest, EndsALongTextAtItsDeadline) {
  std::atomic<bool> begun = false;
  tokenizer_.paced_encode = [&](EncodePace* pace) {
    begun = true;
    WorkFor(100'000, pace);
  };
  Start();
  auto request = Make(1, std::string(1 << 20, 'a'));
  request->timeout_s = 5;
  request->deadline = clock_.Now() + std::chrono::seconds(5);
  const auto stream = request->stream;
  pool_->Push(std::move(request));
  while (!begun) std::this_thread::yield();
  clock_.Advance(std::chrono::seconds(5));
  ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_EQ(stream->Read().status,
            absl::DeadlineExceededError("the request did not finish within its 5 s"));
}

// The text is longer than any context, and goes no further than to who asked.
TEST_F(EncodePoolTest, OnlyTokenizesWhereNoMoreIsWanted) {
  Start();
  for (const size_t bytes : {size_t{5}, size_t{1} << 23}) {
    auto request = Make(1, std::string(bytes, 'p'));
    request->only_tokenize = true;
    const auto stream = request->stream;
    const auto left = QueuedAtEndOf(*request);
    pool_->Push(std::move(request));
    ASSERT_TRUE(testing::Eventually([&] { return *left >= 0; }));
    EXPECT_EQ(*left, 0);
    const StreamBatch batch = stream->Read();
    EXPECT_TRUE(batch.finished);
    EXPECT_TRUE(batch.status.ok()) << batch.status;
    EXPECT_EQ(batch.text_ids.size(), bytes);
    EXPECT_TRUE(stream->Read().text_ids.empty());
  }
  pool_->Push(Make(2, "abc"));
  EXPECT_EQ(WaitFor(1), std::vector<uint64_t>{2});
}

TEST_F(EncodePoolTest, StopFinishesWhatStillWaits) {
  Start();
  pool_->Stop();
  auto late = Make(1, "abc");
  const auto stream = late->stream;
  pool_->Push(std::move(late));
  EXPECT_EQ(stream->Read().status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace refrain::engine
