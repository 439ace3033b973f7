#ifndef REFRAIN_ENGINE_TEXT_ENCODE_PACE_H_
#define REFRAIN_ENGINE_TEXT_ENCODE_PACE_H_

#include <cstddef>

namespace refrain::engine {

// Lets whoever has a long text tokenized hold it up on the way, or end it: the tokenizer tells what
// it has done, is halted as long as Checkpoint takes, and gives up with CANCELLED when it is
// stopped. One thread, one text at a time.
class EncodePace {
 public:
  virtual ~EncodePace() = default;

  void Did(size_t bytes) {
    if (bytes < left_bytes_) {
      left_bytes_ -= bytes;
      return;
    }
    left_bytes_ = kCheckpointBytes;
    Checkpoint();
  }
  bool stopped() const { return stopped_; }
  // Where some stretches were tokenized before (StretchMemo): here is one that was not.
  virtual void Begins(size_t /*bytes*/) {}

 protected:
  // Called every some tens of microseconds.
  virtual void Checkpoint() = 0;
  void Stop() { stopped_ = true; }

 private:
  static constexpr size_t kCheckpointBytes = 128;
  size_t left_bytes_ = kCheckpointBytes;
  bool stopped_ = false;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_ENCODE_PACE_H_
