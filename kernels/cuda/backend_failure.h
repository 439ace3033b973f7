#ifndef REFRAIN_KERNELS_CUDA_BACKEND_FAILURE_H_
#define REFRAIN_KERNELS_CUDA_BACKEND_FAILURE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda {

// What went wrong in a back end. An operation that could not be put on the stream is kept until it
// is taken, and the operations up to there do nothing; an error of the device is kept for good.
// Engine thread; cannot fail.
class BackendFailure {
 public:
  explicit BackendFailure(const DeviceProperties& device) : device_(device) {}

  // Whether operations may go on.
  bool none() const { return kept_.ok() && broken_.ok(); }
  void Keep(absl::Status status) {
    if (kept_.ok()) kept_ = std::move(status);
  }
  // A launch that found no memory fails what it was of, and nothing behind that.
  void KeepRefusal(Stream& stream) {
    if (!stream.lacks_memory()) return;
    Keep(StatusOfLaunches(stream));
    stream.ForgetFailure();
  }
  // What waiting for the device came to.
  void KeepOfDevice(const absl::Status& status) {
    if (status.ok() || !broken_.ok()) return;
    broken_ = absl::InternalError(absl::StrCat("CUDA device ", device_.index, " (", device_.name,
                                               ") failed: ", status.message()));
  }
  // What was kept since the last call.
  absl::Status Take() {
    absl::Status kept = std::exchange(kept_, absl::OkStatus());
    return broken_.ok() ? kept : broken_;
  }

 private:
  const DeviceProperties& device_;
  absl::Status kept_;
  absl::Status broken_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_BACKEND_FAILURE_H_
