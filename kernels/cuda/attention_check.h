#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_CHECK_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_CHECK_H_

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention_args.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/device.h"

namespace refrain::kernels::cuda {

// Puts attention by one kernel on the device, cut for so many multiprocessors and on no more of
// them: AttentionLauncher's, or a test's.
using AttendFn = std::function<absl::Status(AttentionKernel, int num_multiprocessors,
                                            const ChunkAttentionArgs&)>;

// Tries `kernel` on this very device, before it may choose tokens: its results beside those of
// kGeneric, which is plain enough to be taken for right, in each head_dim and element type that it
// has, reproducible or not. Decoding and prefill rows in every number of queries that kernels make
// a difference of, over chunks that they share and chunks of their own, part-full ones too, with a
// sliding window and without. It does not try every shape: the conformance suite does.
//
// On all multiprocessors, where many thread blocks have parts of one row to merge, and, without a
// window, on one: there a thread block goes round its ring of keys, waits for room in it and takes
// a second item, which so few keys would not make it do among many.
//
// Returns "" where they agree (or the kernel has no shape here), else what does not: shape, error,
// limit. Takes milliseconds and a few MiB of the device's memory, given back. Engine thread.
// Failure: what `attend` or the device says; after an error of the device itself nothing can run.
absl::StatusOr<std::string> FindAttentionFault(AttentionKernel kernel,
                                               const AttentionDevice& properties, Device& device,
                                               const AttendFn& attend);

// The same for some head_dims.
absl::StatusOr<std::string> FindAttentionFaultIn(std::span<const int> head_dims,
                                                 AttentionKernel kernel,
                                                 const AttentionDevice& properties, Device& device,
                                                 const AttendFn& attend);

// FindAttentionFault, or a test's.
using AttentionCheck = std::function<absl::StatusOr<std::string>(
    AttentionKernel, const AttentionDevice&, Device&, const AttendFn&)>;

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_CHECK_H_
