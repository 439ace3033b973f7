#include "tests/kernels/cuda/instruction_kernels.h"

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/kv_elements.h"
#include "kernels/cuda/wgmma.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kImageElements = 16 << 10;  // 32 KiB, at most

__global__ void Convert(ConversionLaunch args) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= args.count) return;
  const float x = args.in[i];
  args.f16[i] = FloatToHalf(x);
  args.bf16[i] = FloatToBf16(x);
  args.f16_pairs[i] = PackPair<F16>(x, -x);
  args.bf16_pairs[i] = PackPair<BF16>(x, -x);
  args.exp_two[i] = ExpTwo(x);
  args.from_f16[i] = HalfToFloat(args.f16[i]);
  args.from_bf16[i] = Bf16ToFloat(args.bf16[i]);
  args.e4m3[i] = FloatToE4m3(x);
  args.from_e4m3[i] = E4m3ToFloat(args.e4m3[i]);
}

template <class T>
__global__ void Mma(const uint16_t* a, const uint16_t* b, float* d) {
  auto* const shared = SharedMemory<uint16_t>();  // a [16][16], b [16][8]
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) shared[i] = a[i];
  for (int i = lane; i < 128; i += 32) shared[256 + i] = b[i];
  __syncthreads();
  uint32_t fa[4], fb[2];
  LoadMatrixX4(fa, shared + lane % 16 * 16 + lane / 16 * 8);
  LoadMatrixX2Transposed(fb, shared + 256 + lane % 16 * 8);
  float fd[4];
  for (int i = 0; i < 4; ++i) fd[i] = d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  MmaM16N8K16<T>(fd, fa, fb);
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = fd[i];
}

__global__ void LoadMatrices(uint32_t* out) {
  auto* const tile = SharedMemory<uint16_t>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) tile[i] = static_cast<uint16_t>(i);
  __syncthreads();
  uint32_t straight[4], transposed[4];
  LoadMatrixX4(straight, tile + 8 * lane);
  LoadMatrixX4Transposed(transposed, tile + 8 * lane);
  for (int i = 0; i < 4; ++i) {
    out[8 * lane + i] = straight[i];
    out[8 * lane + 4 + i] = transposed[i];
  }
}

__global__ void CopyAsync(const uint32_t* in, uint32_t* out) {
  auto* const landed = SharedMemory<uint32_t>();
  const int thread = static_cast<int>(threadIdx.x);
  CopyAsync16(landed + 4 * thread, in + 4 * thread, thread % 2 == 0);
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  __syncthreads();
  const int other = (thread + 33) % 64;  // of the other warp
  for (int i = 0; i < 4; ++i) out[4 * other + i] = landed[4 * other + i];
}

struct Ring {
  alignas(16) float stages[2][64];
  uint64_t full[2], empty[2];
};

__global__ void BulkCopies(const float* in, int rounds, float* out) {
  Ring& ring = *SharedMemory<Ring>();
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      BarrierInit(&ring.full[s], 1);
      BarrierInit(&ring.empty[s], 32);
    }
    BarrierInitFence();
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const int stage = i % 2, parity = i / 2 % 2;
    if (threadIdx.x < 32) {
      BarrierWait(&ring.empty[stage], parity ^ 1);
      if (lane == 0) BarrierExpectBytes(&ring.full[stage], 256);
      __syncwarp();
      if (lane < 16) {
        BulkCopyToShared(ring.stages[stage] + 4 * lane, in + 64 * i + 4 * lane, 16,
                         &ring.full[stage]);
      }
      __syncwarp();
    } else {
      BarrierWait(&ring.full[stage], parity);
      sum += ring.stages[stage][lane] + ring.stages[stage][lane + 32];
      BarrierArrive(&ring.empty[stage]);
    }
  }
  if (threadIdx.x >= 32) out[lane] = sum;
}

__global__ void __launch_bounds__(384, 1) ShareRegisters(int32_t* granted) {
  if (threadIdx.x < 256) {
    RegistersIncrease<224>();
    granted[threadIdx.x] = 1;
  } else {
    RegistersDecrease<56>();
  }
}

__global__ void NamedBarriers(int32_t* out) {
  auto* const numbers = SharedMemory<int32_t>();
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128;
  numbers[thread] = thread;
  NamedBarrierSync(1 + group, 128);
  const int neighbour = group * 128 + (thread + 40) % 128;
  const int32_t seen = numbers[neighbour];
  if (group == 0) {
    numbers[256 + thread] = seen;
    NamedBarrierArrive(3, 256);
    out[thread] = seen;
  } else {
    NamedBarrierSync(3, 256);
    out[thread] = seen + numbers[256 + (thread - 128 + 50) % 128];
  }
}

__global__ void LastBlockSums(float* partials, int32_t* counter, float* out) {
  auto* const last = SharedMemory<int32_t>();
  const int thread = static_cast<int>(threadIdx.x);
  partials[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(blockIdx.x + thread);
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    *last = atomicAdd(counter, 1) + 1 == static_cast<int>(gridDim.x) ? 1 : 0;
    if (*last != 0) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  if (*last == 0 || thread != 0) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) {
    sum += *static_cast<const volatile float*>(partials + i);
  }
  *out = sum;
}

__device__ __forceinline__ uint64_t DescriptorOf(const OperandInShared& at) {
  return SharedDescriptor(SharedMemory<unsigned char>() + at.begin, at.leading, at.stride,
                          static_cast<Swizzle>(at.swizzle));
}

template <class T, int kN, bool kTurnedA, bool kTurnedB, bool kRegisters>
__global__ void __launch_bounds__(128) Product(const __grid_constant__ ProductLaunch args) {
  auto* const shared = SharedMemory<uint16_t>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  for (int i = thread; i < args.image_elements; i += 128) shared[i] = args.image[i];
  AsyncProxyFence();
  __syncthreads();
  const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  [[maybe_unused]] uint32_t a[4][4];
  if constexpr (kRegisters) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int at = (row + 8 * (part % 2)) * 64 + 16 * step + 8 * (part / 2) + column;
        a[step][part] = shared[at] | static_cast<uint32_t>(shared[at + 1]) << 16;
      }
    }
    HoldRegisters(a);
  }
  float d[kN / 2];
#pragma unroll
  for (float& x : d) x = 1e9f;  // not added to
  const uint64_t in_a = DescriptorOf(args.a), in_b = DescriptorOf(args.b);
  HoldRegisters(d);
  WgmmaFence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t b = Advance(in_b, args.b.steps[step]);
    if constexpr (kRegisters) {
      WgmmaM64K16<T, kN, kTurnedB>(d, a[step], b, step > 0);
    } else {
      WgmmaM64K16<T, kN, kTurnedA, kTurnedB>(d, Advance(in_a, args.a.steps[step]), b, step > 0);
    }
  }
  WgmmaCommit();
  WgmmaWait<0>();
  HoldRegisters(d);
  if constexpr (kRegisters) HoldRegisters(a);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    args.out[(row + 8 * (i / 2 % 2)) * kN + i / 4 * 8 + column + i % 2] = d[i];
  }
}

template <class T, int kN, bool kTurnedA, bool kTurnedB, bool kRegisters>
bool LaunchIf(Stream& stream, const ProductLaunch& args) {
  if (args.n != kN || args.turned_a != kTurnedA || args.turned_b != kTurnedB ||
      args.a_in_registers != kRegisters) {
    return false;
  }
  Launch(stream, {1, 128, kImageElements * sizeof(uint16_t), "Product"},
         Product<T, kN, kTurnedA, kTurnedB, kRegisters>, args);
  return true;
}

// The forms that the attention kernel uses.
template <class T>
bool LaunchProductOf(Stream& stream, const ProductLaunch& args) {
  return LaunchIf<T, 8, false, false, false>(stream, args) ||
         LaunchIf<T, 16, false, false, false>(stream, args) ||
         LaunchIf<T, 32, false, false, false>(stream, args) ||
         LaunchIf<T, 64, false, false, false>(stream, args) ||
         LaunchIf<T, 8, true, true, false>(stream, args) ||
         LaunchIf<T, 16, true, true, false>(stream, args) ||
         LaunchIf<T, 32, true, true, false>(stream, args) ||
         LaunchIf<T, 64, false, false, true>(stream, args) ||
         LaunchIf<T, 64, false, true, true>(stream, args) ||
         LaunchIf<T, 96, false, true, true>(stream, args) ||
         LaunchIf<T, 128, false, true, true>(stream, args);
}

}  // namespace

void LaunchConversions(Stream& stream, const ConversionLaunch& args) {
  const auto blocks = static_cast<unsigned>((args.count + 127) / 128);
  Launch(stream, {blocks, 128, 0, "Convert"}, Convert, args);
}

void LaunchMma(Stream& stream, bool bf16, const uint16_t* a, const uint16_t* b, float* d) {
  Launch(stream, {1, 32, 384 * sizeof(uint16_t), "Mma"}, bf16 ? Mma<BF16> : Mma<F16>, a, b, d);
}

void LaunchLoadMatrices(Stream& stream, uint32_t* out) {
  Launch(stream, {1, 32, 256 * sizeof(uint16_t), "LoadMatrices"}, LoadMatrices, out);
}

void LaunchCopyAsync(Stream& stream, const uint32_t* in, uint32_t* out) {
  Launch(stream, {1, 64, 1024, "CopyAsync"}, CopyAsync, in, out);
}

void LaunchBulkCopies(Stream& stream, const float* in, int rounds, float* out) {
  Launch(stream, {1, 64, sizeof(Ring), "BulkCopies"}, BulkCopies, in, rounds, out);
}

void LaunchShareRegisters(Stream& stream, int32_t* granted) {
  Launch(stream, {1, 384, 0, "ShareRegisters"}, ShareRegisters, granted);
}

void LaunchNamedBarriers(Stream& stream, int32_t* out) {
  Launch(stream, {1, 256, 384 * sizeof(int32_t), "NamedBarriers"}, NamedBarriers, out);
}

void LaunchLastBlockSums(Stream& stream, int blocks, float* partials, int32_t* counter,
                         float* out) {
  Launch(stream, {static_cast<unsigned>(blocks), 64, sizeof(int32_t), "LastBlockSums"},
         LastBlockSums, partials, counter, out);
}

bool LaunchProduct(Stream& stream, const ProductLaunch& args) {
  if (args.image_elements > kImageElements) return false;
  return args.bf16 ? LaunchProductOf<BF16>(stream, args) : LaunchProductOf<F16>(stream, args);
}

}  // namespace refrain::kernels::cuda
