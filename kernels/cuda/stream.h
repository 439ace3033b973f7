#ifndef REFRAIN_KERNELS_CUDA_STREAM_H_
#define REFRAIN_KERNELS_CUDA_STREAM_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

  // Whether the kernel has not been told yet, for this stream's device, that a launch takes so much
  // shared memory: it is told once, not at every launch.
  bool NewSharedBytes(const void* kernel, size_t bytes) {
    for (auto& [known, most] : shared_bytes_) {
      if (known != kernel) continue;
      if (bytes <= most) return false;
      most = bytes;
      return true;
    }
    shared_bytes_.emplace_back(kernel, bytes);
    return true;
  }

  const std::optional<std::string>& failure() const { return failure_; }
  void KeepFailure(std::string failure) {
    if (!failure_.has_value()) failure_ = std::move(failure);
  }
  // Behind a recording that came to nothing, and behind a kernel that was only tried: nothing that
  // was to run is lost.
  void ForgetFailure() { failure_.reset(); }

 private:
  void* native_;  // cudaStream_t, or the emulated device's queue
  std::vector<std::pair<const void*, size_t>> shared_bytes_;  // a few
  std::optional<std::string> failure_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STREAM_H_
