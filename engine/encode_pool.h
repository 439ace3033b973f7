#ifndef REFRAIN_ENGINE_ENCODE_POOL_H_
#define REFRAIN_ENGINE_ENCODE_POOL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/encoded_request.h"
#include "engine/prompt_encoder.h"
#include "engine/tenant_queue.h"

namespace refrain::engine {

// Renders templates and tokenizes, away from the I/O threads and the engine thread.
//
// Two lanes: `threads` threads render all requests and tokenize the short ones; texts of which more
// than kLongTextBytes were not tokenized before (StretchMemo) go to one more thread. While
// sequences run, that one works in slices of kSlice with rests between them, so that a prompt of 1
// MB holds up neither a short one nor running streams (docs/results/encode-gap.md): of kRest, or of
// kShortRest while another long text waits. In both lanes tenants take turns, so that one with a
// thousand prompts does not hold up another's. A request that is cancelled or out of time leaves
// its lane within kSweepPeriod, whatever is in work before it: one more thread per lane looks,
// while more requests wait there than threads do. A text that cannot fit into the context goes no
// further than the first lane. What fails finishes its stream, and so does what only_tokenize asks
// for. Any thread may Push. Stop ends the threads after what they are doing; what still waits is
// finished as CANCELLED.
class EncodePool {
 public:
  static constexpr size_t kLongTextBytes = 64 * 1024;
  static constexpr std::chrono::microseconds kSlice{300};
  static constexpr std::chrono::microseconds kRest{20'000};
  static constexpr std::chrono::microseconds kShortRest{10'000};
  static constexpr std::chrono::milliseconds kSweepPeriod{20};
  using Sink = std::function<void(std::unique_ptr<EncodedRequest>)>;

  // `sink` gets the encoded requests, on the pool's threads, which also ask `engine_is_busy`: are
  // sequences running? `encoder` and `clock` outlive the pool. Throws std::system_error where the
  // system refuses a thread.
  EncodePool(const PromptEncoder* encoder, const Clock* clock, int32_t threads, Sink sink,
             std::function<bool()> engine_is_busy);
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
    ConditionVariable crowded;
    TenantQueue<Job> jobs REFRAIN_GUARDED_BY(mutex);
    size_t idle_threads REFRAIN_GUARDED_BY(mutex) = 0;
    std::atomic<bool> stopped = false;  // written under the mutex

    void Push(Job job);
    std::optional<Job> WaitAndPop();  // nothing: stopped
    bool AnyWaits();
    // Until jobs wait that no thread is about to take; false: stopped.
    bool WaitUntilCrowded();
    void Stop();
  };

  class LongTextPace;

  void Serve(Lane* lane);
  void Sweep(Lane* lane);
  void Render(Job job);
  void Tokenize(Job job, EncodePace* pace);
  void TokenizeOnly(const Job& job, EncodePace* pace);
  bool Expired(const EncodedRequest& request) const;
  bool HasEnded(const EncodedRequest& request) const;
  bool SkipEnded(EncodedRequest& request) const;

  const PromptEncoder* encoder_;
  const Clock* clock_;
  Sink sink_;
  std::function<bool()> engine_is_busy_;
  Lane short_lane_;
  Lane long_lane_;
  std::vector<std::thread> threads_;
};

// Why a request ends when its deadline has passed.
absl::Status DeadlineStatus(const EncodedRequest& request);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENCODE_POOL_H_
