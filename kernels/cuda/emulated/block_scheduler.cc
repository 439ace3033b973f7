#include "kernels/cuda/emulated/block_scheduler.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/cuda/emulated/memory_barrier.h"

namespace refrain::kernels::cuda::emulated {
namespace {

constexpr size_t kSharedAlignment = 1024;
constexpr int kUnset = 0xff;       // NaN in every float
constexpr int kRegisters = 65536;  // of a multiprocessor

// Of a thread: what __launch_bounds__(threads, 1) leaves the compiler.
int LaunchRegisters(int threads) { return std::min(kRegisters / threads, 255) / 8 * 8; }

std::string Describe(const Extent3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}

bool Aligned(const void* address, size_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

}  // namespace

BlockScheduler::BlockScheduler(const GridShape& shape, const std::function<void()>& body,
                               FiberPool& fibers, bool stale_copies, const RaceCheck& races)
    : shape_(shape),
      body_(body),
      fibers_(fibers),
      stale_copies_(stale_copies),
      races_(races.detector) {
  block_.block_dim = shape.block;
  block_.grid_dim = shape.grid;
  block_.shared_bytes = shape.shared_bytes;
  // The last byte of the allocation is the last that the kernel asked for: sanitizers see overruns.
  if (shape.shared_bytes > 0 && posix_memalign(reinterpret_cast<void**>(&shared_), kSharedAlignment,
                                               shape.shared_bytes) != 0) {
    throw std::bad_alloc();
  }
  block_.shared = shared_;
  const size_t threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
  threads_.resize(threads);
  warp_meetings_.resize((threads + 31) / 32);
  warpgroup_meetings_.resize((threads + 127) / 128);
  registers_.resize((threads + 127) / 128);
  if (races_ != nullptr) {
    races_->BeginKernel(races.queue, shape.early, static_cast<int>(threads));
  }
}

BlockScheduler::~BlockScheduler() {
  for (Thread& thread : threads_) {
    if (thread.fiber != nullptr) fibers_.Give(std::move(thread.fiber));
  }
  std::free(shared_);
}

void BlockScheduler::Reset(Extent3 block_index) {
  block_.block_index = block_index;
  block_.warpgroup_state.fill(nullptr);
  for (WarpgroupRegisters& group : registers_) {
    group.held = LaunchRegisters(static_cast<int>(threads_.size()));
  }
  free_registers_ = 0;
  if (shared_ != nullptr) std::memset(shared_, kUnset, shape_.shared_bytes);
  copied_to_.clear();
  ended_ = 0;
  if (races_ != nullptr) races_->BeginBlock(shared_, shape_.shared_bytes);
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    const auto linear = static_cast<unsigned>(i);
    thread.context.thread_index = {linear % shape_.block.x,
                                   linear / shape_.block.x % shape_.block.y,
                                   linear / shape_.block.x / shape_.block.y};
    thread.context.linear = static_cast<int>(i);
    thread.context.block = &block_;
    thread.scheduler = this;
    thread.ended = false;
    thread.copies.clear();
    thread.group_ends.clear();
    ready_.push_back(static_cast<int>(i));
  }
}

std::optional<std::string> BlockScheduler::RunBlock(Extent3 block_index) {
  Reset(block_index);
  while (ended_ < static_cast<int>(threads_.size())) {
    if (ready_.empty() && !LandBulkCopies() && ready_.empty()) {
      error_ = DescribeDeadlock();
    } else if (!ready_.empty()) {
      const int next = ready_.front();
      ready_.pop_front();
      RunThread(next);
    }
    if (error_.has_value()) break;
  }
  if (!error_.has_value() && !bulk_copies_.empty()) {
    error_ = "the block ended with bulk copies under way";
  }
  if (!error_.has_value()) return std::nullopt;
  return "kernel " + shape_.kernel + ", block " + Describe(block_index) + ": " + *error_;
}

void BlockScheduler::RunThread(int index) {
  Thread& thread = threads_[index];
  const bool begins = thread.fiber == nullptr;
  if (begins) {
    thread.fiber = fibers_.Take();
    thread.fiber->Start([](void* argument) { static_cast<Thread*>(argument)->scheduler->body_(); },
                        &thread);
  }
  ThreadContext* const before = std::exchange(current_thread, &thread.context);
  // A thread that goes on stands within a call of the device, which it leaves itself.
  within_device = !begins;
  thread.fiber->Resume();
  within_device = true;
  current_thread = before;
  if (!thread.fiber->ended()) return;
  fibers_.Give(std::move(thread.fiber));
  thread.ended = true;
  ++ended_;
}

BlockScheduler::Thread& BlockScheduler::Current() { return threads_[current_thread->linear]; }

void BlockScheduler::Wait(const char* what) {
  Thread& thread = Current();
  thread.waits_for = what;
  Fiber::Suspend();
  thread.waits_for = nullptr;
}

void BlockScheduler::Release(int thread) { ready_.push_back(thread); }

void BlockScheduler::Yield() {
  Release(current_thread->linear);
  Fiber::Suspend();
}

void BlockScheduler::Fail(std::string message) {
  {
    const std::string thread = DescribeThread(current_thread->linear);
    message.insert(0, thread + ": ");
  }
  // Nothing on this stack will be destroyed: leave nothing that owns memory.
  error_ = std::move(message);
  while (true) Fiber::Suspend();
}

// --- Rendezvous ---

void BlockScheduler::SyncBlock(const char* file, int line) {
  Thread& thread = Current();
  if (sync_arrived_ == 0) {
    sync_file_ = file;
    sync_line_ = line;
  } else if (line != sync_line_ || std::strcmp(file, sync_file_) != 0) {
    Fail("divergent __syncthreads: " + std::string(file) + ":" + std::to_string(line) +
         ", others wait at " + sync_file_ + ":" + std::to_string(sync_line_));
  }
  if (++sync_arrived_ < static_cast<int>(threads_.size())) {
    thread.file = file;
    thread.line = line;
    Wait("__syncthreads");
    return;
  }
  sync_arrived_ = 0;
  if (races_ != nullptr) {
    everyone_.resize(threads_.size());
    std::iota(everyone_.begin(), everyone_.end(), 0);
    races_->Sync(everyone_);
  }
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    if (i != thread.context.linear) Release(i);
  }
}

void BlockScheduler::Meet(int first, int count, uint32_t mask, const char* name, void* operand,
                          Perform perform) {
  const int own = current_thread->linear - first;
  if (count == 32 && (mask >> own & 1) == 0) Fail(std::string(name) + ": not in its own mask");
  if (count == 128 && first + count > static_cast<int>(threads_.size())) {
    Fail(std::string(name) + ": the warpgroup is not whole");
  }
  auto& meetings = count == 32 ? warp_meetings_[first / 32] : warpgroup_meetings_[first / 128];
  size_t at = 0;
  while (at < meetings.size() && meetings[at]->mask != mask) ++at;
  if (at == meetings.size()) {
    if (idle_meetings_.empty()) idle_meetings_.push_back(std::make_unique<Meeting>());
    meetings.push_back(std::move(idle_meetings_.back()));
    idle_meetings_.pop_back();
    meetings[at]->mask = mask;
    meetings[at]->name = name;
    meetings[at]->arrived = 0;
  }
  Meeting& meeting = *meetings[at];
  if (meeting.name != name && std::strcmp(meeting.name, name) != 0) {
    Fail("divergent warp: " + std::string(name) + ", others wait at " + meeting.name);
  }
  meeting.operands[own] = operand;
  const int expected = count == 32 ? std::popcount(mask) : count;
  if (++meeting.arrived < expected) {
    Wait(name);
    return;
  }
  perform(meeting.operands.data(), mask);
  if (races_ != nullptr && std::strcmp(name, "__syncwarp") == 0) SyncWarp(first, mask);
  for (int i = 0; i < count; ++i) {
    if (i != own && (count != 32 || (mask >> i & 1) != 0)) Release(first + i);
  }
  idle_meetings_.push_back(std::move(meetings[at]));
  meetings.erase(meetings.begin() + static_cast<std::ptrdiff_t>(at));
}

void BlockScheduler::SyncWarp(int first, uint32_t mask) {
  std::vector<int>& members = members_;
  members.clear();
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) members.push_back(first + i);
  }
  races_->Sync(members);
}

void BlockScheduler::Named(int id, int threads, bool wait) {
  if (id < 1 || id > 15 || threads < 32 || threads % 32 != 0 ||
      threads > static_cast<int>(threads_.size())) {
    Fail("named barrier " + std::to_string(id) + " for " + std::to_string(threads) + " threads");
  }
  NamedBarrier& barrier = named_[id];
  if (barrier.arrived > 0 && barrier.expected != threads) {
    Fail("named barrier " + std::to_string(id) + " for " + std::to_string(threads) +
         " threads, others say " + std::to_string(barrier.expected));
  }
  barrier.expected = threads;
  const bool last = ++barrier.arrived == threads;
  if (races_ != nullptr) NoteNamed(barrier, last, wait);
  if (last) {
    barrier.arrived = 0;
    for (const int thread : std::exchange(barrier.waiting, {})) Release(thread);
  } else if (wait) {
    barrier.waiting.push_back(current_thread->linear);
    Wait("a named barrier");
  }
}

// Before those that wait are released.
void BlockScheduler::NoteNamed(NamedBarrier& barrier, bool last, bool wait) {
  const int own = current_thread->linear;
  if (!wait) barrier.arrivals = races_->Join(barrier.arrivals, races_->Arrive(own));
  if (!last) return;
  members_ = barrier.waiting;
  if (wait) members_.push_back(own);
  const ClockPtr arrivals = std::exchange(barrier.arrivals, nullptr);
  if (members_.empty()) return;
  races_->Sync(members_);
  for (const int thread : members_) races_->Acquire(thread, arrivals);
}

// --- Registers ---

void BlockScheduler::SetRegisters(int count, bool increase) {
  struct Change {
    BlockScheduler* scheduler;
    int count;
    bool increase;
  } change{this, count, increase};
  const char* const name = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  const int warpgroup = current_thread->linear / 128;
  Meet(warpgroup * 128, 128, ~uint32_t{0}, name, &change, [](void* const* operands, uint32_t) {
    const Change& first = *static_cast<const Change*>(operands[0]);
    for (int i = 1; i < 128; ++i) {
      if (static_cast<const Change*>(operands[i])->count == first.count) continue;
      first.scheduler->Fail("setmaxnreg: not the same count in the whole warpgroup");
    }
    first.scheduler->ChangeRegisters(current_thread->linear / 128, first.count, first.increase);
  });
  while (registers_[warpgroup].wanted != 0) {
    registers_[warpgroup].waiting.push_back(current_thread->linear);
    Wait(name);
  }
}

void BlockScheduler::ChangeRegisters(int warpgroup, int count, bool increase) {
  WarpgroupRegisters& group = registers_[warpgroup];
  if (increase ? count < group.held : count > group.held) {
    Fail(std::string(increase ? "setmaxnreg.inc to " : "setmaxnreg.dec to ") +
         std::to_string(count) + " registers, the warpgroup has " + std::to_string(group.held));
  }
  if (increase) {
    group.wanted = count;
  } else {
    free_registers_ += group.held - count;
    group.held = count;
  }
  GrantRegisters();
}

void BlockScheduler::GrantRegisters() {
  for (WarpgroupRegisters& group : registers_) {
    if (group.wanted == 0 || group.wanted - group.held > free_registers_) continue;
    free_registers_ -= group.wanted - group.held;
    group.held = group.wanted;
    group.wanted = 0;
    for (const int thread : std::exchange(group.waiting, {})) Release(thread);
  }
}

// --- Copies ---

void BlockScheduler::CheckSharedRange(const char* what, const void* shared, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(shared);
  const bool inside =
      shared_ != nullptr && at >= shared_ && at + bytes <= shared_ + block_.shared_bytes;
  if (!inside) Fail(std::string(what) + " outside the block's shared memory");
}

void BlockScheduler::IssueCopy(void* shared, const void* global, size_t bytes, bool valid,
                               const void* place) {
  CheckSharedRange("an asynchronous copy", shared, bytes);
  if (!Aligned(shared, bytes) || (valid && !Aligned(global, bytes))) {
    Fail("an asynchronous copy of " + std::to_string(bytes) + " bytes is misaligned");
  }
  if (races_ != nullptr) {
    FailAt(
        races_->CopyAsync(current_thread->linear, shared, valid ? global : nullptr, bytes, place));
  }
  std::memset(shared, kUnset, bytes);
  Current().copies.push_back({static_cast<std::byte*>(shared),
                              valid ? static_cast<const std::byte*>(global) : nullptr, bytes});
}

void BlockScheduler::CommitCopies() {
  Thread& thread = Current();
  thread.group_ends.push_back(thread.copies.size());
  if (races_ != nullptr) races_->CommitCopies(current_thread->linear);
}

void BlockScheduler::WaitForCopies(int pending_groups) {
  if (races_ != nullptr) races_->WaitForCopies(current_thread->linear, pending_groups);
  Thread& thread = Current();
  const auto groups = static_cast<int>(thread.group_ends.size());
  const int landing = groups - pending_groups;
  if (landing <= 0) return;
  const size_t end = thread.group_ends[landing - 1];
  for (size_t i = 0; i < end; ++i) {
    const Copy& copy = thread.copies[i];
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, copy.bytes);
    } else {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<long>(end));
  thread.group_ends.erase(thread.group_ends.begin(), thread.group_ends.begin() + landing);
  for (size_t& group_end : thread.group_ends) group_end -= end;
}

void BlockScheduler::InitBarrier(uint64_t* barrier, int arrivals) {
  CheckSharedRange("a barrier", barrier, sizeof(*barrier));
  if (!Aligned(barrier, sizeof(*barrier))) Fail("a misaligned barrier");
  NoteBarrier(barrier, AccessKind::kWrite);
  if (races_ != nullptr) races_->InitBarrier(barrier);
  *barrier = MemoryBarrier::Make(arrivals);
}

void BlockScheduler::ArriveAtBarrier(uint64_t* barrier, uint32_t expected_bytes) {
  CheckSharedRange("a barrier", barrier, sizeof(*barrier));
  MemoryBarrier state(*barrier);
  if (!state.valid()) Fail("a barrier that was not initialised");
  NoteBarrier(barrier, AccessKind::kRead);
  state.Expect(expected_bytes);
  if (!state.Arrive()) Fail("more arrivals at a barrier than it was initialised for");
  if (races_ != nullptr) races_->ArriveAtBarrier(current_thread->linear, barrier);
  EndPhaseIfDone(barrier, state);
}

void BlockScheduler::EndPhaseIfDone(uint64_t* barrier, MemoryBarrier state) {
  const bool ended = state.EndPhaseIfDone();
  *barrier = state.bits();
  if (!ended) return;
  if (races_ != nullptr) races_->EndPhase(barrier);
  ReleaseWaitersAt(barrier);
}

// What uses a barrier is ordered with its initialisation.
void BlockScheduler::NoteBarrier(const uint64_t* barrier, AccessKind kind) {
  if (races_ == nullptr) return;
  FailAt(races_->Access(current_thread->linear, barrier, sizeof(*barrier), kind, nullptr));
}

void BlockScheduler::WaitAtBarrier(uint64_t* barrier, uint32_t parity) {
  CheckSharedRange("a barrier", barrier, sizeof(*barrier));
  if (!MemoryBarrier(*barrier).valid()) Fail("a barrier that was not initialised");
  while (MemoryBarrier(*barrier).parity() == (parity & 1)) {
    barrier_waiters_.push_back({barrier, current_thread->linear});
    Wait("a barrier in shared memory");
  }
  NoteBarrier(barrier, AccessKind::kRead);
  if (races_ != nullptr) races_->PassBarrier(current_thread->linear, barrier);
}

void BlockScheduler::ReleaseWaitersAt(uint64_t* barrier) {
  std::erase_if(barrier_waiters_, [&](const BarrierWaiter& waiter) {
    if (waiter.barrier == barrier) Release(waiter.thread);
    return waiter.barrier == barrier;
  });
}

void BlockScheduler::IssueBulkCopy(void* shared, const void* global, uint32_t bytes,
                                   uint64_t* barrier, const void* place) {
  CheckSharedRange("a bulk copy", shared, bytes);
  CheckSharedRange("a barrier", barrier, sizeof(*barrier));
  if (!MemoryBarrier(*barrier).valid()) Fail("a barrier that was not initialised");
  if (bytes == 0 || bytes % 16 != 0 || !Aligned(shared, 16) || !Aligned(global, 16)) {
    Fail("a bulk copy of " + std::to_string(bytes) + " bytes that is misaligned or empty");
  }
  NoteBarrier(barrier, AccessKind::kRead);
  if (races_ != nullptr) {
    FailAt(races_->BulkCopy(current_thread->linear, shared, global, bytes, barrier, place));
  }
  const bool stale = stale_copies_ && !copied_to_.insert(shared).second;
  if (!stale) std::memset(shared, kUnset, bytes);
  const void* const from = stale ? shared : global;
  bulk_copies_.push_back(
      {{static_cast<std::byte*>(shared), static_cast<const std::byte*>(from), bytes}, barrier});
}

bool BlockScheduler::LandBulkCopies() {
  if (bulk_copies_.empty()) return false;
  for (const BulkCopy& bulk : std::exchange(bulk_copies_, {})) {
    std::memmove(bulk.copy.to, bulk.copy.from, bulk.copy.bytes);  // a stale one onto itself
    MemoryBarrier state(*bulk.barrier);
    state.Land(static_cast<uint32_t>(bulk.copy.bytes));
    EndPhaseIfDone(bulk.barrier, state);
  }
  return true;
}

// --- Races ---

void BlockScheduler::FailAt(std::optional<std::string> race) {
  if (race.has_value()) Fail(*std::move(race));
}

// What belongs to the emulated device and not to the kernel: stacks, indexes of threads.
bool BlockScheduler::IsOwnMemory(const void* at) const {
  const auto within = [at](const void* begin, size_t bytes) {
    return at >= begin && at < static_cast<const std::byte*>(begin) + bytes;
  };
  const Thread& thread = threads_[current_thread->linear];
  return thread.fiber->OnStack(at) || within(threads_.data(), threads_.size() * sizeof(Thread)) ||
         within(&block_, sizeof(block_)) || at == &current_thread;
}

void BlockScheduler::NoteAccess(const void* at, size_t bytes, AccessKind kind, const void* place) {
  if (races_ == nullptr || IsOwnMemory(at)) return;
  FailAt(races_->Access(current_thread->linear, at, bytes, kind, place));
}

void BlockScheduler::NoteFence() {
  if (races_ != nullptr) races_->Fence(current_thread->linear);
}

void BlockScheduler::NoteProxyFence() {
  if (races_ != nullptr) races_->ProxyFence(current_thread->linear);
}

void BlockScheduler::NoteWaitForKernelBefore() {
  if (races_ != nullptr) races_->WaitForKernelBefore(current_thread->linear);
}

bool BlockScheduler::NoteProduct() {
  if (races_ != nullptr) races_->BeginProduct(current_thread->linear / 128);
  return races_ != nullptr;
}

void BlockScheduler::NoteProductRead(uint32_t offset) {
  if (races_ == nullptr || offset + 2 > shape_.shared_bytes) return;  // said when it is read
  FailAt(races_->ReadByProduct(current_thread->linear / 128, offset));
}

void BlockScheduler::NoteProductCommit() {
  if (races_ != nullptr) races_->CommitProducts(current_thread->linear / 128);
}

void BlockScheduler::NoteProductWait(int pending_groups) {
  if (races_ != nullptr) races_->WaitForProducts(current_thread->linear / 128, pending_groups);
}

// --- Words ---

std::string BlockScheduler::DescribeThread(int thread) const {
  return "thread " + Describe(threads_[thread].context.thread_index);
}

std::string BlockScheduler::DescribeDeadlock() const {
  std::string text = "threads wait for ever: ";
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.ended) continue;
    // The first that waits, and the first that waits for something else.
    if (first != nullptr && std::strcmp(first->waits_for, thread.waits_for) == 0) continue;
    text += first == nullptr ? "" : ", ";
    text += DescribeThread(thread.context.linear) + " in " + thread.waits_for;
    if (thread.file != nullptr && std::strcmp(thread.waits_for, "__syncthreads") == 0) {
      text += std::string(" at ") + thread.file + ":" + std::to_string(thread.line);
    }
    if (first != nullptr) break;
    first = &thread;
  }
  return text + DescribeRegisters() + "; " + std::to_string(ended_) + " of " +
         std::to_string(threads_.size()) + " threads have ended";
}

// Of the first increase that waits.
std::string BlockScheduler::DescribeRegisters() const {
  const auto group =
      std::find_if(registers_.begin(), registers_.end(),
                   [](const WarpgroupRegisters& registers) { return registers.wanted != 0; });
  if (group == registers_.end()) return "";
  return "; warpgroup " + std::to_string(group - registers_.begin()) + " has " +
         std::to_string(group->held) + " registers a thread and wants " +
         std::to_string(group->wanted) + ", " + std::to_string(free_registers_) +
         " a thread are free";
}

}  // namespace refrain::kernels::cuda::emulated
