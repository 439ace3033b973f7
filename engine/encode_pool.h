#ifndef REFRAIN_ENGINE_ENCODE_POOL_H_
#define REFRAIN_ENGINE_ENCODE_POOL_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/encoded_request.h"
#include "engine/prompt_encoder.h"

namespace refrain::engine {

// Renders templates and tokenizes, away from the I/O threads and the engine thread.
//
// Two lanes: `threads` threads render all requests and tokenize the short ones, in order of
// arrival; texts over kLongTextBytes go to one more thread, which the operating system runs only
// where a core is idle, so that a prompt of 1 MB holds up neither a short one nor running streams.
// A request that was cancelled or timed out meanwhile is skipped. What fails finishes its stream.
// Any thread may Push. Stop ends the threads after what they are doing; what still waits is
// finished as CANCELLED.
class EncodePool {
 public:
  static constexpr size_t kLongTextBytes = 64 * 1024;
  using Sink = std::function<void(std::unique_ptr<EncodedRequest>)>;

  // `sink` gets the encoded requests, on the pool's threads. `encoder` and `clock` outlive the
  // pool.
  EncodePool(const PromptEncoder* encoder, const Clock* clock, int32_t threads, Sink sink);
  ~EncodePool() { Stop(); }

  void Push(std::unique_ptr<EncodedRequest> request);
  void Stop();

 private:
  struct Job {
    std::unique_ptr<EncodedRequest> request;
    std::optional<PromptText> text;
  };
  // Jobs of one kind and who does them.
  struct Lane {
    Mutex mutex;
    ConditionVariable changed;
    std::deque<Job> jobs REFRAIN_GUARDED_BY(mutex);
    bool stopped REFRAIN_GUARDED_BY(mutex) = false;

    void Push(Job job);
    std::optional<Job> WaitAndPop();  // nothing: stopped
    void Stop();
  };

  void Serve(Lane* lane);
  void Render(Job job);
  void Tokenize(Job job);
  bool SkipEnded(EncodedRequest& request) const;

  const PromptEncoder* encoder_;
  const Clock* clock_;
  Sink sink_;
  Lane short_lane_;
  Lane long_lane_;
  std::vector<std::thread> threads_;
};

// Why a request ends when its deadline has passed.
absl::Status DeadlineStatus(const EncodedRequest& request);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENCODE_POOL_H_
