#ifndef REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_LANGUAGE_EMULATED_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_LANGUAGE_EMULATED_H_

// device_language.h as the host compiler sees it, on the emulated device; included by that header
// only. What CUDA C has in the global namespace is there here too.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cuda/emulated/device_numbers_emulated.h"
#include "kernels/cuda/emulated/emulated_stream.h"
#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/stream.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  // As CUDA has it. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define threadIdx (::refrain::kernels::cuda::emulated::CurrentThread().thread_index)
#define blockIdx (::refrain::kernels::cuda::emulated::CurrentThread().block->block_index)
#define blockDim (::refrain::kernels::cuda::emulated::CurrentThread().block->block_dim)
#define gridDim (::refrain::kernels::cuda::emulated::CurrentThread().block->grid_dim)

inline void __syncthreads(std::source_location place = std::source_location::current()) {
  refrain::kernels::cuda::emulated::SyncBlock(place.file_name(), static_cast<int>(place.line()));
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  refrain::kernels::cuda::emulated::MeetWarp(mask, "__syncwarp", nullptr,
                                             [](void* const*, uint32_t) {});
}

namespace refrain::kernels::cuda::emulated {

// The value that lane `source(lane)` passed; out of range, or not in the mask: the lane's own.
template <class T, class SourceOf>
T Shuffle(uint32_t mask, const char* name, T value, SourceOf source_of) {
  struct Operand {
    T value;
    int source;
  };
  const int lane = CurrentThread().linear % 32;
  Operand operand{value, source_of(lane)};
  MeetWarp(mask, name, &operand, [](void* const* operands, uint32_t present) {
    T values[32];
    for (int i = 0; i < 32; ++i) {
      if ((present >> i & 1) != 0) values[i] = static_cast<Operand*>(operands[i])->value;
    }
    for (int i = 0; i < 32; ++i) {
      if ((present >> i & 1) == 0) continue;
      Operand& own = *static_cast<Operand*>(operands[i]);
      if ((present >> own.source & 1) == 0) {
        FailKernel("a shuffle reads a lane that is not in its mask");
      }
      own.value = values[own.source];
    }
  });
  return operand.value;
}

template <class T, class Combine>
T ReduceFlags(uint32_t mask, const char* name, bool flag, Combine combine) {
  struct Operand {
    bool flag;
    uint32_t ballot;
  } operand{flag, 0};
  MeetWarp(mask, name, &operand, [](void* const* operands, uint32_t present) {
    uint32_t ballot = 0;
    for (int i = 0; i < 32; ++i) {
      if ((present >> i & 1) != 0 && static_cast<Operand*>(operands[i])->flag) ballot |= 1u << i;
    }
    for (int i = 0; i < 32; ++i) {
      if ((present >> i & 1) != 0) static_cast<Operand*>(operands[i])->ballot = ballot;
    }
  });
  return combine(operand.ballot);
}

}  // namespace refrain::kernels::cuda::emulated

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return refrain::kernels::cuda::emulated::Shuffle(mask, "__shfl_sync", value, [=](int lane) {
    return (lane & ~(width - 1)) | (source & (width - 1));
  });
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return refrain::kernels::cuda::emulated::Shuffle(mask, "__shfl_xor_sync", value, [=](int lane) {
    const int source = lane ^ lanes;
    return source / width <= lane / width ? source : lane;
  });
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  return refrain::kernels::cuda::emulated::Shuffle(mask, "__shfl_down_sync", value, [=](int lane) {
    const int source = lane + static_cast<int>(lanes);
    return source / width == lane / width ? source : lane;
  });
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  return refrain::kernels::cuda::emulated::Shuffle(mask, "__shfl_up_sync", value, [=](int lane) {
    const int source = lane % width - static_cast<int>(lanes);
    return source >= 0 ? lane - static_cast<int>(lanes) : lane;
  });
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return refrain::kernels::cuda::emulated::ReduceFlags<unsigned>(
      mask, "__ballot_sync", predicate != 0, [](uint32_t ballot) { return ballot; });
}

inline int __any_sync(unsigned mask, int predicate) {
  return refrain::kernels::cuda::emulated::ReduceFlags<int>(
      mask, "__any_sync", predicate != 0, [](uint32_t ballot) { return ballot != 0; });
}

inline int __all_sync(unsigned mask, int predicate) {
  return refrain::kernels::cuda::emulated::ReduceFlags<int>(
      mask, "__all_sync", predicate != 0, [=](uint32_t ballot) { return ballot == mask; });
}

// Blocks may run on several host threads.
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*to).fetch_add(value);
}
template <class T>
T atomicExch(T* to, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*to).exchange(value);
}
template <class T>
T atomicCAS(T* to, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*to).compare_exchange_strong(expected, value);
  return expected;
}
template <class T>
T atomicMax(T* to, std::type_identity_t<T> value) {
  std::atomic_ref<T> at(*to);
  T old = at.load();
  while (old < value && !at.compare_exchange_weak(old, value)) {
  }
  return old;
}
template <class T>
T atomicMin(T* to, std::type_identity_t<T> value) {
  std::atomic_ref<T> at(*to);
  T old = at.load();
  while (value < old && !at.compare_exchange_weak(old, value)) {
  }
  return old;
}

inline void __threadfence() { refrain::kernels::cuda::emulated::FenceThread(); }
inline void __nanosleep(unsigned) { refrain::kernels::cuda::emulated::YieldThread(); }
inline void __trap() { refrain::kernels::cuda::emulated::FailKernel("__trap"); }

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}

namespace refrain::kernels::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  const char* kernel = "";
  bool early = false;  // of sm_90 and on: see WaitForKernelBefore in instructions.h
};

template <class T>
T* SharedMemory() {
  return reinterpret_cast<T*>(emulated::CurrentThread().block->shared);
}

template <class... Params, class... Args>
void Launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  const emulated::GridShape grid = {{shape.grid.x, shape.grid.y, shape.grid.z},
                                    {shape.block.x, shape.block.y, shape.block.z},
                                    shape.shared_bytes,
                                    shape.kernel,
                                    shape.early};
  emulated::EnqueueLaunch(
      stream, grid,
      [kernel, params = std::tuple<std::decay_t<Params>...>(std::forward<Args>(args)...)] {
        std::apply(kernel, params);
      });
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_LANGUAGE_EMULATED_H_
