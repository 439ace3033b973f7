#ifndef REFRAIN_KERNELS_CPU_ALIGNED_FLOATS_H_
#define REFRAIN_KERNELS_CPU_ALIGNED_FLOATS_H_

#include <cstddef>
#include <cstdint>
#include <new>

namespace refrain::kernels::cpu {

// Floats on a cache line border, which grow and are never moved to what they held.
class AlignedFloats {
 public:
  ~AlignedFloats() { Free(); }
  AlignedFloats() = default;
  AlignedFloats(const AlignedFloats&) = delete;
  AlignedFloats& operator=(const AlignedFloats&) = delete;

  float* data() const { return data_; }

  // Empty when it throws std::bad_alloc.
  void Reserve(int64_t count) {
    if (count <= capacity_) return;
    Free();
    data_ = nullptr;
    capacity_ = 0;
    data_ =
        static_cast<float*>(::operator new (count * sizeof(float), std::align_val_t{kAlignment}));
    capacity_ = count;
  }

 private:
  static constexpr size_t kAlignment = 64;
  void Free() { ::operator delete (data_, std::align_val_t{kAlignment}); }

  float* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ALIGNED_FLOATS_H_
