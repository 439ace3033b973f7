#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_RUNTIME_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_RUNTIME_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/emulated/emulated_product_library.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda::emulated {

// One card that several programs use, each through a runtime of its own: what of its memory is
// used, what copies from pinned memory have brought so far, how often the host waited for all of a
// stream, and how many events were made.
struct EmulatedCard {
  std::atomic<size_t> used_bytes = 0;
  std::atomic<size_t> uploaded_bytes = 0;
  std::atomic<int64_t> stream_waits = 0;
  std::atomic<int64_t> events = 0;
};

struct EmulatedOptions {
  int devices = 1;  // what an index is compared with
  int index = 0;
  size_t memory_bytes = size_t{1} << 30;
  std::shared_ptr<EmulatedCard> card;  // null: one of its own
  int multiprocessors = 4;
  int major = 9, minor = 0;
  EmulatedLibrary library;

  // Fault injection. The n-th call (from 0) that may fail does; n counts calls whose name contains
  // `failing_call` ("" counts all): AllocateDevice, AllocatePinned, CreateStream, CopyAsync, ...
  // A failing "Kernel" is an error on the device, found by whoever waits for it; a failing "Launch"
  // is refused, for want of memory if that is the code, and the device goes on.
  std::string failing_call;
  int64_t failing_call_index = std::numeric_limits<int64_t>::max();
  int64_t failing_calls = 1;  // so many behind one another
  absl::StatusCode failing_code = absl::StatusCode::kInternal;
  // A bulk copy to where one of its block has landed before leaves there what is there: who uses a
  // unit of a ring again finds in it what was in it first.
  bool stale_copies = false;
};

// A device in host memory whose kernels run in fibers. What is put on a stream runs as late as
// possible, when someone waits for it: an order that a real device may take, and one in which a
// missing wait shows. Host memory given to CopyAsync must be pinned or an error says so.
//
// Memory is at first 0xff in every byte, NaN in any float. A launch from a thread of which another
// device is the current one is refused, by all devices alike (a GPU's runtime would put it on that
// other one, or refuse the stream); who opens a device has it as its own.
std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedOptions& options);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_RUNTIME_H_
