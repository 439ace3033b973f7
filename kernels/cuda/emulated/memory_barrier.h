#ifndef REFRAIN_KERNELS_CUDA_EMULATED_MEMORY_BARRIER_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_MEMORY_BARRIER_H_

#include <bit>
#include <cstdint>

namespace refrain::kernels::cuda::emulated {

// What stands in the 64 bits of an mbarrier object here (on a GPU they are opaque). A phase ends
// when no arrival and no byte is missing; then the parity turns and the arrivals are counted anew.
// Bytes may land before they are expected: the count of missing bytes is signed.
class MemoryBarrier {
 public:
  static uint64_t Make(int arrivals) {
    MemoryBarrier barrier(0);
    barrier.fields_ = {0, static_cast<uint64_t>(arrivals), static_cast<uint64_t>(arrivals), 0,
                       kMagic};
    return barrier.bits();
  }

  explicit MemoryBarrier(uint64_t bits) : fields_(std::bit_cast<Fields>(bits)) {}

  uint64_t bits() const { return std::bit_cast<uint64_t>(fields_); }
  bool valid() const { return fields_.magic == kMagic; }
  uint32_t parity() const { return static_cast<uint32_t>(fields_.parity); }  // of the phase now

  void Expect(uint32_t bytes) { fields_.missing_bytes += bytes; }
  void Land(uint32_t bytes) { fields_.missing_bytes -= bytes; }
  bool Arrive() {  // false: more than were to come
    if (fields_.missing_arrivals == 0) return false;
    --fields_.missing_arrivals;
    return true;
  }
  bool EndPhaseIfDone() {
    if (fields_.missing_arrivals != 0 || fields_.missing_bytes != 0) return false;
    fields_.parity ^= 1;
    fields_.missing_arrivals = fields_.arrivals;
    return true;
  }

 private:
  static constexpr uint64_t kMagic = 0xa5;

  struct Fields {
    uint64_t parity : 1;
    uint64_t arrivals : 12;
    uint64_t missing_arrivals : 12;
    int64_t missing_bytes : 31;
    uint64_t magic : 8;
  };

  Fields fields_;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_MEMORY_BARRIER_H_
