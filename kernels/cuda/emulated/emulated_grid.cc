#include "kernels/cuda/emulated/emulated_grid.h"

#include <atomic>
#include <utility>

#include "kernels/cuda/emulated/block_scheduler.h"

namespace refrain::kernels::cuda::emulated {
namespace {

constinit thread_local BlockScheduler* scheduler = nullptr;

// The scheduler whose kernel this host thread runs.
class RunningScheduler {
 public:
  explicit RunningScheduler(BlockScheduler* running) : before_(scheduler) { scheduler = running; }
  ~RunningScheduler() { scheduler = before_; }

 private:
  BlockScheduler* before_;
};

}  // namespace

constinit thread_local ThreadContext* current_thread = nullptr;
constinit thread_local bool within_device = false;

namespace {

// Of a call of the device by a kernel. Its fiber may be left and come back meanwhile: see
// BlockScheduler::RunThread.
class WithinDevice {
 public:
  WithinDevice() = default;
  ~WithinDevice() { within_device = before_; }

 private:
  const bool before_ = std::exchange(within_device, true);
};

}  // namespace

std::optional<std::string> RefusalOf(const GridShape& shape) {
  const auto refuse = [&](const std::string& why) {
    return "launch of " + shape.kernel + ": " + why;
  };
  const Extent3& grid = shape.grid;
  const Extent3& block = shape.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    return refuse("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
                  std::to_string(grid.z) +
                  " blocks; each must be at least 1, y and z at most 65535");
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxBlockThreads || block.z > 64) {
    return refuse("a block of " + std::to_string(threads) + " threads; the most is " +
                  std::to_string(kMaxBlockThreads));
  }
  if (shape.shared_bytes > kMaxSharedBytes) {
    return refuse("a block with " + std::to_string(shape.shared_bytes) +
                  " bytes of shared memory; the most is " + std::to_string(kMaxSharedBytes));
  }
  return std::nullopt;
}

std::optional<std::string> RunGrid(const GridShape& shape, const std::function<void()>& body,
                                   FiberPool& fibers, bool stale_copies, const RaceCheck& races) {
  BlockScheduler block(shape, body, fibers, stale_copies, races);
  const RunningScheduler running(&block);
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) {
        if (auto error = block.RunBlock({x, y, z}); error.has_value()) return error;
      }
    }
  }
  return std::nullopt;
}

void SyncBlock(const char* file, int line) {
  const WithinDevice within;
  scheduler->SyncBlock(file, line);
}

void MeetWarp(uint32_t mask, const char* name, void* operand, Perform perform) {
  const WithinDevice within;
  scheduler->Meet(current_thread->linear / 32 * 32, 32, mask, name, operand, perform);
}

void MeetWarpgroup(const char* name, void* operand, Perform perform) {
  const WithinDevice within;
  scheduler->Meet(current_thread->linear / 128 * 128, 128, ~uint32_t{0}, name, operand, perform);
}

void SyncNamed(int id, int threads) {
  const WithinDevice within;
  scheduler->Named(id, threads, true);
}
void ArriveNamed(int id, int threads) {
  const WithinDevice within;
  scheduler->Named(id, threads, false);
}

void IssueCopy(void* shared, const void* global, size_t bytes, bool valid) {
  const WithinDevice within;
  scheduler->IssueCopy(shared, global, bytes, valid, __builtin_return_address(0));
}
void CommitCopies() {
  const WithinDevice within;
  scheduler->CommitCopies();
}
void WaitForCopies(int pending_groups) {
  const WithinDevice within;
  scheduler->WaitForCopies(pending_groups);
}

void InitBarrier(uint64_t* barrier, int arrivals) {
  const WithinDevice within;
  scheduler->InitBarrier(barrier, arrivals);
}
void ArriveAtBarrier(uint64_t* barrier, uint32_t expected_bytes) {
  const WithinDevice within;
  scheduler->ArriveAtBarrier(barrier, expected_bytes);
}
void WaitAtBarrier(uint64_t* barrier, uint32_t parity) {
  const WithinDevice within;
  scheduler->WaitAtBarrier(barrier, parity);
}
void IssueBulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  const WithinDevice within;
  scheduler->IssueBulkCopy(shared, global, bytes, barrier, __builtin_return_address(0));
}

void IncreaseRegisters(int count) {
  const WithinDevice within;
  scheduler->SetRegisters(count, true);
}
void DecreaseRegisters(int count) {
  const WithinDevice within;
  scheduler->SetRegisters(count, false);
}

void NoteAccess(const void* at, size_t bytes, AccessKind kind, const void* place) {
  const WithinDevice within;
  scheduler->NoteAccess(at, bytes, kind, place);
}
void NoteProxyFence() {
  const WithinDevice within;
  scheduler->NoteProxyFence();
}
void NoteWaitForKernelBefore() {
  const WithinDevice within;
  scheduler->NoteWaitForKernelBefore();
}
bool NoteProduct() {
  const WithinDevice within;
  return scheduler->NoteProduct();
}
void NoteProductRead(uint32_t offset) {
  const WithinDevice within;
  scheduler->NoteProductRead(offset);
}
void NoteProductCommit() {
  const WithinDevice within;
  scheduler->NoteProductCommit();
}
void NoteProductWait(int pending_groups) {
  const WithinDevice within;
  scheduler->NoteProductWait(pending_groups);
}

void FenceThread() {
  const WithinDevice within;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  scheduler->NoteFence();
}
void YieldThread() {
  const WithinDevice within;
  scheduler->Yield();
}
void FailKernel(std::string message) {
  const WithinDevice within;
  scheduler->Fail(std::move(message));
}

}  // namespace refrain::kernels::cuda::emulated
