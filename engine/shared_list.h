#ifndef REFRAIN_ENGINE_SHARED_LIST_H_
#define REFRAIN_ENGINE_SHARED_LIST_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace refrain::engine {

// A list that is never changed: copies share it, in any threads. For what the prompts of one call
// and the sequences of one prompt have in common, which may be large and many.
template <typename T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = const T*;

  SharedList() = default;
  SharedList(std::vector<T> items)  // NOLINT(google-explicit-constructor): it is one
      : items_(std::make_shared<const std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  size_t size() const { return items_ == nullptr ? 0 : items_->size(); }
  bool empty() const { return size() == 0; }
  const T* begin() const { return items_ == nullptr ? nullptr : items_->data(); }
  const T* end() const { return begin() + size(); }
  const T& operator[](size_t i) const { return (*items_)[i]; }
  // Whether it is a copy of the other, or both are empty; equal items are not enough.
  bool IsCopyOf(const SharedList& other) const { return begin() == other.begin(); }
  operator std::span<const T>() const {  // NOLINT(google-explicit-constructor): as a vector's
    return {begin(), size()};
  }

 private:
  std::shared_ptr<const std::vector<T>> items_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SHARED_LIST_H_
