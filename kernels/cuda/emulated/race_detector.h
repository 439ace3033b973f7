#ifndef REFRAIN_KERNELS_CUDA_EMULATED_RACE_DETECTOR_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_RACE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/emulated/race_cell.h"
#include "kernels/cuda/emulated/race_clock.h"

namespace refrain::kernels::cuda::emulated {

// Finds accesses to device and shared memory that nothing orders, though the emulated device ran
// them in a good order: happens-before by vector clocks (FastTrack, Flanagan and Freund 2009; cells
// as ThreadSanitizer's). Rules are those of PTX's memory model, as far as kernels here use it:
//   - __syncthreads, __syncwarp, named barriers and mbarriers order what the threads that arrived
//     did before what those that waited do after. Shuffles, votes and products of a warp order
//     nothing.
//   - An atomic operation orders across blocks only between a __threadfence before it and one after
//     it (PTX: fence.sc and relaxed operations). Barriers carry all three to the block's threads:
//     the fences need not be of the thread of the atomic.
//   - Copies and wgmma are agents of their own: done when waited for (cp.async by their thread,
//   bulk
//     copies at their mbarrier, products by wgmma.wait_group of their warpgroup).
//   - What ordinary stores wrote to shared memory is seen by bulk copies and wgmma only behind
//     AsyncProxyFence on the way between the two.
//   - A kernel launched early is ordered with those before it only behind WaitForKernelBefore; a
//     kernel before that one only if some thread of that one waited, too. Kernels of several
//     streams are not told apart, nor what copies between kernels and the host do.
// It may miss a race (a cell keeps four accesses; calls of memcpy are not told), and does not
// accuse what is ordered by these rules.
//
// Told by the scheduler and, where kernels are compiled for it (--config=racecheck), of each load
// and store by the compiler (race_instrumentation.cc). One host thread at a time.
class RaceDetector {
 public:
  // Whether any code is compiled for it; set before main.
  static bool& instrumented();

  // What runs next on a queue: a kernel, or something (but the record of an event) for whose sake
  // all before it has ended; so it has where the host waited.
  void BeginKernel(const void* queue, bool early, int threads);
  void NoteOperation(const void* queue);
  void NoteHostWait() { chain_begin_ = kernels_.size(); }
  void BeginBlock(const std::byte* shared, size_t shared_bytes);

  // --- Of thread `thread` of the block that runs. `size` up to any number of bytes. ---
  // What is wrong, or nothing. `place` is an address in the code.
  std::optional<std::string> Access(int thread, const void* at, size_t size, AccessKind kind,
                                    const void* place);
  void Fence(int thread);       // __threadfence
  void ProxyFence(int thread);  // AsyncProxyFence
  void WaitForKernelBefore(int thread);

  // All of them arrive and wait.
  void Sync(const std::vector<int>& threads);
  // Named barriers: those that arrive, then, when all have, those that wait.
  ClockPtr Arrive(int thread) { return Release(&thread, 1); }
  void Acquire(int thread, const ClockPtr& clock);
  ClockPtr Join(const ClockPtr& a, const ClockPtr& b) { return joiner_.Join(a, b); }

  // mbarriers by address; a phase ends when the scheduler says so.
  void InitBarrier(const void* barrier);
  void ArriveAtBarrier(int thread, const void* barrier);
  void EndPhase(const void* barrier);
  void PassBarrier(int thread, const void* barrier);  // waited for the phase that ended last

  std::optional<std::string> BulkCopy(int thread, void* to, const void* from, size_t bytes,
                                      const void* barrier, const void* place);
  std::optional<std::string> CopyAsync(int thread, void* to, const void* from, size_t bytes,
                                       const void* place);  // from null: zeros
  void CommitCopies(int thread) { ++threads_[thread].copies_committed; }
  void WaitForCopies(int thread, int pending);

  // wgmma of the warpgroup, whose threads all stand still.
  void BeginProduct(int warpgroup);
  std::optional<std::string> ReadByProduct(int warpgroup,
                                           size_t offset);  // 2 bytes of shared memory
  void CommitProducts(int warpgroup) { ++groups_[warpgroup].committed; }
  void WaitForProducts(int warpgroup, int pending);

 private:
  struct ThreadState {
    ClockPtr clock;              // of what others did; shared by threads that met
    uint32_t epoch = 1;          // of what it does now
    ClockPtr fenced, loose;      // as Clock's, what is not in `clock` yet
    uint32_t proxied_epoch = 0;  // its own epochs up to here are behind its last proxy fence,
    ClockPtr proxied_clock;      // and so is what its clock knew then
    uint32_t copies_committed = 0, copies_done = 0;  // groups of cp.async
  };
  struct BarrierState {
    int agent;
    uint32_t phases = 0;  // that ended
    ClockPtr arriving, ended;
  };
  struct Warpgroup {
    uint32_t committed = 0, done = 0;
    std::vector<int> readers;  // of the product: a thread for each clock that they have
  };
  struct Kernel {
    uint32_t first_run;
    bool waited = false;  // some thread of it, for the kernel before it
  };

  int CopyAgent(int thread) const { return thread_count_ + thread; }
  int GroupAgent(int warpgroup) const { return 2 * thread_count_ + warpgroup; }

  ClockPtr Release(const int* threads, size_t count);
  bool Ordered(const RaceAccess& before, int thread) const;
  bool OrderedInRun(const RaceAccess& before, int thread) const;
  bool OrderedKernels(const RaceAccess& before, bool waited) const;
  bool Proxied(const RaceAccess& before, int thread) const;
  bool IsShared(const void* at) const;
  template <class OrderedFn>
  std::optional<std::string> Touch(const void* at, size_t size, RaceAccess access,
                                   const OrderedFn& ordered);
  std::string Describe(const RaceAccess& access) const;

  // Which run of a block is which: its kernel is that of the last first_run that is not behind it.
  std::vector<Kernel> kernels_;
  size_t chain_begin_ = 0;  // kernels from here on may still run when an early one begins
  const void* chain_queue_ = nullptr;
  bool early_ = false;
  uint32_t run_ = 0;
  int thread_count_ = 0;

  std::vector<ThreadState> threads_;
  std::vector<Warpgroup> groups_;
  std::map<const void*, BarrierState> barriers_;
  std::unordered_map<const void*, ClockPtr> atomics_;  // what each released, in this kernel

  const std::byte* shared_ = nullptr;
  size_t shared_bytes_ = 0;
  std::vector<RaceCell> shared_cells_;
  RaceCells global_cells_;
  ClockJoiner joiner_;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_RACE_DETECTOR_H_
