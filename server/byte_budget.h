#ifndef REFRAIN_SERVER_BYTE_BUDGET_H_
#define REFRAIN_SERVER_BYTE_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <utility>

namespace refrain::server {

// A bound on the bytes that many hold at once. Any thread; never waits.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }

 private:
  friend class HeldBytes;

  bool Take(size_t bytes) {
    size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ || held > bytes_ - bytes) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void Return(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  const size_t bytes_;
  std::atomic<size_t> held_{0};
};

// What one holds of a budget, which outlives it; goes back when it goes. One thread at a time.
class HeldBytes {
 public:
  explicit HeldBytes(ByteBudget* budget) : budget_(budget) {}
  ~HeldBytes() { Release(); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  // From now on it is `bytes`, if that is not less than now. False when so many are not left; then
  // it holds what it held.
  bool GrowTo(size_t bytes) {
    if (bytes <= bytes_) return true;
    if (!budget_->Take(bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }
  void Release() { budget_->Return(std::exchange(bytes_, 0)); }

 private:
  ByteBudget* const budget_;
  size_t bytes_ = 0;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_BYTE_BUDGET_H_
