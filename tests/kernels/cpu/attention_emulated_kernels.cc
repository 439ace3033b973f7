#include "tests/kernels/cpu/attention_emulated_kernels.h"

#include "kernels/cpu/attention_amx_tile.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/attention_words.h"
#include "tests/kernels/cpu/emulated_instructions.h"

// Compiled with wide instructions, see emulated_instructions.h.

namespace refrain::kernels::cpu {
namespace {

using AmxSegment = AttentionAmx<EmulatedBf16, EmulatedTiles>;

EmulatedTileLog all_threads;  // fields by atomic operations

void AddToAllThreads(const EmulatedTileLog& log) {
  __atomic_fetch_add(&all_threads.violations, log.violations, __ATOMIC_RELAXED);
  __atomic_fetch_add(&all_threads.configurations, log.configurations, __ATOMIC_RELAXED);
  __atomic_fetch_add(&all_threads.dots, log.dots, __ATOMIC_RELAXED);
  if (log.violation != nullptr) {
    __atomic_store_n(&all_threads.violation, log.violation, __ATOMIC_RELAXED);
  }
  if (log.in_use) __atomic_store_n(&all_threads.in_use, true, __ATOMIC_RELAXED);
}

void SegmentByWords(const SegmentArgs& a) {
  if (!AttentionWords<EmulatedVnni>::Takes(a)) return Avx512AttentionKernels().segment(a);
  AttentionWords<EmulatedVnni>::Segment(a);
}

void SegmentByDot(const SegmentArgs& a) {
  if (a.type != KvElementType::kBF16Pairs) return SegmentByWords(a);
  AttentionDot<EmulatedBf16>::Segment(a);
}

void SegmentByTiles(const SegmentArgs& a) {
  if (!AmxSegment::Takes(a)) return SegmentByDot(a);
  AmxSegment::Segment(a);
  AddToAllThreads(EmulatedTiles::TakeLog());
}

}  // namespace

AttentionKernels EmulatedVnniAttentionKernels() {
  AttentionKernels kernels = Avx512AttentionKernels();
  kernels.uses_pairs = true;
  kernels.segment = SegmentByWords;
  return kernels;
}

AttentionKernels EmulatedBf16AttentionKernels() {
  AttentionKernels kernels = EmulatedVnniAttentionKernels();
  kernels.segment = SegmentByDot;
  kernels.ahead_to_first_level = true;  // the other cache is the hardware's, on most machines
  return kernels;
}

AttentionKernels EmulatedAmxAttentionKernels() {
  AttentionKernels kernels = EmulatedBf16AttentionKernels();
  kernels.segment = SegmentByTiles;
  kernels.ahead_to_first_level = false;
  kernels.shares_by_keys = true;
  return kernels;
}

EmulatedTileLog TakeAttentionTileLog() {
  const EmulatedTileLog log = all_threads;
  all_threads = {};
  return log;
}

}  // namespace refrain::kernels::cpu
