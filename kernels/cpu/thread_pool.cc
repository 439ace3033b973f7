#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <thread>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

constexpr std::chrono::microseconds kSpin{50};
// Pauses between two looks at the clock: about 1 us on a processor whose pause is 40 cycles, 3 us
// where it is 140.
constexpr int kPausesPerClock = 64;

int AvailableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// Spins until `done()` or for kSpin; returns whether it is done.
template <typename Done>
bool SpinUntil(const Done& done) {
  for (int i = 0; i < kPausesPerClock; ++i) {
    if (done()) return true;
    _mm_pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

// A region is published by a new `epoch`; it is over when `running` has come down to 0. Both are
// waited for by spinning first and by futex after. A waiter announces itself in `parked` before it
// looks again and sleeps, the other side changes the value before it reads `parked`: one of the two
// sees the other (all four accesses are sequentially consistent), and the common case makes no
// system call.
struct ThreadPool::State {
  // Each on its own cache line: workers poll `epoch` while the caller writes the others.
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int32_t> running{0};
  alignas(64) std::atomic<int64_t> next{0};  // first index of ParallelFor not yet taken
  alignas(64) std::atomic<int> parked_workers{0};
  std::atomic<int> parked_caller{0};

  // The region; written before `epoch`, read after.
  const void* fn = nullptr;
  void (*call)(const void*, int) = nullptr;
  bool stop = false;

  bool in_region = false;  // caller only, to catch nesting
  std::vector<std::thread> workers;

  void Work(int thread);
  void Publish();
};

void ThreadPool::State::Publish() {
  running.store(static_cast<int32_t>(workers.size()), std::memory_order_relaxed);
  epoch.fetch_add(1);
  if (parked_workers.load() > 0) epoch.notify_all();
}

void ThreadPool::State::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    const auto published = [&] { return epoch.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(published)) {
      parked_workers.fetch_add(1);
      while (epoch.load() == seen) epoch.wait(seen);
      parked_workers.fetch_sub(1);
    }
    // No region can begin before this thread has left the last one, so the epoch is one ahead.
    ++seen;
    if (stop) return;
    call(fn, thread);
    if (running.fetch_sub(1) == 1 && parked_caller.load() > 0) running.notify_one();
  }
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = AvailableCores();
  state_->workers.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->Publish();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::RunErased(const void* fn, void (*call)(const void*, int)) {
  State& state = *state_;
  assert(!state.in_region && "parallel regions may not nest");
  if (state.workers.empty()) {
    call(fn, 0);
    return;
  }
  state.in_region = true;
  state.fn = fn;
  state.call = call;
  state.Publish();
  call(fn, 0);
  const auto finished = [&] { return state.running.load(std::memory_order_acquire) == 0; };
  if (!SpinUntil(finished)) {
    state.parked_caller.store(1);
    for (int32_t left = state.running.load(); left != 0; left = state.running.load()) {
      state.running.wait(left);
    }
    state.parked_caller.store(0);
  }
  state.in_region = false;
}

void ThreadPool::ForErased(int64_t count, int64_t grain, const void* fn,
                           void (*call)(const void*, int64_t, int64_t)) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (state_->workers.empty() || count <= grain) {
    call(fn, 0, count);
    return;
  }
  state_->next.store(0, std::memory_order_relaxed);
  Run([this, count, grain, fn, call](int) {
    while (true) {
      const int64_t begin = state_->next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      call(fn, begin, std::min(begin + grain, count));
    }
  });
}

}  // namespace refrain::kernels::cpu
