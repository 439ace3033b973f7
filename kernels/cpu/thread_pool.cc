#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cpu/control_groups.h"

namespace refrain::kernels::cpu {
namespace {

constexpr std::chrono::microseconds kSpin{50};
// Pauses before the first look at the clock, and between two: 1 to 3 us and a quarter of that, as a
// pause is 40 to 140 cycles.
constexpr int kFirstPauses = 64;
constexpr int kPausesPerClock = 16;

int AvailableCores() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, CoresInControlGroups());
}

// Spins until `done()` or for kSpin; returns whether it is done. After the first few microseconds
// it yields the processor each round: whoever is waited for may have to run on it.
template <typename Done>
bool SpinUntil(const Done& done) {
  for (int i = 0; i < kFirstPauses; ++i) {
    if (done()) return true;
    _mm_pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (done()) return true;
      _mm_pause();
    }
    sched_yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

// Of the gate; its other bits count the workers inside.
constexpr uint32_t kOpen = uint32_t{1} << 31;

}  // namespace

// What is left of a thread's stretch of ParallelForStretches. On a cache line of its own.
struct alignas(64) Stretch {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// A region is announced by a new `epoch` and entered through `gate`: a worker that finds it open
// adds itself, and takes itself off when it is done. ParallelFor closes the gate as soon as the
// caller finds no work left, and waits only for the workers inside: one that was not scheduled in
// time holds nobody up. Run keeps it open until every worker has been through.
//
// Whoever waits spins first and sleeps on a futex after. A sleeper announces itself in
// `parked_...` before it looks again and sleeps, the other side changes the value before it reads
// `parked_...`: one of the two sees the other (these accesses are sequentially consistent), and the
// common case makes no system call.
struct ThreadPool::State {
  // Each on its own cache line: workers poll `epoch` while the caller writes the others.
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<uint32_t> gate{0};
  std::atomic<int> parked_caller{0};
  alignas(64) std::atomic<int64_t> next{0};  // first index of ParallelFor not yet taken
  alignas(64) std::atomic<int> parked_workers{0};

  // The region; written before the gate opens, read inside.
  const void* fn = nullptr;
  void (*call)(const void*, int) = nullptr;
  uint32_t region_epoch = 0;
  std::atomic<int32_t> to_visit{0};  // workers that Run still waits for

  std::atomic<bool> stop{false};
  bool in_region = false;  // caller only, to catch nesting
  std::vector<std::thread> workers;
  std::vector<Stretch> stretches;  // by thread

  void Work(int thread);
  bool Enter();
  void Leave();
  void Announce();
  void Open(const void* region_fn, void (*region_call)(const void*, int), int32_t visits);
  void CloseAndWait();
  // Calls take(thread) on the threads that come in time, until the calling one finds no work left.
  template <typename Take>
  void Share(const Take& take);
  template <typename T, typename Done>
  void WaitFor(std::atomic<T>& value, const Done& done);
};

bool ThreadPool::State::Enter() {
  uint32_t seen = gate.load(std::memory_order_relaxed);
  while ((seen & kOpen) != 0) {
    if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::State::Leave() {
  to_visit.fetch_sub(1);
  if (parked_caller.load() > 0) to_visit.notify_one();
  gate.fetch_sub(1);
  if (parked_caller.load() > 0) gate.notify_one();
}

void ThreadPool::State::Announce() {
  epoch.fetch_add(1);
  if (parked_workers.load() > 0) epoch.notify_all();
}

void ThreadPool::State::Open(const void* region_fn, void (*region_call)(const void*, int),
                             int32_t visits) {
  assert(!in_region && "parallel regions may not nest");
  in_region = true;
  fn = region_fn;
  call = region_call;
  region_epoch = epoch.load(std::memory_order_relaxed) + 1;
  to_visit.store(visits, std::memory_order_relaxed);
  gate.store(kOpen, std::memory_order_release);
  Announce();
}

// Returns when `done(value)` holds. While the caller waits, `value` only goes down, so that what it
// was last seen to be cannot come back.
template <typename T, typename Done>
void ThreadPool::State::WaitFor(std::atomic<T>& value, const Done& done) {
  if (SpinUntil([&] { return done(value.load(std::memory_order_acquire)); })) return;
  parked_caller.store(1);
  for (T seen = value.load(); !done(seen); seen = value.load()) value.wait(seen);
  parked_caller.store(0);
}

void ThreadPool::State::CloseAndWait() {
  WaitFor(to_visit, [](int32_t left) { return left <= 0; });
  gate.fetch_and(~kOpen);
  WaitFor(gate, [](uint32_t inside) { return inside == 0; });
  in_region = false;
}

template <typename Take>
void ThreadPool::State::Share(const Take& take) {
  Open(
      &take, [](const void* f, int thread) { (*static_cast<const Take*>(f))(thread); },
      /*visits=*/0);
  take(0);
  CloseAndWait();
}

void ThreadPool::State::Work(int thread) {
  uint32_t seen = 0;
  // A region may be seen before it is announced: what was seen is ahead of `epoch` then.
  const auto is_new = [&seen](uint32_t announced) {
    return static_cast<int32_t>(announced - seen) > 0;
  };
  while (true) {
    if (!SpinUntil([&] { return is_new(epoch.load(std::memory_order_acquire)); })) {
      parked_workers.fetch_add(1);
      for (uint32_t now = epoch.load(); !is_new(now); now = epoch.load()) epoch.wait(now);
      parked_workers.fetch_sub(1);
    }
    // In this order: the end is announced behind `stop`, and nothing is announced behind it.
    seen = epoch.load();
    if (stop.load()) return;
    if (!Enter()) continue;
    // The open region may be a later one than was announced when this thread looked.
    seen = region_epoch;
    call(fn, thread);
    Leave();
  }
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = AvailableCores();
  state_->stretches = std::vector<Stretch>(threads);
  state_->workers.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([state = state_.get(), i] { state->Work(i); });
    } catch (const std::system_error&) {
      break;  // a limit of the system, which threads() tells
    }
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->Announce();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::RunErased(const void* fn, void (*call)(const void*, int)) {
  State& state = *state_;
  if (state.workers.empty()) {
    call(fn, 0);
    return;
  }
  state.Open(fn, call, static_cast<int32_t>(state.workers.size()));
  call(fn, 0);
  state.CloseAndWait();
}

bool ThreadPool::DoneAlone(int64_t count, int64_t grain, const void* fn, RangeFn call) const {
  if (!state_->workers.empty() && count > grain) return false;
  if (count > 0) call(fn, 0, 0, count);
  return true;
}

void ThreadPool::ForErased(int64_t count, int64_t grain, const void* fn, RangeFn call) {
  grain = std::max<int64_t>(grain, 1);
  if (DoneAlone(count, grain, fn, call)) return;
  state_->next.store(0, std::memory_order_relaxed);
  const auto take = [this, count, grain, fn, call](int thread) {
    while (true) {
      const int64_t begin = state_->next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      call(fn, thread, begin, std::min(begin + grain, count));
    }
  };
  state_->Share(take);
}

void ThreadPool::StretchesErased(int64_t count, int64_t grain, const void* fn, RangeFn call) {
  grain = std::max<int64_t>(grain, 1);
  if (DoneAlone(count, grain, fn, call)) return;
  const int64_t num = threads();
  for (int64_t i = 0; i < num; ++i) {
    state_->stretches[i].next.store(i * count / num, std::memory_order_relaxed);
    state_->stretches[i].end = (i + 1) * count / num;
  }
  const auto take = [this, num, grain, fn, call](int thread) {
    for (int64_t i = 0; i < num; ++i) {
      Stretch& stretch = state_->stretches[(thread + i) % num];
      while (true) {
        const int64_t begin = stretch.next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= stretch.end) break;
        call(fn, thread, begin, std::min(begin + grain, stretch.end));
      }
    }
  };
  state_->Share(take);
}

}  // namespace refrain::kernels::cpu
