#ifndef REFRAIN_SERVER_BYTE_BUDGET_H_
#define REFRAIN_SERVER_BYTE_BUDGET_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/annotated_mutex.h"

namespace refrain::server {

// A bound on the bytes that many hold at once. Any thread; never waits.
//
// An owner (API key) that comes with more and more leaves room for others: it may hold as much as
// it leaves free, so half of all where it is alone, a third beside another one that does the same
// (the dynamic threshold of Choudhury and Hahne, 1998, with alpha = 1). What it holds at one place
// only, it may hold up to the whole bound. What is nobody's has the whole bound, too.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }

 private:
  friend class HeldBytes;

  // For who holds `held` of what `owner` has.
  bool Take(const std::string& owner, size_t held, size_t bytes) {
    MutexLock lock(mutex_);
    if (bytes > free_) return false;
    if (!owner.empty()) {
      const auto found = owned_.find(owner);
      const size_t owned = found == owned_.end() ? 0 : found->second;
      if (owned > held && owned + bytes > free_ - bytes) return false;
      owned_[owner] = owned + bytes;
    }
    free_ -= bytes;
    return true;
  }
  void Return(const std::string& owner, size_t bytes) {
    if (bytes == 0) return;
    MutexLock lock(mutex_);
    free_ += bytes;
    if (owner.empty()) return;
    const auto owned = owned_.find(owner);
    if ((owned->second -= bytes) == 0) owned_.erase(owned);
  }

  const size_t bytes_;
  Mutex mutex_;
  size_t free_ REFRAIN_GUARDED_BY(mutex_) = bytes_;
  std::map<std::string, size_t> owned_ REFRAIN_GUARDED_BY(mutex_);
};

// What one holds of a budget; goes back when it goes. One thread at a time.
class HeldBytes {
 public:
  // `owner` "" is nobody.
  HeldBytes(std::shared_ptr<ByteBudget> budget, std::string owner)
      : budget_(std::move(budget)), owner_(std::move(owner)) {}
  ~HeldBytes() { budget_->Return(owner_, bytes_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  size_t bytes() const { return bytes_; }
  const ByteBudget& budget() const { return *budget_; }
  // From now on it is `bytes`, if that is not less than now. False when so many are not left; then
  // it holds what it held.
  bool GrowTo(size_t bytes) {
    if (bytes <= bytes_) return true;
    if (!budget_->Take(owner_, bytes_, bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<ByteBudget> budget_;
  const std::string owner_;
  size_t bytes_ = 0;
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_BYTE_BUDGET_H_
