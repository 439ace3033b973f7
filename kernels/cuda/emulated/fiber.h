#ifndef REFRAIN_KERNELS_CUDA_EMULATED_FIBER_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_FIBER_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace refrain::kernels::cuda::emulated {

// A function that can stop in the middle and go on later, with a stack of its own: one thread of
// the emulated device. Resume runs it until it suspends itself or ends. A fiber that is never
// resumed again may be started anew; what stood on its stack is forgotten, destructors do not run.
//
// Knows nothing of blocks or warps. A fiber stays on the host thread that started it.
class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Start(Entry entry, void* argument);
  void Resume();          // from outside
  static void Suspend();  // from inside: back to who resumed
  bool ended() const { return ended_; }
  bool OnStack(const void* at) const;

 private:
  struct Context;

  static void Trampoline();
  void SwitchIn();
  void SwitchOut();

  std::byte* stack_;  // with a page below it that faults
  std::unique_ptr<Context> context_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
};

// Keeps fibers that are not in use, for a stack costs more to make than to keep. One host thread.
class FiberPool {
 public:
  std::unique_ptr<Fiber> Take();
  void Give(std::unique_ptr<Fiber> fiber) { idle_.push_back(std::move(fiber)); }

 private:
  std::vector<std::unique_ptr<Fiber>> idle_;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_FIBER_H_
