#ifndef REFRAIN_KERNELS_CUDA_EMULATED_BLOCK_SCHEDULER_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_BLOCK_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/emulated/emulated_grid.h"
#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/emulated/fiber.h"
#include "kernels/cuda/emulated/memory_barrier.h"
#include "kernels/cuda/emulated/race_detector.h"

namespace refrain::kernels::cuda::emulated {

// Runs one block of a kernel at a time: a fiber per thread, each until it waits or ends, in the
// order in which they became able to go on. What emulated_thread.h offers to kernels are calls of
// the scheduler that runs the calling fiber.
//
// States of a thread: ready -> running -> (waiting -> ready ->)* ended. When none is ready and some
// wait, the copies under way land; when that frees none either, the kernel is in error.
class BlockScheduler {
 public:
  BlockScheduler(const GridShape& shape, const std::function<void()>& body, FiberPool& fibers,
                 bool stale_copies, const RaceCheck& races);
  ~BlockScheduler();

  std::optional<std::string> RunBlock(Extent3 block_index);

  // Of the calling thread.
  void SyncBlock(const char* file, int line);
  void Meet(int first_thread, int count, uint32_t mask, const char* name, void* operand,
            Perform perform);
  void Named(int id, int threads, bool wait);
  void IssueCopy(void* shared, const void* global, size_t bytes, bool valid, const void* place);
  void CommitCopies();
  void WaitForCopies(int pending_groups);
  void InitBarrier(uint64_t* barrier, int arrivals);
  void ArriveAtBarrier(uint64_t* barrier, uint32_t expected_bytes);
  void WaitAtBarrier(uint64_t* barrier, uint32_t parity);
  void IssueBulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier,
                     const void* place);
  void SetRegisters(int count, bool increase);
  void Yield();
  void NoteAccess(const void* at, size_t bytes, AccessKind kind, const void* place);
  void NoteFence();
  void NoteProxyFence();
  void NoteWaitForKernelBefore();
  bool NoteProduct();
  void NoteProductRead(uint32_t offset);
  void NoteProductCommit();
  void NoteProductWait(int pending_groups);
  [[noreturn]] void Fail(std::string message);

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;  // null: zeros
    size_t bytes;
  };
  struct BulkCopy {
    Copy copy;
    uint64_t* barrier;
  };
  struct Thread {
    ThreadContext context;
    std::unique_ptr<Fiber> fiber;  // none before it first runs and after it ended
    BlockScheduler* scheduler = nullptr;
    bool ended = false;
    const char* waits_for = nullptr;  // none: it does not wait
    const char* file = nullptr;       // of a __syncthreads
    int line = 0;
    std::vector<Copy> copies;
    std::vector<size_t> group_ends;  // into copies
  };
  // Threads of one warp or warpgroup on their way to one instruction.
  struct Meeting {
    uint32_t mask;
    const char* name;
    int arrived = 0;
    std::array<void*, 128> operands{};
  };
  struct NamedBarrier {
    int expected = 0;
    int arrived = 0;
    std::vector<int> waiting;
    ClockPtr arrivals;  // of those that do not wait
  };
  struct WarpgroupRegisters {
    int held = 0;    // by each thread
    int wanted = 0;  // by an increase that waits; 0: none does
    std::vector<int> waiting;
  };
  struct BarrierWaiter {
    uint64_t* barrier;
    int thread;
  };

  Thread& Current();
  void RunThread(int thread);
  void Wait(const char* what);  // until someone calls Release
  void Release(int thread);
  void ReleaseWaitersAt(uint64_t* barrier);
  bool LandBulkCopies();
  void ChangeRegisters(int warpgroup, int count, bool increase);
  void GrantRegisters();
  void CheckSharedRange(const char* what, const void* shared, size_t bytes);
  void Reset(Extent3 block_index);
  void SyncWarp(int first, uint32_t mask);
  void NoteNamed(NamedBarrier& barrier, bool last, bool wait);
  void NoteBarrier(const uint64_t* barrier, AccessKind kind);
  void EndPhaseIfDone(uint64_t* barrier, MemoryBarrier state);
  bool IsOwnMemory(const void* at) const;
  void FailAt(std::optional<std::string> race);
  std::string DescribeThread(int thread) const;
  std::string DescribeRegisters() const;
  std::string DescribeDeadlock() const;

  const GridShape& shape_;
  const std::function<void()>& body_;
  FiberPool& fibers_;
  const bool stale_copies_;
  RaceDetector* const races_;  // null: nobody looks for races
  BlockContext block_;
  std::byte* shared_ = nullptr;
  std::vector<Thread> threads_;
  std::deque<int> ready_;
  int ended_ = 0;
  std::optional<std::string> error_;

  int sync_arrived_ = 0;
  const char* sync_file_ = nullptr;
  int sync_line_ = 0;
  std::vector<std::vector<std::unique_ptr<Meeting>>> warp_meetings_;       // by warp
  std::vector<std::vector<std::unique_ptr<Meeting>>> warpgroup_meetings_;  // by warpgroup
  std::vector<std::unique_ptr<Meeting>> idle_meetings_;
  std::array<NamedBarrier, 16> named_;
  std::vector<WarpgroupRegisters> registers_;  // by warpgroup
  int free_registers_ = 0;                     // of each of 128 threads, given back by decreases
  std::vector<BarrierWaiter> barrier_waiters_;
  std::vector<BulkCopy> bulk_copies_;
  std::set<const void*> copied_to_;  // by the block's bulk copies
  // For the race detector, kept: threads that FailKernel leaves never free theirs.
  std::vector<int> everyone_, members_;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_BLOCK_SCHEDULER_H_
