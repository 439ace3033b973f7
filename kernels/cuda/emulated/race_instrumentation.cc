// The functions that -fsanitize=thread (g++ 12) calls for each load and store, in place of
// ThreadSanitizer's: they tell the emulated device, which knows the thread of the kernel. Code
// compiled so runs outside of kernels, too; then nothing is told.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/emulated/race_detector.h"

namespace emulated = refrain::kernels::cuda::emulated;

namespace {

using Kind = emulated::AccessKind;

inline void Note(const void* at, size_t bytes, Kind kind, const void* place) {
  if (emulated::current_thread == nullptr || emulated::within_device) return;
  emulated::NoteAccess(at, bytes, kind, place);
}

template <class T>
std::atomic_ref<T> Atomic(volatile T* at, const void* place) {
  T* const plain = const_cast<T*>(at);
  Note(plain, sizeof(T), Kind::kAtomic, place);
  return std::atomic_ref<T>(*plain);
}

}  // namespace

#define HERE __builtin_return_address(0)

extern "C" {

void __tsan_init() { emulated::RaceDetector::instrumented() = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define REFRAIN_ACCESS(BYTES)                                                           \
  void __tsan_read##BYTES(void* at) { Note(at, BYTES, Kind::kRead, HERE); }             \
  void __tsan_write##BYTES(void* at) { Note(at, BYTES, Kind::kWrite, HERE); }           \
  void __tsan_unaligned_read##BYTES(void* at) { Note(at, BYTES, Kind::kRead, HERE); }   \
  void __tsan_unaligned_write##BYTES(void* at) { Note(at, BYTES, Kind::kWrite, HERE); } \
  void __tsan_volatile_read##BYTES(void* at) { Note(at, BYTES, Kind::kRead, HERE); }    \
  void __tsan_volatile_write##BYTES(void* at) { Note(at, BYTES, Kind::kWrite, HERE); }
REFRAIN_ACCESS(1)
REFRAIN_ACCESS(2)
REFRAIN_ACCESS(4)
REFRAIN_ACCESS(8)
REFRAIN_ACCESS(16)
#undef REFRAIN_ACCESS

void __tsan_read_range(void* at, size_t bytes) { Note(at, bytes, Kind::kRead, HERE); }
void __tsan_write_range(void* at, size_t bytes) { Note(at, bytes, Kind::kWrite, HERE); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define REFRAIN_ATOMIC(BITS, T)                                                                \
  T __tsan_atomic##BITS##_load(const volatile T* at, int) {                                    \
    return Atomic(const_cast<volatile T*>(at), HERE).load();                                   \
  }                                                                                            \
  void __tsan_atomic##BITS##_store(volatile T* at, T value, int) {                             \
    Atomic(at, HERE).store(value);                                                             \
  }                                                                                            \
  T __tsan_atomic##BITS##_exchange(volatile T* at, T value, int) {                             \
    return Atomic(at, HERE).exchange(value);                                                   \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_add(volatile T* at, T value, int) {                            \
    return Atomic(at, HERE).fetch_add(value);                                                  \
  }                                                                                            \
  T __tsan_atomic##BITS##_fetch_sub(volatile T* at, T value, int) {                            \
    return Atomic(at, HERE).fetch_sub(value);                                                  \
  }                                                                                            \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* at, T* expected, T value, int, \
                                                    int) {                                     \
    return Atomic(at, HERE).compare_exchange_strong(*expected, value);                         \
  }                                                                                            \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* at, T* expected, T value, int,   \
                                                  int) {                                       \
    return Atomic(at, HERE).compare_exchange_strong(*expected, value);                         \
  }
REFRAIN_ATOMIC(32, uint32_t)
REFRAIN_ATOMIC(64, uint64_t)
#undef REFRAIN_ATOMIC

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
