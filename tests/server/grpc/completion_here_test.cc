#include "server/grpc/completion_here.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace refrain::server::rpc {
namespace {

// An operation that ends as it begins, one of no parts. Its tag is its reaction, as with callbacks.
class Operation : public grpc_completion_queue_functor {
 public:
  explicit Operation(std::function<void()> reaction) : reaction_(std::move(reaction)) {
    functor_run = [](grpc_completion_queue_functor* functor, int ok) {
      auto* const self = static_cast<Operation*>(functor);
      self->ok = ok != 0;
      self->thread = std::this_thread::get_id();
      self->reaction_();
    };
  }

  void Begin(grpc_call* call) {
    ASSERT_EQ(::grpc_call_start_batch(call, nullptr, 0, this, nullptr), GRPC_CALL_OK);
  }

  bool ok = false;
  std::thread::id thread;

 private:
  const std::function<void()> reaction_;
};

class CompletionHereTest : public ::testing::Test {
 public:
  ~CompletionHereTest() override {
    ::grpc_call_unref(call_);
    ::grpc_channel_destroy(channel_);
    ::grpc_completion_queue_shutdown(queue_);
    EXPECT_EQ(Next(::gpr_inf_future(GPR_CLOCK_REALTIME)).type, GRPC_QUEUE_SHUTDOWN);
    ::grpc_completion_queue_destroy(queue_);
    ::grpc_shutdown_blocking();
  }

 protected:
  CompletionHereTest() {
    ::grpc_init();
    queue_ = ::grpc_completion_queue_create_for_next(nullptr);
    grpc_channel_credentials* const credentials = ::grpc_insecure_credentials_create();
    channel_ = ::grpc_channel_create("127.0.0.1:1", credentials, nullptr);  // to which nothing goes
    ::grpc_channel_credentials_release(credentials);
    call_ = ::grpc_channel_create_call(channel_, nullptr, GRPC_PROPAGATE_DEFAULTS, queue_,
                                       ::grpc_slice_from_static_string("/a/b"), nullptr,
                                       ::gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
  }

  grpc_event Next(gpr_timespec deadline) {
    return ::grpc_completion_queue_next(queue_, deadline, nullptr);
  }
  // Runs what is first in the queue, as gRPC's threads do; false where there is nothing.
  bool RunNext() {
    const grpc_event event = Next(::gpr_time_0(GPR_CLOCK_REALTIME));
    if (event.type != GRPC_OP_COMPLETE) return false;
    auto* const functor = static_cast<grpc_completion_queue_functor*>(event.tag);
    functor->functor_run(functor, event.success);
    return true;
  }

  grpc_completion_queue* queue_ = nullptr;
  grpc_channel* channel_ = nullptr;
  grpc_call* call_ = nullptr;
};

TEST_F(CompletionHereTest, TellsWhatIsCompleteAtOnce) {
  int told = 0;
  Operation operation([&] { ++told; });
  CompleteHere(queue_, [&] { operation.Begin(call_); });
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(operation.ok);
  EXPECT_EQ(operation.thread, std::this_thread::get_id());
  EXPECT_FALSE(RunNext()) << "it was told once";
}

TEST_F(CompletionHereTest, LeavesWhatComesLaterToTheQueue) {
  int told = 0;
  Operation operation([&] { ++told; });
  CompleteHere(queue_, [] {});
  operation.Begin(call_);
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(RunNext());
  EXPECT_EQ(told, 1);
}

TEST_F(CompletionHereTest, LosesNoneOfTwoThatAreCompleteTogether) {
  int told = 0;
  Operation first([&] { ++told; }), second([&] { ++told; });
  CompleteHere(queue_, [&] {
    first.Begin(call_);
    second.Begin(call_);
  });
  EXPECT_EQ(told, 1) << "the second is gRPC's threads' to tell";
  EXPECT_TRUE(RunNext());
  EXPECT_EQ(told, 2);
}

// As an answer that is written message by message, each as soon as the last one is out.
TEST_F(CompletionHereTest, ReactionsThatBeginTheNextNeitherPileUpNorGoOnForEver) {
  constexpr size_t kOperations = 1000;
  std::vector<std::unique_ptr<Operation>> operations(kOperations);
  size_t begun = 0;
  int inside = 0, most_inside = 0;
  const std::function<void()> begin_next = [&] {
    most_inside = std::max(most_inside, ++inside);
    if (begun < kOperations) {
      auto& operation = operations[begun++];
      operation = std::make_unique<Operation>(begin_next);
      CompleteHere(queue_, [&] { operation->Begin(call_); });
    }
    --inside;
  };
  begin_next();
  EXPECT_GE(begun, 10u) << "without the queue";
  EXPECT_LE(begun, 20u) << "before others have their turn";
  int turns = 0;
  while (RunNext()) ++turns;
  EXPECT_GE(turns, 40);
  EXPECT_LE(turns, 100);
  EXPECT_EQ(begun, kOperations);
  for (const auto& operation : operations) ASSERT_TRUE(operation->ok);
  EXPECT_LE(most_inside, 2) << "the caller and one reaction";
}

// Against the rule, but not lost.
TEST_F(CompletionHereTest, LosesNoneOfAReactionThatBeginsTwo) {
  int told = 0;
  Operation second([&] { ++told; }), third([&] { ++told; });
  Operation first([&] {
    CompleteHere(queue_, [&] { second.Begin(call_); });
    CompleteHere(queue_, [&] { third.Begin(call_); });
  });
  CompleteHere(queue_, [&] { first.Begin(call_); });
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(RunNext());
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace refrain::server::rpc
