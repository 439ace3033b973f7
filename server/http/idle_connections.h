#ifndef REFRAIN_SERVER_HTTP_IDLE_CONNECTIONS_H_
#define REFRAIN_SERVER_HTTP_IDLE_CONNECTIONS_H_

#include <boost/intrusive/list.hpp>
#include <chrono>
#include <memory>

#include "engine/annotated_mutex.h"

namespace refrain::server::http {

class Connection;

// The connections of a server that wait for a request, in the order in which they began to: where
// there is no room for another, the first gives up its place. It ends nobody itself. Any thread.
class IdleConnections {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // One of them, while it lives.
  class Waiting : public boost::intrusive::list_base_hook<> {
   public:
    Waiting(IdleConnections* all, std::weak_ptr<Connection> connection)
        : all_(all), connection_(std::move(connection)) {
      MutexLock lock(all_->mutex_);
      since_ = std::chrono::steady_clock::now();
      all_->waiting_.push_back(*this);
    }
    ~Waiting() {
      MutexLock lock(all_->mutex_);
      if (is_linked()) all_->waiting_.erase(all_->waiting_.iterator_to(*this));
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    TimePoint since() const { return since_; }

   private:
    friend class IdleConnections;
    IdleConnections* const all_;
    const std::weak_ptr<Connection> connection_;
    TimePoint since_;
  };

  // Who has waited longest, if that was since before `latest`; null where nobody has. It is not
  // found again in the same wait.
  std::shared_ptr<Connection> Take(TimePoint latest) {
    MutexLock lock(mutex_);
    if (waiting_.empty() || waiting_.front().since_ > latest) return nullptr;
    std::shared_ptr<Connection> first = waiting_.front().connection_.lock();
    waiting_.pop_front();
    return first;
  }

 private:
  Mutex mutex_;
  boost::intrusive::list<Waiting> waiting_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_IDLE_CONNECTIONS_H_
