#ifndef REFRAIN_SERVER_HTTP_COUNTED_H_
#define REFRAIN_SERVER_HTTP_COUNTED_H_

#include <atomic>

namespace refrain::server::http {

// One of what is counted more, while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>* count) : count_(count) { ++*count_; }
  ~Counted() { --*count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>* const count_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_COUNTED_H_
