#ifndef REFRAIN_KERNELS_CPU_THREAD_POOL_H_
#define REFRAIN_KERNELS_CPU_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace refrain::kernels::cpu {

// Compute threads that run one parallel region at a time. The calling thread is thread 0 and works
// too, so `threads` = 1 starts none. Between regions a worker spins at most 50 us, then parks: a
// decode step has about 150 regions a few tens of microseconds apart, and an idle server must not
// burn a core. Regions may not nest. One thread at a time may call Run.
//
// What a function throws on a thread (std::bad_alloc, as scratch grows) ends that thread's part of
// the region, and is thrown to the caller when all are out of it; of several the first.
class ThreadPool {
 public:
  // 0 = one for each core that this process may use, within the CPU quotas of its control groups.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls fn(thread) once on each thread, thread in [0, threads()), and returns when all are done.
  template <typename Fn>
  void Run(const Fn& fn) {
    RunErased(&fn, [](const void* f, int thread) { (*static_cast<const Fn*>(f))(thread); });
  }

  // Calls fn(begin, end) on ranges that cover [0, count) in pieces of about `grain`, taken by
  // whichever thread is free. Which thread gets what is not defined; a `fn` that wants to know is
  // called as fn(thread, begin, end).
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, const Fn& fn) {
    ForErased(count, grain, &fn, CallOn<Fn>);
  }

  // The same, but each thread goes through a stretch of its own in order, and takes from those of
  // others only when it is done with it. For work that asks the caches for what comes next: it is
  // most often the same thread's.
  template <typename Fn>
  void ParallelForStretches(int64_t count, int64_t grain, const Fn& fn) {
    StretchesErased(count, grain, &fn, CallOn<Fn>);
  }

 private:
  using RangeFn = void (*)(const void* fn, int thread, int64_t begin, int64_t end);

  template <typename Fn>
  static void CallOn(const void* fn, int thread, int64_t begin, int64_t end) {
    if constexpr (std::is_invocable_v<const Fn&, int, int64_t, int64_t>) {
      (*static_cast<const Fn*>(fn))(thread, begin, end);
    } else {
      (*static_cast<const Fn*>(fn))(begin, end);
    }
  }

  // Does what is nothing or a single piece on the calling thread; whether it was that.
  bool DoneAlone(int64_t count, int64_t grain, const void* fn, RangeFn call) const;
  void RunErased(const void* fn, void (*call)(const void*, int));
  void ForErased(int64_t count, int64_t grain, const void* fn, RangeFn call);
  void StretchesErased(int64_t count, int64_t grain, const void* fn, RangeFn call);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_THREAD_POOL_H_
