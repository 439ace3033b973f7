// That a server notices when gRPC does not answer any more, and that it answers again.

#include <grpc/support/cpu.h>
#include <grpcpp/alarm.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "tests/server/grpc/server_fixture.h"

namespace refrain::server::rpc {
namespace {

using namespace std::chrono_literals;

// All threads of gRPC's executor, which wait as long as this lives.
class HeldExecutor {
 public:
  HeldExecutor() {
    const auto wait = [this](bool) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return released_; });
      ++ended_;
      changed_.notify_all();
    };
    for (::grpc::Alarm& alarm : alarms_) alarm.Set(::gpr_inf_past(GPR_CLOCK_REALTIME), wait);
  }
  ~HeldExecutor() {
    std::unique_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ended_ == alarms_.size(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
  size_t ended_ = 0;
  std::vector<::grpc::Alarm> alarms_{20 * ::gpr_cpu_num_cores()};
};

class GrpcSelfCheck : public GrpcServerTest {
 protected:
  void StartChecking(std::chrono::milliseconds patience) {
    ServerOptions options;
    options.self_check_period = 2ms;
    options.self_check_patience = patience;
    options.on_answers = [this](bool answers) {
      const std::lock_guard lock(mutex_);
      told_.push_back(answers);
      changed_.notify_all();
    };
    Start(options);
  }

  std::vector<bool> WaitUntilTold(size_t times, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most, [&] { return told_.size() >= times; });
    return told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> told_;
};

TEST_F(GrpcSelfCheck, TellsOfSilenceAndOfItsEnd) {
  StartChecking(100ms);
  {
    const HeldExecutor held;
    EXPECT_EQ(WaitUntilTold(1, 10s), std::vector<bool>{false});
  }
  EXPECT_EQ(WaitUntilTold(2, 10s), (std::vector<bool>{false, true}));
}

TEST_F(GrpcSelfCheck, IsSatisfiedByAServerThatAnswers) {
  StartChecking(10s);
  EXPECT_TRUE(WaitUntilTold(1, 200ms).empty());
}

}  // namespace
}  // namespace refrain::server::rpc
