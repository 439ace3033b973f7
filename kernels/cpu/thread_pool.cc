#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/control_groups.h"
#include "kernels/cpu/processors.h"

namespace refrain::kernels::cpu {
namespace {

constexpr std::chrono::microseconds kSpin{50};
// Pauses before the first look at the clock, and between two: 1 to 3 us and a quarter of that, as a
// pause is 40 to 140 cycles.
constexpr int kFirstPauses = 64;
constexpr int kPausesPerClock = 16;

// Two threads of one core would share its dot products, which one keeps busy, and its caches; and
// its other hyperthread is where sockets and tokenizers run without holding up a region.
int AvailableCores() { return std::min(CoresOf(AllowedProcessors()), CoresInControlGroups()); }

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

// Of `visit`: the worker is inside of the region; without it the region is the last that it left.
constexpr uint32_t kInside = 1;
uint32_t VisitOf(uint64_t region) { return static_cast<uint32_t>(region) << 1; }

}  // namespace

// What is left of a thread's stretch of ParallelForStretches. On a cache line of its own.
struct alignas(64) Stretch {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// Where a worker is. On a cache line of its own.
struct alignas(64) Place {
  std::atomic<uint32_t> visit{0};
};

// No word is written by all workers: with many, lines that go from core to core one after the other
// would cost more than a short region.
//
// A region is announced by a new `epoch` and entered through `open`, which is its number: a worker
// writes down that it is inside, and is if the region is still open then. ParallelFor closes as
// soon as the caller finds no work left, and waits only for workers that wrote before: either the
// worker sees that it is closed or the caller sees the worker (these accesses are sequentially
// consistent). So one that was not scheduled in time holds nobody up. Run stays open until every
// worker has been through.
//
// Whoever waits spins first and sleeps on a futex after. A sleeper announces itself in
// `parked_...` before it looks again and sleeps, the other side changes the value before it reads
// `parked_...`: one of the two sees the other (these accesses, too), and the common case makes no
// system call.
struct ThreadPool::State {
  // Each on its own cache line: workers poll `epoch` while the caller writes the others.
  alignas(64) std::atomic<uint32_t> epoch{0};  // the last region's number, without its upper half
  alignas(64) std::atomic<uint64_t> open{0};   // number of the open region, from 1; 0: none is
  // The region; written before it opens, read inside.
  const void* fn = nullptr;
  void (*call)(const void*, int) = nullptr;
  std::atomic<int> parked_caller{0};
  alignas(64) std::atomic<int64_t> next{0};  // first index of ParallelFor not yet taken
  alignas(64) std::atomic<int> parked_workers{0};

  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};  // in this region, on some thread
  std::exception_ptr failure;       // the first; written inside, read behind the region
  uint64_t regions = 0;             // so far; caller only
  bool in_region = false;           // caller only, to catch nesting
  std::vector<std::thread> workers;
  std::vector<Stretch> stretches;  // by thread
  std::vector<Place> places;       // by thread; the caller's is not used

  void Work(int thread);
  uint64_t Enter(int thread);
  void SetVisit(int thread, uint32_t visit);
  void Announce();
  void Open(const void* region_fn, void (*region_call)(const void*, int));
  void Close();
  // Returns when done(visit) holds for every worker.
  template <typename Done>
  void WaitForWorkers(const Done& done);
  // Calls it for the open region; keeps what it throws.
  void CallRegion(int thread);
  // Behind the region.
  void ThrowWhatWasKept();
  // Calls take(thread) on the threads that come in time, until the calling one finds no work left.
  template <typename Take>
  void Share(const Take& take);
};

// The caller may wait for this worker.
void ThreadPool::State::SetVisit(int thread, uint32_t visit) {
  places[thread].visit.store(visit);
  if (parked_caller.load() > 0) places[thread].visit.notify_one();
}

// The number of the open region, once this worker is inside; 0 where none is open.
uint64_t ThreadPool::State::Enter(int thread) {
  std::atomic<uint32_t>& visit = places[thread].visit;
  const uint32_t outside = visit.load(std::memory_order_relaxed);
  for (uint64_t region = open.load(); region != 0; region = open.load()) {
    visit.store(VisitOf(region) | kInside);
    if (open.load() == region) return region;
    SetVisit(thread, outside);
  }
  return 0;
}

void ThreadPool::State::Announce() {
  epoch.fetch_add(1);
  if (parked_workers.load() > 0) epoch.notify_all();
}

void ThreadPool::State::Open(const void* region_fn, void (*region_call)(const void*, int)) {
  assert(!in_region && "parallel regions may not nest");
  in_region = true;
  fn = region_fn;
  call = region_call;
  open.store(++regions);
  Announce();
}

void ThreadPool::State::Close() {
  open.store(0);
  WaitForWorkers([inside = VisitOf(regions) | kInside](uint32_t visit) { return visit != inside; });
  in_region = false;
}

void ThreadPool::State::CallRegion(int thread) {
  try {
    call(fn, thread);
  } catch (...) {
    if (!failed.exchange(true)) failure = std::current_exception();
  }
}

void ThreadPool::State::ThrowWhatWasKept() {
  if (!failed.load(std::memory_order_relaxed)) return;
  failed.store(false);
  std::rethrow_exception(std::exchange(failure, nullptr));
}

template <typename Done>
void ThreadPool::State::WaitForWorkers(const Done& done) {
  for (size_t worker = 1; worker <= workers.size(); ++worker) {
    std::atomic<uint32_t>& visit = places[worker].visit;
    if (SpinUntil([&] { return done(visit.load()); })) continue;
    parked_caller.store(1);
    for (uint32_t seen = visit.load(); !done(seen); seen = visit.load()) visit.wait(seen);
    parked_caller.store(0);
  }
}

template <typename Take>
void ThreadPool::State::Share(const Take& take) {
  Open(&take, [](const void* f, int thread) { (*static_cast<const Take*>(f))(thread); });
  CallRegion(0);
  Close();
  ThrowWhatWasKept();
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
    const uint64_t region = Enter(thread);
    if (region == 0) continue;
    // It may be a later one than was announced when this thread looked.
    seen = static_cast<uint32_t>(region);
    CallRegion(thread);
    SetVisit(thread, VisitOf(region));
  }
}

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = AvailableCores();
  state_->stretches = std::vector<Stretch>(threads);
  state_->places = std::vector<Place>(threads);
  state_->workers.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    try {
      state_->workers.emplace_back([state = state_.get(), i] { state->Work(i); });
    } catch (const std::system_error&) {
      break;  // a limit of the system, which threads() tells
    } catch (const std::bad_alloc&) {
      break;
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
  state.Open(fn, call);
  state.CallRegion(0);
  state.WaitForWorkers([left = VisitOf(state.regions)](uint32_t visit) { return visit == left; });
  state.Close();
  state.ThrowWhatWasKept();
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
      // Looked at first: what is done with is not written to any more, by as many threads as there
      // are.
      while (stretch.next.load(std::memory_order_relaxed) < stretch.end) {
        const int64_t begin = stretch.next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= stretch.end) break;
        call(fn, thread, begin, std::min(begin + grain, stretch.end));
      }
    }
  };
  state_->Share(take);
}

}  // namespace refrain::kernels::cpu
