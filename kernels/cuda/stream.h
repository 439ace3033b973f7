#ifndef REFRAIN_KERNELS_CUDA_STREAM_H_
#define REFRAIN_KERNELS_CUDA_STREAM_H_

#include <cstdint>
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
// launches behind it are not run; but for one that was to be recorded, or tried, or that found no
// memory: whoever tells its step's failure forgets it.
class Stream {
 public:
  enum class Refusal : uint8_t { kNoMemory, kOther };

  explicit Stream(void* native) : native_(native) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* native() const { return native_; }

  const std::optional<std::string>& failure() const { return failure_; }
  bool lacks_memory() const { return failure_.has_value() && refusal_ == Refusal::kNoMemory; }
  void KeepFailure(std::string failure, Refusal refusal = Refusal::kOther) {
    if (failure_.has_value()) return;
    failure_ = std::move(failure);
    refusal_ = refusal;
  }
  // Behind a recording that came to nothing, and behind a kernel that was only tried: nothing that
  // was to run is lost. Behind a step that fails for want of memory.
  void ForgetFailure() { failure_.reset(); }

 private:
  void* native_;  // cudaStream_t, or the emulated device's queue
  std::optional<std::string> failure_;
  Refusal refusal_ = Refusal::kOther;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STREAM_H_
