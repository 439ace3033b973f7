#ifndef REFRAIN_KERNELS_CPU_PREFETCH_H_
#define REFRAIN_KERNELS_CPU_PREFETCH_H_

// Asking the caches for a line that is read or written soon. Any address may be asked for; nothing
// is read and nothing fails. Any thread. May be included by files of every instruction-set level:
// there is nothing in it that one of them could widen.
//
// A function that does nothing else must be always_inline, as these are: GCC takes it for one
// without effects, and takes out the calls that it has not inlined before it finds that out.
namespace refrain::kernels::cpu {
namespace {

[[gnu::always_inline]] inline void PrefetchToFirstLevel(const void* p) {
  __builtin_prefetch(p, 0, 3);
}

[[gnu::always_inline]] inline void PrefetchToSecondLevel(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

[[gnu::always_inline]] inline void PrefetchToWrite(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_PREFETCH_H_
