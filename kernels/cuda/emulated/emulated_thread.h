#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_THREAD_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_THREAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace refrain::kernels::cuda::emulated {

// What a kernel's thread asks of the emulated device: who it is, and to wait for the others. Called
// from inside kernels only. A mistake of the kernel (a rendezvous that not everyone comes to, a
// misaligned copy) ends the kernel with an error that names it and the thread; FailKernel does.

struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
};

struct BlockContext {
  Extent3 block_index, block_dim, grid_dim;
  std::byte* shared = nullptr;  // 1,024-byte aligned; at first every byte is 0xff, NaN in any float
  size_t shared_bytes = 0;
  // Of each warpgroup: the products of wgmma.h that are under way. Gone when the block ends.
  mutable std::array<std::shared_ptr<void>, 8> warpgroup_state;
};

struct ThreadContext {
  Extent3 thread_index;
  int linear = 0;  // in its block; lane = linear % 32
  const BlockContext* block = nullptr;
};

extern constinit thread_local ThreadContext* current_thread;
// Whether the calling host thread runs the device's own code, not a kernel's.
extern constinit thread_local bool within_device;
inline const ThreadContext& CurrentThread() { return *current_thread; }

// __syncthreads; the place tells calls apart.
void SyncBlock(const char* file, int line);

// All lanes of `mask` come with the same `name`; once the last is there, `perform(operands, mask)`
// runs once, with the operand of lane i in operands[i], and all go on. The instructions of a warp
// are made of this; so are those of a warpgroup (four warps, the first a multiple of four), whose
// operands are those of its 128 threads, mask all ones.
using Perform = void (*)(void* const* operands, uint32_t mask);
void MeetWarp(uint32_t mask, const char* name, void* operand, Perform perform);
void MeetWarpgroup(const char* name, void* operand, Perform perform);

void SyncNamed(int id, int threads);
void ArriveNamed(int id, int threads);

// Copies of one thread in groups: the destination holds 0xff bytes until its group is waited for.
void IssueCopy(void* shared, const void* global, size_t bytes, bool valid);
void CommitCopies();
void WaitForCopies(int pending_groups);

// mbarrier objects and the bulk copies that complete on them. A bulk copy lands when no thread can
// go on without it, as late as possible; until then its destination holds 0xff bytes.
void InitBarrier(uint64_t* barrier, int arrivals);
void ArriveAtBarrier(uint64_t* barrier, uint32_t expected_bytes);
void WaitAtBarrier(uint64_t* barrier, uint32_t parity);
void IssueBulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);

// setmaxnreg of a warpgroup: registers of each of its threads. A block is launched with what
// __launch_bounds__(its threads, 1) leaves each thread; only what decreases give back can be had by
// increases, which wait for it (PTX ISA, setmaxnreg).
void IncreaseRegisters(int count);
void DecreaseRegisters(int count);

// For the race detector (race_detector.h); nothing where there is none.
enum class AccessKind { kRead, kWrite, kAtomic };
void NoteAccess(const void* at, size_t bytes, AccessKind kind, const void* place);
void NoteProxyFence();  // AsyncProxyFence
void NoteWaitForKernelBefore();
// Of the warpgroup that stands still: a product is issued, reads two bytes of shared memory, ...
bool NoteProduct();  // false: there is no detector, the reads need not be told
void NoteProductRead(uint32_t offset);
void NoteProductCommit();
void NoteProductWait(int pending_groups);

void FenceThread();  // __threadfence

// Lets the others run first: for loops that wait for another thread of the block.
void YieldThread();

[[noreturn]] void FailKernel(std::string message);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_THREAD_H_
