#include "kernels/cuda/emulated/fiber.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define REFRAIN_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REFRAIN_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define REFRAIN_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REFRAIN_FIBER_TSAN 1
#endif
#endif

#ifdef REFRAIN_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef REFRAIN_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace refrain::kernels::cuda::emulated {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 4096;

constinit thread_local Fiber* running_fiber = nullptr;

}  // namespace

#ifdef __x86_64__
// Saves the callee-saved registers and the stack pointer, takes others: swapcontext without its two
// system calls. A matrix product of a warp switches 32 times.
extern "C" void refrain_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type refrain_switch_stack, @function
refrain_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size refrain_switch_stack, .-refrain_switch_stack
)");
#endif

struct Fiber::Context {
#ifdef __x86_64__
  void* own = nullptr;
  void* outside = nullptr;
#else
  ucontext_t own;
  ucontext_t outside;
#endif
#ifdef REFRAIN_FIBER_ASAN
  void* own_fake_stack = nullptr;
  void* outside_fake_stack = nullptr;
  const void* outside_stack = nullptr;
  size_t outside_stack_bytes = 0;
#endif
#ifdef REFRAIN_FIBER_TSAN
  void* own_fiber = nullptr;
  void* outside_fiber = nullptr;
#endif
};

Fiber::Fiber() : context_(std::make_unique<Context>()) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
#ifdef REFRAIN_FIBER_TSAN
  context_->own_fiber = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef REFRAIN_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
#ifdef REFRAIN_FIBER_TSAN
  __tsan_destroy_fiber(context_->own_fiber);
#endif
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

bool Fiber::OnStack(const void* at) const { return at >= stack_ && at < stack_ + kStackBytes; }

void Fiber::Start(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  ended_ = false;
#ifdef REFRAIN_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
  context_->own_fake_stack = nullptr;
#endif
#ifdef __x86_64__
  // Six registers, the return address, and a word so that the entry finds the alignment of a call.
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(&Fiber::Trampoline);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  context_->own = top - 8;
#else
  getcontext(&context_->own);
  context_->own.uc_stack.ss_sp = stack_;
  context_->own.uc_stack.ss_size = kStackBytes;
  context_->own.uc_link = nullptr;
  makecontext(&context_->own, &Fiber::Trampoline, 0);
#endif
}

void Fiber::SwitchIn() {
#ifdef __x86_64__
  refrain_switch_stack(&context_->outside, context_->own);
#else
  swapcontext(&context_->outside, &context_->own);
#endif
}

void Fiber::SwitchOut() {
#ifdef __x86_64__
  refrain_switch_stack(&context_->own, context_->outside);
#else
  swapcontext(&context_->own, &context_->outside);
#endif
}

void Fiber::Resume() {
  Fiber* const before = std::exchange(running_fiber, this);
#ifdef REFRAIN_FIBER_TSAN
  context_->outside_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context_->own_fiber, 0);
#endif
#ifdef REFRAIN_FIBER_ASAN
  __sanitizer_start_switch_fiber(&context_->outside_fake_stack, stack_, kStackBytes);
#endif
  SwitchIn();
#ifdef REFRAIN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(context_->outside_fake_stack, nullptr, nullptr);
#endif
  running_fiber = before;
}

void Fiber::Suspend() {
  Fiber* const fiber = running_fiber;
  [[maybe_unused]] Context& context = *fiber->context_;
#ifdef REFRAIN_FIBER_TSAN
  __tsan_switch_to_fiber(context.outside_fiber, 0);
#endif
#ifdef REFRAIN_FIBER_ASAN
  __sanitizer_start_switch_fiber(fiber->ended_ ? nullptr : &context.own_fake_stack,
                                 context.outside_stack, context.outside_stack_bytes);
#endif
  fiber->SwitchOut();
#ifdef REFRAIN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(context.own_fake_stack, &context.outside_stack,
                                  &context.outside_stack_bytes);
#endif
}

void Fiber::Trampoline() {
  Fiber* const fiber = running_fiber;
#ifdef REFRAIN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->context_->outside_stack,
                                  &fiber->context_->outside_stack_bytes);
#endif
  fiber->entry_(fiber->argument_);
  fiber->ended_ = true;
  Suspend();
}

std::unique_ptr<Fiber> FiberPool::Take() {
  if (idle_.empty()) return std::make_unique<Fiber>();
  std::unique_ptr<Fiber> fiber = std::move(idle_.back());
  idle_.pop_back();
  return fiber;
}

}  // namespace refrain::kernels::cuda::emulated
