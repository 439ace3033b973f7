#ifndef REFRAIN_SERVER_HTTP_HANDLER_MEMORY_H_
#define REFRAIN_SERVER_HTTP_HANDLER_MEMORY_H_

#include <array>
#include <cstddef>
#include <new>

namespace refrain::server::http {

// Memory of its own for one asynchronous operation at a time, so that a coroutine can wait also
// where the system refuses memory: Asio destroys, with its frame, whoever it finds none for. What
// is larger, or comes while the memory is taken, has the system's. One thread at a time; outlives
// the operation.
class HandlerMemory {
 public:
  HandlerMemory() = default;
  HandlerMemory(const HandlerMemory&) = delete;
  HandlerMemory& operator=(const HandlerMemory&) = delete;

  void* Allocate(size_t bytes) {
    if (taken_ || bytes > bytes_.size()) return ::operator new(bytes);
    taken_ = true;
    return bytes_.data();
  }
  void Free(void* memory) {
    if (memory != bytes_.data()) return ::operator delete(memory);
    taken_ = false;
  }

 private:
  alignas(std::max_align_t) std::array<std::byte, 1024> bytes_;
  bool taken_ = false;
};

// For asio::bind_allocator.
template <class T>
class HandlerAllocator {
 public:
  using value_type = T;

  explicit HandlerAllocator(HandlerMemory* memory) : memory_(memory) {}
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor): allocators become those of other types
  HandlerAllocator(const HandlerAllocator<U>& other) : memory_(other.memory()) {}

  T* allocate(size_t n) { return static_cast<T*>(memory_->Allocate(n * sizeof(T))); }
  void deallocate(T* p, size_t) { memory_->Free(p); }

  HandlerMemory* memory() const { return memory_; }
  template <class U>
  bool operator==(const HandlerAllocator<U>& other) const {
    return memory_ == other.memory();
  }

 private:
  HandlerMemory* memory_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_HANDLER_MEMORY_H_
