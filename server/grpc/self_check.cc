#include "server/grpc/self_check.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/grpc/library_threads.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

// A process that was stopped for a while misses one.
constexpr int kSilences = 2;
// Where a part of the work is lost, some calls are answered.
constexpr int kAnswers = 5;
constexpr std::chrono::milliseconds kTick{20};  // of looking whether the check is to end
constexpr std::chrono::seconds kCancelled{1};   // for gRPC to end a call that is given up

}  // namespace

// A call, and beside it something to do for each thread of the executor: few calls need these. gRPC
// uses it until the call has ended. Not destroyed by the callback: a thread of gRPC's that
// gives up the last channel would wait for itself.
class SelfCheck::Question {
 public:
  explicit Question(int socket)
      : stub_(::grpc::CreateInsecureChannelFromFd("self-check", socket)) {}

  void Ask() {
    // An empty HealthCheckRequest: of the whole server.
    stub_.UnaryCall(&context_, "/grpc.health.v1.Health/Check", {}, &request_, &reply_,
                    [this](const ::grpc::Status& /*status*/) {
                      MutexLock lock(mutex_);
                      ended_ = true;
                      changed_.NotifyAll();
                    });
  }

  void GiveUp() { context_.TryCancel(); }

  // The call, and then what the executor has to do.
  bool WaitUntilEnded(Clock::time_point deadline) {
    return WaitUntilCallEnded(deadline) && round_.WaitUntilDone(deadline);
  }

  bool WaitUntilCallEnded(Clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!ended_) {
      if (!changed_.WaitUntil(mutex_, deadline)) return ended_;
    }
    return true;
  }

 private:
  ExecutorRound round_;
  ::grpc::ClientContext context_;
  ::grpc::GenericStub stub_;
  ::grpc::ByteBuffer request_{nullptr, 0};
  ::grpc::ByteBuffer reply_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool ended_ REFRAIN_GUARDED_BY(mutex_) = false;
};

SelfCheck::SelfCheck(const Options& options, std::function<void(int socket)> connect,
                     std::function<void(bool answers)> on_change)
    : options_(options), connect_(std::move(connect)), on_change_(std::move(on_change)) {
  thread_ = std::thread([this] { Run(); });
}

SelfCheck::~SelfCheck() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void SelfCheck::Run() {
  bool last = true;
  bool told = true;
  int in_a_row = 0;
  while (WaitForNext()) {
    const std::optional<bool> answered = Ask();
    if (!answered.has_value()) continue;
    in_a_row = *answered == last ? in_a_row + 1 : 1;
    last = *answered;
    if (last == told || in_a_row < (last ? kAnswers : kSilences)) continue;
    told = last;
    on_change_(told);
  }
  if (question_ == nullptr) return;
  question_->GiveUp();
  // One that gRPC has lost is its own.
  if (!question_->WaitUntilCallEnded(Clock::now() + kCancelled))
    static_cast<void>(question_.release());
}

bool SelfCheck::WaitForNext() {
  const Clock::time_point next = Clock::now() + options_.period;
  MutexLock lock(mutex_);
  while (!ends_) {
    if (!changed_.WaitUntil(mutex_, next)) return !ends_;
  }
  return false;
}

std::optional<bool> SelfCheck::Ask() {
  // One that does not even end is asked no other: each has two files.
  if (question_ == nullptr || question_->WaitUntilEnded(Clock::now())) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return std::nullopt;
    }
    connect_(ends[0]);
    question_ = std::make_unique<Question>(ends[1]);
    question_->Ask();
  }
  const Clock::time_point latest = Clock::now() + options_.patience;
  while (!question_->WaitUntilEnded(std::min(latest, Clock::now() + kTick))) {
    {
      MutexLock lock(mutex_);
      if (ends_) return std::nullopt;
    }
    if (Clock::now() < latest) continue;
    question_->GiveUp();
    return false;
  }
  return true;
}

}  // namespace refrain::server::rpc
