#ifndef REFRAIN_KERNELS_CUDA_STREAM_H_
#define REFRAIN_KERNELS_CUDA_STREAM_H_

#include <optional>
#include <string>
#include <utility>

namespace refrain::kernels::cuda {

// A queue of work of one device, as the files that launch kernels see it: copies and kernels put on
// one stream run in that order, beside those of other streams. Made by Runtime::CreateStream, which
// also waits for it; here it carries the device's own handle and the first launch that was refused,
// so that functions that launch need no status of their own.
//
// One thread at a time. A refused launch is kept for good, for Runtime::Synchronize to report, and
// launches behind it are not run; but for one that was to be recorded, or tried.
class Stream {
 public:
  explicit Stream(void* native) : native_(native) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* native() const { return native_; }

  const std::optional<std::string>& failure() const { return failure_; }
  void KeepFailure(std::string failure) {
    if (!failure_.has_value()) failure_ = std::move(failure);
  }
  // Behind a recording that came to nothing, and behind a kernel that was only tried: nothing that
  // was to run is lost.
  void ForgetFailure() { failure_.reset(); }

 private:
  void* native_;  // cudaStream_t, or the emulated device's queue
  std::optional<std::string> failure_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STREAM_H_
