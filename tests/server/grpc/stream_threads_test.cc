#include "server/grpc/stream_threads.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/annotated_mutex.h"

namespace refrain::server::rpc {
namespace {

// Notes which thread each connection's targets ran on.
class Notes {
 public:
  void Add(const std::string& connection) {
    MutexLock lock(mutex_);
    threads_[connection].insert(std::this_thread::get_id());
  }
  std::map<std::string, std::set<std::thread::id>> threads() {
    MutexLock lock(mutex_);
    return threads_;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::set<std::thread::id>> threads_ REFRAIN_GUARDED_BY(mutex_);
};

class NotingTarget final : public WakeupQueue::Target {
 public:
  NotingTarget(Notes* notes, std::string connection)
      : notes_(notes), connection_(std::move(connection)) {}
  void OnWakeup() override { notes_->Add(connection_); }

 private:
  Notes* const notes_;
  const std::string connection_;
};

TEST(StreamThreadsTest, AConnectionHasOneThreadAndConnectionsHaveThemAll) {
  constexpr int kConnections = 40, kCalls = 5;
  Notes notes;
  std::vector<std::shared_ptr<NotingTarget>> targets;
  {
    StreamThreads threads(3);
    for (int call = 0; call < kCalls; ++call) {
      for (int port = 0; port < kConnections; ++port) {
        const std::string connection = "ipv4:127.0.0.1:" + std::to_string(40'000 + port);
        targets.push_back(std::make_shared<NotingTarget>(&notes, connection));
        threads.MakeWaker(targets.back(), connection)();
      }
    }
  }  // runs what is left
  const auto found = notes.threads();
  EXPECT_EQ(found.size(), static_cast<size_t>(kConnections));
  std::set<std::thread::id> all;
  for (const auto& [connection, of_one] : found) {
    EXPECT_EQ(of_one.size(), 1u) << connection;
    all.insert(of_one.begin(), of_one.end());
  }
  EXPECT_EQ(all.size(), 3u);
  EXPECT_FALSE(all.contains(std::this_thread::get_id()));
}

}  // namespace
}  // namespace refrain::server::rpc
